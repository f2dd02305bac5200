// SPDX-License-Identifier: Apache-2.0
#include "common/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "common/text/utf8.h"

namespace specwire {
namespace {

void AppendDecomposed(char32_t code_point, std::vector<utf8proc_int32_t>* out) {
  // No canonical decomposition is longer than four characters.
  utf8proc_int32_t buffer[8];
  int boundary = 0;
  const auto length = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point),
      buffer,
      8,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
      &boundary);
  if (length < 1 || length > 8) {
    out->push_back(static_cast<utf8proc_int32_t>(code_point));
    return;
  }
  out->insert(out->end(), buffer, buffer + length);
}

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// utf8proc's own ordering swaps neighbours and is quadratic in a run of marks,
// which a prompt can make as long as it likes.
void OrderCombiningMarks(std::vector<utf8proc_int32_t>* text) {
  auto begin = text->begin();
  while (begin != text->end()) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text->end(), [](auto code_point) {
      return CombiningClass(code_point) == 0;
    });
    std::stable_sort(begin, end, [](auto a, auto b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

// Composes what has been decomposed and appends it.
void Flush(std::vector<utf8proc_int32_t>* text, std::string* out) {
  OrderCombiningMarks(text);
  const auto length = utf8proc_normalize_utf32(
      text->data(),
      static_cast<utf8proc_ssize_t>(text->size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>((*text)[static_cast<size_t>(i)]), out);
  }
  text->clear();
}

}  // namespace

std::string ToNfc(absl::string_view text) {
  // Nothing below U+0300 composes with anything but a mark from there on, so
  // most texts are done here.
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0xCC;
  });
  if (plain) return std::string(text);
  std::string out;
  std::vector<utf8proc_int32_t> decomposed;
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (step.kind == Utf8Step::Kind::kCharacter) {
      AppendDecomposed(step.code_point, &decomposed);
      text.remove_prefix(step.length);
      continue;
    }
    Flush(&decomposed, &out);
    out.append(text.data(), step.length);
    text.remove_prefix(step.length);
  }
  Flush(&decomposed, &out);
  return out;
}

}  // namespace specwire
