// SPDX-License-Identifier: Apache-2.0
#include "common/text/utf8.h"

#include <cstdint>

namespace specwire {
namespace {

using Kind = Utf8Step::Kind;

// What a lead byte promises: the number of bytes that follow, and the range of
// the first of them (Unicode 15, table 3-7). The others are 80 to BF.
struct Lead {
  size_t following;
  uint8_t low;
  uint8_t high;
};

// following is 0 for a byte that starts no character of several bytes.
Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step ReadUtf8(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Kind::kCharacter, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.following == 0) return {Kind::kMalformed, 1, kReplacementCharacter};
  // 1F, 0F and 07 for two, three and four bytes.
  char32_t code_point = first & (0x3Fu >> lead.following);
  for (size_t i = 1; i <= lead.following; ++i) {
    if (i >= text.size()) {
      return {Kind::kIncomplete, text.size(), kReplacementCharacter};
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) {
      return {Kind::kMalformed, i, kReplacementCharacter};
    }
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Kind::kCharacter, lead.following + 1, code_point};
}

size_t CharacterLength(absl::string_view text) {
  const Utf8Step step = ReadUtf8(text);
  return step.kind == Kind::kCharacter ? step.length : 1;
}

bool IsValidUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (step.kind != Kind::kCharacter) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

void AppendValidUtf8(absl::string_view text, std::string* out) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (step.kind == Kind::kCharacter) {
      out->append(text.data(), step.length);
    } else {
      AppendUtf8(kReplacementCharacter, out);
    }
    text.remove_prefix(step.length);
  }
}

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace specwire
