// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/text_functions.h"

namespace specwire::jinja {
namespace {

// Most text filters take any value by what it prints.
absl::StatusOr<Value> AsText(const Value& self, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(MarkedString text, ToText(self));
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(text.size()));
  return Value(std::move(text));
}

// A method of str as a filter.
absl::StatusOr<Value> ApplyMethod(absl::string_view name,
                                  const Value& self,
                                  Bound args,
                                  Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value text, AsText(self, budget));
  return FindMethod(text, name)->apply(text, args, budget);
}

absl::StatusOr<Value> Trim(const Value& self, Bound args, Budget* budget) {
  return ApplyMethod("strip", self, args, budget);
}

absl::StatusOr<Value> Upper(const Value& self, Bound args, Budget* budget) {
  return ApplyMethod("upper", self, args, budget);
}

absl::StatusOr<Value> Lower(const Value& self, Bound args, Budget* budget) {
  return ApplyMethod("lower", self, args, budget);
}

absl::StatusOr<Value> CapitalizeFilter(const Value& self,
                                       Bound args,
                                       Budget* budget) {
  return ApplyMethod("capitalize", self, args, budget);
}

absl::StatusOr<Value> ReplaceFilter(const Value& self,
                                    Bound args,
                                    Budget* budget) {
  return ApplyMethod("replace", self, args, budget);
}

absl::StatusOr<Value> TitleFilter(const Value& self, Bound, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value text, AsText(self, budget));
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(8 * text.AsString()->size()));
  return Value(TitleWords(*text.AsString()));
}

absl::StatusOr<Value> String(const Value& self, Bound, Budget* budget) {
  return AsText(self, budget);
}

absl::StatusOr<Value> Same(const Value& self, Bound, Budget*) { return self; }

absl::StatusOr<Value> Json(const Value& self, Bound args, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t indent,
                            IntArgument(args[0], "tojson: indent", -1));
  SPECWIRE_ASSIGN_OR_RETURN(MarkedString text, ToJson(self, indent, budget));
  return Value(std::move(text));
}

absl::StatusOr<Value> Length(const Value& self, Bound, Budget* budget) {
  if (const MarkedString* text = self.AsString()) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(text->size() * (1 + sizeof(size_t))));
    return Value(static_cast<int64_t>(CharacterOffsets(text->bytes()).size()) -
                 1);
  }
  // Templates ask for it in every turn of a loop, so nothing is copied.
  if (const List* list = self.AsList()) {
    return Value(static_cast<int64_t>(list->items.size()));
  }
  if (const Dict* dict = self.AsDict()) {
    return Value(static_cast<int64_t>(dict->items.size()));
  }
  if (self.IsUndefined()) return Value(int64_t{0});
  return TemplateError("a ", self.TypeName(), " has no length");
}

absl::StatusOr<Value> Default(const Value& self, Bound args, Budget*) {
  const bool also_false = args[1] != nullptr && IsTrue(*args[1]);
  if (!self.IsUndefined() && (!also_false || IsTrue(self))) return self;
  return args[0] == nullptr ? Value(MarkedString()) : *args[0];
}

// item.attribute, where the attribute may be "a.b".
absl::StatusOr<Value> Attribute(Value item,
                                absl::string_view path,
                                Budget* budget) {
  while (true) {
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(Budget::kBytesPerItem));
    const size_t dot = path.find('.');
    SPECWIRE_ASSIGN_OR_RETURN(
        item, GetAttribute(item, std::string(path.substr(0, dot))));
    if (dot == absl::string_view::npos) return item;
    path.remove_prefix(dot + 1);
  }
}

absl::StatusOr<Value> Join(const Value& self, Bound args, Budget* budget) {
  MarkedString separator;
  if (args[0] != nullptr) {
    SPECWIRE_ASSIGN_OR_RETURN(separator, ToText(*args[0]));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(self, budget));
  MarkedString result;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (args[1] != nullptr) {
      SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* path,
                                StringArgument(args[1], "join: attribute"));
      SPECWIRE_ASSIGN_OR_RETURN(item, Attribute(item, path->bytes(), budget));
    }
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString text, ToText(item));
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(separator.size() + text.size()));
    if (i > 0) result.Append(separator);
    result.Append(text);
  }
  return Value(std::move(result));
}

absl::StatusOr<Value> First(const Value& self, Bound, Budget* budget) {
  if (self.AsList() != nullptr || self.AsString() != nullptr) {
    return GetItem(self, Value(int64_t{0}), budget);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(self, budget));
  return items.empty() ? Value(Undefined{"first item"}) : items.front();
}

absl::StatusOr<Value> Last(const Value& self, Bound, Budget* budget) {
  if (self.AsList() != nullptr || self.AsString() != nullptr) {
    return GetItem(self, Value(int64_t{-1}), budget);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(self, budget));
  return items.empty() ? Value(Undefined{"last item"}) : items.back();
}

