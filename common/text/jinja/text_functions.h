// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_string.h"

namespace specwire::jinja {

// Python's str methods on marked strings; every byte of a result keeps the mark
// that it had. Characters are code points; a malformed byte is a character.
// Callers charge the budget for the strings that they hand in, these functions
// for what they make.

// The offset of each character, and the size at the end.
std::vector<size_t> CharacterOffsets(absl::string_view bytes);

// Takes the characters in `characters` (white space if nullopt) off the ends.
MarkedString Strip(const MarkedString& text,
                   const std::optional<absl::string_view>& characters,
                   bool left,
                   bool right);

// Splits at `separator`, at most `limit` times if that is not negative.
// REQUIRES: !separator.empty().
absl::StatusOr<std::vector<MarkedString>> Split(const MarkedString& text,
                                                absl::string_view separator,
                                                int64_t limit,
                                                Budget* budget);
// Splits at runs of white space, of which the ends' are dropped.
absl::StatusOr<std::vector<MarkedString>> SplitAtSpace(const MarkedString& text,
                                                       int64_t limit,
                                                       Budget* budget);

// REQUIRES: !from.empty().
absl::StatusOr<MarkedString> Replace(const MarkedString& text,
                                     absl::string_view from,
                                     const MarkedString& to,
                                     int64_t limit,
                                     Budget* budget);

// Where `needle` begins first, at or after `start`; npos if nowhere. Linear.
size_t FindBytes(absl::string_view text,
                 absl::string_view needle,
                 size_t start);

// Each character as `map` has it. Characters that change into several, such as
// the capital of U+00DF, are not handled.
MarkedString MapCharacters(const MarkedString& text,
                           absl::FunctionRef<char32_t(char32_t)> map);
MarkedString ToUpper(const MarkedString& text);
MarkedString ToLower(const MarkedString& text);
MarkedString Capitalize(const MarkedString& text);
// Capitals after each character that is not a letter, as str.title() does.
MarkedString Title(const MarkedString& text);
// Capitals after white space and opening brackets, as the filter does.
MarkedString TitleWords(const MarkedString& text);

}  // namespace specwire::jinja
