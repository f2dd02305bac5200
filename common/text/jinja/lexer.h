// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire::jinja {

enum class TokenKind {
  kText,         // text between tags, white space already trimmed
  kOpenTag,      // {%
  kCloseTag,     // %}
  kOpenOutput,   // {{
  kCloseOutput,  // }}
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  // The text, name, operator, or string's value.
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// Cuts a template into tokens, the last of which is kEnd. White space around
// tags is treated as chat templates expect: trim_blocks and lstrip_blocks on,
// `-` and `+` at the tags' edges, one newline dropped at the template's end.
// INVALID_ARGUMENT, naming the line, where the source is malformed.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace specwire::jinja
