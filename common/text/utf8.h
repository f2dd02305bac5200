// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

constexpr char32_t kReplacementCharacter = 0xFFFD;

// What stands at the front of a text that should be UTF-8.
struct Utf8Step {
  enum class Kind {
    // A whole character.
    kCharacter,
    // A maximal subpart (Unicode, "best practice for U+FFFD"): bytes that no
    // continuation could have made a character.
    kMalformed,
    // The text ends inside of a character.
    kIncomplete,
  };
  Kind kind;
  // Number of bytes, 1 to 4.
  size_t length;
  // kReplacementCharacter unless kind is kCharacter.
  char32_t code_point;
};

// REQUIRES: !text.empty().
Utf8Step ReadUtf8(absl::string_view text);

// The bytes of the character at the front of `text`, or 1 where there is none:
// a malformed byte counts as a character of its own.
// REQUIRES: !text.empty().
size_t CharacterLength(absl::string_view text);

bool IsValidUtf8(absl::string_view text);

// REQUIRES: code_point <= 0x10FFFF and not a surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

// Appends `text` with one U+FFFD in place of each maximal subpart, an
// incomplete end included, as Python's errors="replace" does.
void AppendValidUtf8(absl::string_view text, std::string* out);

// White space as Python's str.isspace() has it: Unicode's White_Space and the
// separators U+001C to U+001F.
bool IsPythonSpace(char32_t code_point);

}  // namespace specwire
