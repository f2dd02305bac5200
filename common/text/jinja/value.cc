// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/value.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/jinja/budget.h"

namespace specwire::jinja {
namespace {

// Takes `item` into account in the depth of what is to hold it.
absl::Status CheckItem(const Value& item, int* depth) {
  if (!item.IsData()) {
    return TemplateError("a ", item.TypeName(), " cannot be stored in a value");
  }
  *depth = std::max(*depth, item.depth() + 1);
  if (*depth > Value::kMaxDepth) {
    return LimitError("values nested deeper than ", Value::kMaxDepth);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> Value::MakeList(std::vector<Value> items) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    SPECWIRE_RETURN_IF_ERROR(CheckItem(item, &list->depth));
  }
  list->items = std::move(items);
  Value value;
  value.value_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

absl::StatusOr<Value> Value::MakeDict(
    std::vector<std::pair<MarkedString, Value>> items) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, item] : items) {
    SPECWIRE_RETURN_IF_ERROR(CheckItem(item, &dict->depth));
  }
  dict->items = std::move(items);
  Value value;
  value.value_ = std::shared_ptr<const Dict>(std::move(dict));
  return value;
}

const Stmt* Value::AsMacro() const {
  const auto* macro = std::get_if<const Stmt*>(&value_);
  return macro == nullptr ? nullptr : *macro;
}

bool Value::IsData() const {
  return AsNamespace() == nullptr && AsLoop() == nullptr &&
         AsMacro() == nullptr && AsFunction() == nullptr;
}

int Value::depth() const {
  if (const List* list = AsList()) return list->depth;
  if (const Dict* dict = AsDict()) return dict->depth;
  return 0;
}

absl::string_view Value::TypeName() const {
  static constexpr absl::string_view kNames[] = {"undefined value",
                                                 "NoneType",
                                                 "bool",
                                                 "int",
                                                 "float",
                                                 "str",
                                                 "list",
                                                 "dict",
                                                 "namespace",
                                                 "loop",
                                                 "macro",
                                                 "function"};
  return kNames[value_.index()];
}

const Value* Dict::Find(absl::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.bytes() == key) return &value;
  }
  return nullptr;
}

}  // namespace specwire::jinja
