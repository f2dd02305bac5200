// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/text_functions.h"

namespace specwire::jinja {
namespace {

// One bound of a slice, moved into [low, high] as Python does.
absl::StatusOr<int64_t> Bound(const std::optional<Value>& value,
                              int64_t fallback,
                              int64_t size,
                              int64_t low,
                              int64_t high) {
  if (!value.has_value() || value->IsNone()) return fallback;
  const auto bound = IntegerOf(*value);
  if (!bound.has_value()) {
    return TemplateError(
        "slice indices must be integers, not '", value->TypeName(), "'");
  }
  return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
}

// The indices that a slice of something of `size` items takes.
absl::StatusOr<std::vector<size_t>> SliceIndices(
    const std::optional<Value>& start,
    const std::optional<Value>& stop,
    const std::optional<Value>& step,
    int64_t size) {
  // Any larger step takes one item, too.
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t stride,
                            Bound(step, 1, 0, -size - 1, size + 1));
  if (stride == 0) return TemplateError("slice step cannot be zero");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  SPECWIRE_ASSIGN_OR_RETURN(
      int64_t index, Bound(start, stride > 0 ? low : high, size, low, high));
  SPECWIRE_ASSIGN_OR_RETURN(
      const int64_t end, Bound(stop, stride > 0 ? high : low, size, low, high));
  std::vector<size_t> indices;
  for (; stride > 0 ? index < end : index > end; index += stride) {
    indices.push_back(static_cast<size_t>(index));
  }
  return indices;
}

// The item's place, from the end if `index` is negative; nullopt if none.
std::optional<size_t> ItemPlace(int64_t index, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + length : index);
}

absl::StatusOr<Value> LoopAttribute(const Loop& loop, absl::string_view name) {
  if (name == "index0") return Value(loop.index0);
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "revindex0") return Value(loop.length - loop.index0 - 1);
  if (name == "revindex") return Value(loop.length - loop.index0);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(loop.index0 + 1 == loop.length);
  if (name == "length") return Value(loop.length);
  if (name == "depth0") return Value(loop.depth0);
  if (name == "depth") return Value(loop.depth0 + 1);
  if (name == "previtem") return loop.previous;
  if (name == "nextitem") return loop.next;
  return Value(Undefined{absl::StrCat("loop.", name)});
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& object,
                                   const std::string& name) {
  if (object.IsUndefined()) return UndefinedError(*object.AsUndefined());
  if (const Loop* loop = object.AsLoop()) return LoopAttribute(*loop, name);
  if (const Namespace* ns = object.AsNamespace()) {
    const auto it = ns->attributes.find(name);
    if (it != ns->attributes.end()) return it->second;
  }
  if (const Dict* dict = object.AsDict()) {
    if (const Value* value = dict->Find(name)) return *value;
  }
  return Value(Undefined{name});
}

absl::StatusOr<Value> GetItem(const Value& object,
                              const Value& key,
                              Budget* budget) {
  if (const MarkedString* name = key.AsString()) {
    return GetAttribute(object, std::string(name->bytes()));
  }
  if (object.IsUndefined()) return UndefinedError(*object.AsUndefined());
  const auto index = IntegerOf(key);
  if (!index.has_value()) return Value(Undefined{"item"});
  const Value missing(Undefined{absl::StrCat("item ", *index)});
  if (const List* list = object.AsList()) {
    const auto place = ItemPlace(*index, list->items.size());
    return place.has_value() ? list->items[*place] : missing;
  }
  if (const MarkedString* text = object.AsString()) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(text->size() * (1 + sizeof(size_t))));
    const std::vector<size_t> offsets = CharacterOffsets(text->bytes());
    const auto place = ItemPlace(*index, offsets.size() - 1);
    if (!place.has_value()) return missing;
    return Value(text->Slice(offsets[*place], offsets[*place + 1]));
  }
  return missing;
}

absl::StatusOr<Value> Slice(const Value& object,
                            const std::optional<Value>& start,
                            const std::optional<Value>& stop,
                            const std::optional<Value>& step,
                            Budget* budget) {
  if (const List* list = object.AsList()) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(list->items.size() * Budget::kBytesPerItem));
    SPECWIRE_ASSIGN_OR_RETURN(
        const auto indices,
        SliceIndices(
            start, stop, step, static_cast<int64_t>(list->items.size())));
    std::vector<Value> items;
    for (const size_t index : indices) items.push_back(list->items[index]);
    return Value::MakeList(std::move(items));
  }
  if (const MarkedString* text = object.AsString()) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(text->size() * (2 + 2 * sizeof(size_t))));
    const std::vector<size_t> offsets = CharacterOffsets(text->bytes());
    SPECWIRE_ASSIGN_OR_RETURN(
        const auto indices,
        SliceIndices(
            start, stop, step, static_cast<int64_t>(offsets.size()) - 1));
    MarkedString result;
    for (const size_t index : indices) {
      result.AppendSlice(*text, offsets[index], offsets[index + 1]);
    }
    return Value(std::move(result));
  }
  if (object.IsUndefined()) return UndefinedError(*object.AsUndefined());
  return TemplateError("a ", object.TypeName(), " cannot be sliced");
}

absl::StatusOr<std::vector<Value>> Items(const Value& value, Budget* budget) {
  std::vector<Value> items;
  if (value.IsUndefined()) return items;
  if (const List* list = value.AsList()) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(list->items.size() * Budget::kBytesPerItem));
    return list->items;
  }
  if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, item] : dict->items) {
      SPECWIRE_RETURN_IF_ERROR(
          budget->Charge(key.size() + Budget::kBytesPerItem));
      items.emplace_back(key);
    }
    return items;
  }
  if (const MarkedString* text = value.AsString()) {
    const std::vector<size_t> offsets = CharacterOffsets(text->bytes());
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(offsets.size() * 4 * Budget::kBytesPerItem));
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.emplace_back(text->Slice(offsets[i], offsets[i + 1]));
    }
    return items;
  }
  return TemplateError("a ", value.TypeName(), " cannot be iterated");
}

}  // namespace specwire::jinja
