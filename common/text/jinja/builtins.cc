// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/builtins.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace specwire::jinja {

const Builtin* FindIn(absl::Span<const Builtin> table, absl::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

absl::StatusOr<Value> Apply(const Builtin& builtin,
                            const Value& self,
                            const Arguments& arguments,
                            Budget* budget) {
  const std::vector<absl::string_view> parameters =
      absl::StrSplit(builtin.parameters, ',', absl::SkipEmpty());
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return TemplateError(
        builtin.name, "() takes at most ", parameters.size(), " arguments");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    const auto place = static_cast<size_t>(it - parameters.begin());
    if (it == parameters.end() || bound[place] != nullptr) {
      return TemplateError(
          builtin.name, "() takes no other argument ", name.substr(0, 64));
    }
    bound[place] = &value;
  }
  return builtin.apply(self, bound, budget);
}

absl::StatusOr<const MarkedString*> StringArgument(const Value* value,
                                                   absl::string_view what) {
  if (value == nullptr) return TemplateError(what, " is missing");
  const MarkedString* text = value->AsString();
  if (text == nullptr) {
    return TemplateError(what, " must be a str, not ", value->TypeName());
  }
  return text;
}

absl::StatusOr<int64_t> IntArgument(const Value* value,
                                    absl::string_view what,
                                    int64_t fallback) {
  if (value == nullptr || value->IsNone()) return fallback;
  const int64_t* integer = value->AsInt();
  if (integer == nullptr) {
    return TemplateError(what, " must be an int, not ", value->TypeName());
  }
  return *integer;
}

absl::StatusOr<Value> ListOfStrings(std::vector<MarkedString> strings) {
  std::vector<Value> items;
  items.reserve(strings.size());
  for (MarkedString& text : strings) items.emplace_back(std::move(text));
  return Value::MakeList(std::move(items));
}

}  // namespace specwire::jinja
