// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/text_functions.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace specwire::jinja {
namespace {

// Calls `visit` with the bounds of each character and its code point.
void ForEachCharacter(
    absl::string_view bytes,
    absl::FunctionRef<void(size_t begin, size_t end, char32_t code_point)>
        visit) {
  for (size_t begin = 0; begin < bytes.size();) {
    const absl::string_view rest = bytes.substr(begin);
    const size_t end = begin + CharacterLength(rest);
    visit(begin, end, ReadUtf8(rest).code_point);
    begin = end;
  }
}

char32_t Upper(char32_t c) {
  // In Python its capital is two letters; utf8proc has a rare one for it.
  if (c == 0xDF) return c;
  return static_cast<char32_t>(
      utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t Lower(char32_t c) {
  return static_cast<char32_t>(
      utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool IsCased(char32_t c) { return Upper(c) != c || Lower(c) != c; }

// The pieces of a text, each of which is charged for.
class Pieces {
 public:
  Pieces(const MarkedString& text, Budget* budget)
      : text_(text), budget_(budget) {}

  absl::Status Add(size_t begin, size_t end) {
    SPECWIRE_RETURN_IF_ERROR(
        budget_->Charge(end - begin + 4 * Budget::kBytesPerItem));
    pieces_.push_back(text_.Slice(begin, end));
    return absl::OkStatus();
  }
  std::vector<MarkedString> Take() { return std::move(pieces_); }

 private:
  const MarkedString& text_;
  Budget* const budget_;
  std::vector<MarkedString> pieces_;
};

}  // namespace

std::vector<size_t> CharacterOffsets(absl::string_view bytes) {
  std::vector<size_t> offsets;
  ForEachCharacter(
      bytes, [&](size_t begin, size_t, char32_t) { offsets.push_back(begin); });
  offsets.push_back(bytes.size());
  return offsets;
}

MarkedString Strip(const MarkedString& text,
                   const std::optional<absl::string_view>& characters,
                   bool left,
                   bool right) {
  // Characters are told apart by their bytes, so that malformed ones match
  // themselves only.
  absl::flat_hash_set<absl::string_view> set;
  if (characters.has_value()) {
    ForEachCharacter(*characters, [&](size_t begin, size_t end, char32_t) {
      set.insert(characters->substr(begin, end - begin));
    });
  }
  size_t first = text.size();
  size_t last = 0;
  ForEachCharacter(
      text.bytes(), [&](size_t begin, size_t end, char32_t code_point) {
        if (characters.has_value()
                ? set.contains(text.bytes().substr(begin, end - begin))
                : IsPythonSpace(code_point)) {
          return;
        }
        first = std::min(first, begin);
        last = end;
      });
  const size_t begin = left ? first : 0;
  const size_t end = right ? std::max(last, begin) : text.size();
  return text.Slice(begin, end);
}

size_t FindBytes(absl::string_view text,
                 absl::string_view needle,
                 size_t start) {
  if (start > text.size()) return absl::string_view::npos;
  // The C library's search is linear; the standard library's is not.
  const void* found = memmem(
      text.data() + start, text.size() - start, needle.data(), needle.size());
  if (found == nullptr) return absl::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

absl::StatusOr<std::vector<MarkedString>> Split(const MarkedString& text,
                                                absl::string_view separator,
                                                int64_t limit,
                                                Budget* budget) {
  Pieces pieces(text, budget);
  size_t begin = 0;
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    const size_t at = FindBytes(text.bytes(), separator, begin);
    if (at == absl::string_view::npos) break;
    SPECWIRE_RETURN_IF_ERROR(pieces.Add(begin, at));
    begin = at + separator.size();
  }
  SPECWIRE_RETURN_IF_ERROR(pieces.Add(begin, text.size()));
  return pieces.Take();
}

absl::StatusOr<std::vector<MarkedString>> SplitAtSpace(const MarkedString& text,
                                                       int64_t limit,
                                                       Budget* budget) {
  constexpr size_t kNone = absl::string_view::npos;
  Pieces pieces(text, budget);
  absl::Status status;
  // Where the word that is being read begins.
  size_t word = kNone;
  // The end of the last character that is not white space.
  size_t last = 0;
  int64_t count = 0;
  ForEachCharacter(
      text.bytes(), [&](size_t begin, size_t end, char32_t code_point) {
        const bool space = IsPythonSpace(code_point);
        if (!space) last = end;
        if (!space && word == kNone) word = begin;
        // Behind the last split the rest is one piece.
        if (!space || word == kNone || (limit >= 0 && count >= limit)) return;
        status.Update(pieces.Add(word, begin));
        word = kNone;
        ++count;
      });
  SPECWIRE_RETURN_IF_ERROR(status);
  if (word != kNone) {
    // With a limit Python keeps the white space at the end of the rest.
    const bool rest = limit >= 0 && count >= limit;
    SPECWIRE_RETURN_IF_ERROR(pieces.Add(word, rest ? text.size() : last));
  }
  return pieces.Take();
}

absl::StatusOr<MarkedString> Replace(const MarkedString& text,
                                     absl::string_view from,
                                     const MarkedString& to,
                                     int64_t limit,
                                     Budget* budget) {
  MarkedString result;
  size_t begin = 0;
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    const size_t at = FindBytes(text.bytes(), from, begin);
    if (at == absl::string_view::npos) break;
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(at - begin + to.size() + Budget::kBytesPerItem));
    result.AppendSlice(text, begin, at);
    result.Append(to);
    begin = at + from.size();
  }
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(text.size() - begin));
  result.AppendSlice(text, begin, text.size());
  return result;
}

MarkedString MapCharacters(const MarkedString& text,
                           absl::FunctionRef<char32_t(char32_t)> map) {
  MarkedString result;
  std::string mapped;
  text.ForEachRun([&](absl::string_view bytes, bool literal) {
    mapped.clear();
    ForEachCharacter(bytes, [&](size_t begin, size_t end, char32_t code_point) {
      const char32_t changed = map(code_point);
      if (changed == code_point) {
        mapped.append(bytes.data() + begin, end - begin);
      } else {
        AppendUtf8(changed, &mapped);
      }
    });
    result.Append(mapped, literal);
  });
  return result;
}

MarkedString ToUpper(const MarkedString& text) {
  return MapCharacters(text, Upper);
}

MarkedString ToLower(const MarkedString& text) {
  return MapCharacters(text, Lower);
}

MarkedString Capitalize(const MarkedString& text) {
  bool first = true;
  return MapCharacters(text, [&](char32_t c) {
    return std::exchange(first, false) ? Upper(c) : Lower(c);
  });
}

MarkedString Title(const MarkedString& text) {
  bool inside = false;
  return MapCharacters(text, [&](char32_t c) {
    const bool capital = !std::exchange(inside, IsCased(c));
    return capital ? Upper(c) : Lower(c);
  });
}

MarkedString TitleWords(const MarkedString& text) {
  bool start = true;
  return MapCharacters(text, [&](char32_t c) {
    const bool opens = IsPythonSpace(c) || c == '-' || c == '(' || c == '{' ||
                       c == '[' || c == '<';
    return std::exchange(start, opens) ? Upper(c) : Lower(c);
  });
}

}  // namespace specwire::jinja
