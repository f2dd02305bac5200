// SPDX-License-Identifier: Apache-2.0
#include "common/text/printable.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

// Bytes of an error that are kept at either end.
constexpr size_t kErrorHead = 1200;
constexpr size_t kErrorTail = 600;

bool IsWithin(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

bool StartsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
}

void AppendEscaped(char32_t code_point, std::string* out) {
  switch (code_point) {
    case '\n':
      out->append("\\n");
      break;
    case '\r':
      out->append("\\r");
      break;
    case '\t':
      out->append("\\t");
      break;
    default:
      if (code_point < 0x80) {
        absl::StrAppendFormat(
            out, "\\x%02x", static_cast<unsigned>(code_point));
      } else {
        absl::StrAppendFormat(
            out, "\\u%04x", static_cast<unsigned>(code_point));
      }
  }
}

}  // namespace

bool SteersTerminal(char32_t c) {
  return c < 0x20 || IsWithin(c, 0x7F, 0x9F) || c == 0x061C || c == 0x200E ||
         c == 0x200F || IsWithin(c, 0x2028, 0x202E) ||
         IsWithin(c, 0x2066, 0x206F);
}

std::string Printable(absl::string_view text, absl::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    const absl::string_view bytes = text.substr(0, step.length);
    text.remove_prefix(step.length);
    if (step.kind != Utf8Step::Kind::kCharacter) {
      for (const char byte : bytes) {
        absl::StrAppendFormat(
            &out, "\\x%02x", static_cast<unsigned char>(byte));
      }
    } else if (SteersTerminal(step.code_point) &&
               kept.find(bytes) == absl::string_view::npos) {
      AppendEscaped(step.code_point, &out);
    } else {
      absl::StrAppend(&out, bytes);
    }
  }
  return out;
}

std::string ErrorLine(absl::string_view message) {
  std::string line = Printable(
      absl::StrReplaceAll(message, {{"\r\n", " "}, {"\n", " "}, {"\r", " "}}));
  if (line.size() <= kErrorHead + kErrorTail) return line;
  size_t head = kErrorHead;
  while (!StartsCharacter(line[head])) --head;
  size_t tail = line.size() - kErrorTail;
  while (!StartsCharacter(line[tail])) ++tail;
  return absl::StrCat(line.substr(0, head), " [...] ", line.substr(tail));
}

}  // namespace specwire
