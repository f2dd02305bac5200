// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/text_functions.h"

namespace specwire::jinja {
namespace {

// For methods of str, self is one; see FindMethod.
const MarkedString& Text(const Value& self) { return *self.AsString(); }

template <MarkedString (*kMap)(const MarkedString&)>
absl::StatusOr<Value> Mapped(const Value& self, Bound, Budget* budget) {
  // Looking a character up costs as much as copying several bytes.
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(8 * Text(self).size()));
  return Value(kMap(Text(self)));
}

template <bool kLeft, bool kRight>
absl::StatusOr<Value> Stripped(const Value& self, Bound args, Budget* budget) {
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(4 * Text(self).size()));
  std::optional<absl::string_view> characters;
  if (args[0] != nullptr && !args[0]->IsNone()) {
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* set,
                              StringArgument(args[0], "strip: chars"));
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(set->size() * Budget::kBytesPerItem));
    characters = set->bytes();
  }
  return Value(Strip(Text(self), characters, kLeft, kRight));
}

absl::StatusOr<Value> SplitMethod(const Value& self,
                                  Bound args,
                                  Budget* budget) {
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(4 * Text(self).size()));
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t limit,
                            IntArgument(args[1], "split: maxsplit", -1));
  if (args[0] == nullptr || args[0]->IsNone()) {
    SPECWIRE_ASSIGN_OR_RETURN(auto words,
                              SplitAtSpace(Text(self), limit, budget));
    return ListOfStrings(std::move(words));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* separator,
                            StringArgument(args[0], "split: sep"));
  if (separator->empty()) return TemplateError("split: empty separator");
  SPECWIRE_ASSIGN_OR_RETURN(
      auto pieces, Split(Text(self), separator->bytes(), limit, budget));
  return ListOfStrings(std::move(pieces));
}

// startswith and endswith, which also take several candidates.
template <bool (*kMatches)(absl::string_view, absl::string_view)>
absl::StatusOr<Value> HasAffix(const Value& self, Bound args, Budget* budget) {
  if (args[0] != nullptr && args[0]->AsList() != nullptr) {
    for (const Value& item : args[0]->AsList()->items) {
      SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* affix,
                                StringArgument(&item, "prefix"));
      SPECWIRE_RETURN_IF_ERROR(
          budget->Charge(affix->size() + Budget::kBytesPerItem));
      if (kMatches(Text(self).bytes(), affix->bytes())) return Value(true);
    }
    return Value(false);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* affix,
                            StringArgument(args[0], "prefix"));
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(affix->size()));
  return Value(kMatches(Text(self).bytes(), affix->bytes()));
}

bool HasPrefix(absl::string_view text, absl::string_view prefix) {
  return absl::StartsWith(text, prefix);
}

bool HasSuffix(absl::string_view text, absl::string_view suffix) {
  return absl::EndsWith(text, suffix);
}

absl::StatusOr<Value> RemovePrefix(const Value& self,
                                   Bound args,
                                   Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* prefix,
                            StringArgument(args[0], "prefix"));
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(Text(self).size()));
  const bool found = HasPrefix(Text(self).bytes(), prefix->bytes());
  return Value(Text(self).Slice(found ? prefix->size() : 0, Text(self).size()));
}

absl::StatusOr<Value> RemoveSuffix(const Value& self,
                                   Bound args,
                                   Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* suffix,
                            StringArgument(args[0], "suffix"));
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(Text(self).size()));
  const bool found = HasSuffix(Text(self).bytes(), suffix->bytes());
  return Value(
      Text(self).Slice(0, Text(self).size() - (found ? suffix->size() : 0)));
}

absl::StatusOr<Value> ReplaceMethod(const Value& self,
                                    Bound args,
                                    Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* from,
                            StringArgument(args[0], "replace: old"));
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* to,
                            StringArgument(args[1], "replace: new"));
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t limit,
                            IntArgument(args[2], "replace: count", -1));
  if (from->empty()) return TemplateError("replace: old is empty");
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(Text(self).size()));
  SPECWIRE_ASSIGN_OR_RETURN(
      MarkedString result,
      Replace(Text(self), from->bytes(), *to, limit, budget));
  return Value(std::move(result));
}

