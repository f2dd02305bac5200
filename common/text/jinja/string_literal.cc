// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/string_literal.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/text/utf8.h"

namespace specwire::jinja {
namespace {

// Reads `digits` hexadecimal digits at the front of `rest`.
bool TakeHex(absl::string_view* rest, size_t digits, std::string* value) {
  uint32_t code_point = 0;
  const absl::string_view text = rest->substr(0, digits);
  for (const char c : text) {
    if (!absl::ascii_isxdigit(c)) return false;
  }
  if (text.size() != digits || !absl::SimpleHexAtoi(text, &code_point) ||
      code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    return false;
  }
  AppendUtf8(code_point, value);
  rest->remove_prefix(digits);
  return true;
}

// Up to three octal digits, the first of which is `first`.
void TakeOctal(char first, absl::string_view* rest, std::string* value) {
  char32_t code_point = static_cast<char32_t>(first - '0');
  for (int i = 0; i < 2 && !rest->empty(); ++i) {
    const char digit = rest->front();
    if (digit < '0' || digit > '7') break;
    code_point = code_point * 8 + static_cast<char32_t>(digit - '0');
    rest->remove_prefix(1);
  }
  AppendUtf8(code_point, value);
}

// One of the escapes of one character; 0 if there is none of that name.
char SimpleEscape(char name) {
  switch (name) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
      return '\\';
    case '\'':
      return '\'';
    case '"':
      return '"';
    default:
      return 0;
  }
}

}  // namespace

bool UnescapeString(absl::string_view source, std::string* value) {
  value->clear();
  while (!source.empty()) {
    const char c = source.front();
    source.remove_prefix(1);
    if (c != '\\') {
      value->push_back(c);
      continue;
    }
    if (source.empty()) return false;
    const char name = source.front();
    source.remove_prefix(1);
    if (const char simple = SimpleEscape(name); simple != 0) {
      value->push_back(simple);
    } else if (name == 'x' || name == 'u' || name == 'U') {
      const size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : 8;
      if (!TakeHex(&source, digits, value)) return false;
    } else if (name >= '0' && name <= '7') {
      TakeOctal(name, &source, value);
    } else if (name == 'N') {
      return false;
    } else if (name != '\n') {
      value->push_back('\\');
      value->push_back(name);
    }
  }
  return true;
}

}  // namespace specwire::jinja