absl::StatusOr<Value> ToList(const Value& self, Bound, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  return Value::MakeList(std::move(items));
}

absl::StatusOr<Value> Reverse(const Value& self, Bound, Budget* budget) {
  return Slice(self,
               std::nullopt,
               std::nullopt,
               std::make_optional<Value>(int64_t{-1}),
               budget);
}

absl::StatusOr<Value> DictItems(const Value& self, Bound, Budget* budget) {
  std::vector<Value> items;
  const Dict* dict = self.AsDict();
  if (dict == nullptr && !self.IsUndefined()) {
    return TemplateError("a ", self.TypeName(), " has no items");
  }
  for (size_t i = 0; dict != nullptr && i < dict->items.size(); ++i) {
    const auto& [key, value] = dict->items[i];
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(key.size() + 4 * Budget::kBytesPerItem));
    SPECWIRE_ASSIGN_OR_RETURN(Value pair, Value::MakeList({Value(key), value}));
    items.push_back(std::move(pair));
  }
  return Value::MakeList(std::move(items));
}

absl::StatusOr<Value> Int(const Value& self, Bound args, Budget*) {
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t fallback,
                            IntArgument(args[0], "int: default", 0));
  if (self.AsInt() != nullptr) return self;
  if (const bool* boolean = self.AsBool()) {
    return Value(int64_t{*boolean ? 1 : 0});
  }
  if (const double* number = self.AsFloat()) {
    // Outside of this range the cast would be undefined.
    if (!(std::fabs(*number) < 9e18)) return Value(fallback);
    return Value(static_cast<int64_t>(*number));
  }
  int64_t integer = 0;
  if (const MarkedString* text = self.AsString();
      text != nullptr && absl::SimpleAtoi(text->bytes(), &integer)) {
    return Value(integer);
  }
  return Value(fallback);
}

// selectattr(attribute, test, argument) and its opposite. Without a test the
// attribute itself decides.
template <bool kKeep>
absl::StatusOr<Value> FilterByAttribute(const Value& self,
                                        Bound args,
                                        Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* path,
                            StringArgument(args[0], "selectattr: attribute"));
  const Builtin* test = nullptr;
  if (args[1] != nullptr) {
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* name,
                              StringArgument(args[1], "selectattr: test"));
    test = FindTest(name->bytes());
    if (test == nullptr) return TemplateError("selectattr: unknown test");
  }
  Arguments arguments;
  if (args[2] != nullptr) arguments.positional.push_back(*args[2]);
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(self, budget));
  std::vector<Value> kept;
  for (const Value& item : items) {
    SPECWIRE_ASSIGN_OR_RETURN(Value result,
                              Attribute(item, path->bytes(), budget));
    if (test != nullptr) {
      SPECWIRE_ASSIGN_OR_RETURN(result,
                                Apply(*test, result, arguments, budget));
    }
    if (IsTrue(result) == kKeep) kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

// map(attribute="a") or map("filter").
absl::StatusOr<Value> Map(const Value& self, Bound args, Budget* budget) {
  const bool by_filter = args[0] != nullptr;
  SPECWIRE_ASSIGN_OR_RETURN(
      const MarkedString* name,
      StringArgument(args[by_filter ? 0 : 1], "map: filter or attribute"));
  const Builtin* filter = by_filter ? FindFilter(name->bytes()) : nullptr;
  // map(map) inside of itself would be recursion without a bound.
  if (by_filter && (filter == nullptr || filter->apply == Map)) {
    return TemplateError("map: unknown filter");
  }
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(self, budget));
  for (Value& item : items) {
    SPECWIRE_ASSIGN_OR_RETURN(item,
                              by_filter
                                  ? Apply(*filter, item, Arguments(), budget)
                                  : Attribute(item, name->bytes(), budget));
  }
  return Value::MakeList(std::move(items));
}

constexpr Builtin kFilters[] = {
    {"trim", Trim, "chars"},
    {"upper", Upper, ""},
    {"lower", Lower, ""},
    {"capitalize", CapitalizeFilter, ""},
    {"title", TitleFilter, ""},
    {"replace", ReplaceFilter, "old,new,count"},
    {"string", String, ""},
    {"safe", Same, ""},
    {"tojson", Json, "indent"},
    {"length", Length, ""},
    {"count", Length, ""},
    {"default", Default, "default_value,boolean"},
    {"d", Default, "default_value,boolean"},
    {"join", Join, "d,attribute"},
    {"first", First, ""},
    {"last", Last, ""},
    {"list", ToList, ""},
    {"reverse", Reverse, ""},
    {"items", DictItems, ""},
    {"int", Int, "default"},
    {"selectattr", FilterByAttribute<true>, "attribute,test,argument"},
    {"rejectattr", FilterByAttribute<false>, "attribute,test,argument"},
    {"map", Map, "filter,attribute"},
};

}  // namespace

const Builtin* FindFilter(absl::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace specwire::jinja