// The place of the first occurrence, in characters, or -1.
absl::StatusOr<Value> FindText(const Value& self, Bound args, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* needle,
                            StringArgument(args[0], "find: sub"));
  const absl::string_view text = Text(self).bytes();
  SPECWIRE_RETURN_IF_ERROR(
      budget->Charge(text.size() * (2 + sizeof(size_t)) + needle->size()));
  const size_t at = FindBytes(text, needle->bytes(), 0);
  if (at == absl::string_view::npos) return Value(int64_t{-1});
  return Value(
      static_cast<int64_t>(CharacterOffsets(text.substr(0, at)).size()) - 1);
}

absl::StatusOr<Value> Count(const Value& self, Bound args, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* needle,
                            StringArgument(args[0], "count: sub"));
  if (needle->empty()) return TemplateError("count: sub is empty");
  SPECWIRE_ASSIGN_OR_RETURN(
      const auto pieces,
      Split(Text(self), needle->bytes(), /*limit=*/-1, budget));
  return Value(static_cast<int64_t>(pieces.size()) - 1);
}

absl::StatusOr<Value> JoinMethod(const Value& self,
                                 Bound args,
                                 Budget* budget) {
  if (args[0] == nullptr) return TemplateError("join: iterable is missing");
  return FindFilter("join")->apply(
      *args[0], std::vector<const Value*>{&self, nullptr}, budget);
}

absl::StatusOr<Value> Get(const Value& self, Bound args, Budget* budget) {
  SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* key,
                            StringArgument(args[0], "get: key"));
  SPECWIRE_RETURN_IF_ERROR(
      budget->Charge(self.AsDict()->items.size() * Budget::kBytesPerItem));
  if (const Value* value = self.AsDict()->Find(key->bytes())) return *value;
  return args[1] == nullptr ? Value(None()) : *args[1];
}

absl::StatusOr<Value> DictItems(const Value& self, Bound, Budget* budget) {
  return FindFilter("items")->apply(self, {}, budget);
}

absl::StatusOr<Value> Keys(const Value& self, Bound, Budget* budget) {
  return FindFilter("list")->apply(self, {}, budget);
}

absl::StatusOr<Value> Values(const Value& self, Bound, Budget* budget) {
  std::vector<Value> values;
  for (const auto& [key, value] : self.AsDict()->items) {
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(Budget::kBytesPerItem));
    values.push_back(value);
  }
  return Value::MakeList(std::move(values));
}

constexpr Builtin kTextMethods[] = {
    {"strip", Stripped<true, true>, "chars"},
    {"lstrip", Stripped<true, false>, "chars"},
    {"rstrip", Stripped<false, true>, "chars"},
    {"split", SplitMethod, "sep,maxsplit"},
    {"upper", Mapped<ToUpper>, ""},
    {"lower", Mapped<ToLower>, ""},
    {"capitalize", Mapped<Capitalize>, ""},
    {"title", Mapped<Title>, ""},
    {"startswith", HasAffix<HasPrefix>, "prefix"},
    {"endswith", HasAffix<HasSuffix>, "suffix"},
    {"removeprefix", RemovePrefix, "prefix"},
    {"removesuffix", RemoveSuffix, "suffix"},
    {"replace", ReplaceMethod, "old,new,count"},
    {"find", FindText, "sub"},
    {"count", Count, "sub"},
    {"join", JoinMethod, "iterable"},
};

constexpr Builtin kDictMethods[] = {
    {"get", Get, "key,default"},
    {"items", DictItems, ""},
    {"keys", Keys, ""},
    {"values", Values, ""},
};

}  // namespace

const Builtin* FindMethod(const Value& self, absl::string_view name) {
  if (self.AsString() != nullptr) return FindIn(kTextMethods, name);
  if (self.AsDict() != nullptr) return FindIn(kDictMethods, name);
  return nullptr;
}

}  // namespace specwire::jinja
