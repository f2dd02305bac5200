// SPDX-License-Identifier: Apache-2.0
#include "cli/token_printer.h"

#include <algorithm>

#include "common/text/printable.h"

namespace specwire::cli {

Marks MarksFromName(absl::string_view name, bool is_terminal) {
  if (name == "color") {
    return Marks::kColor;
  }
  if (name == "brackets") {
    return Marks::kBrackets;
  }
  return name == "auto" && is_terminal ? Marks::kColor : Marks::kNone;
}

size_t PieceEnd(absl::string_view text, int32_t told) {
  size_t end =
      std::min(static_cast<size_t>(std::max<int32_t>(told, 0)), text.size());
  while (end < text.size() &&
         (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) {
    ++end;
  }
  return end;
}

bool TokenPrinter::Print(const v1::GenerateDelta& delta) {
  const absl::string_view text = delta.text();
  size_t start = 0;
  const int count = std::min(delta.text_ends_size(), delta.origins_size());
  for (int i = 0; i < count; ++i) {
    const size_t end = PieceEnd(text, delta.text_ends(i));
    if (end > start) {
      Append(text.substr(start, end - start),
             delta.origins(i) == v1::TOKEN_ORIGIN_DRAFT);
      start = end;
    }
  }
  if (start < text.size()) {
    Append(text.substr(start), false);
  }
  return Flush();
}

bool TokenPrinter::PrintPlain(absl::string_view text) {
  if (!text.empty()) Append(text, false);
  return Flush();
}

bool TokenPrinter::Finish(absl::string_view text) {
  if (!text.empty()) {
    Append(text, false);
  }
  SetAccepted(false);
  if (last_ != '\n') {
    pending_ += '\n';
  }
  return Flush();
}

void TokenPrinter::Append(absl::string_view text, bool accepted) {
  SetAccepted(accepted);
  if (is_terminal_) {
    pending_ += Printable(text, "\n\t");
  } else {
    pending_.append(text.data(), text.size());
  }
  last_ = text.back();
}

void TokenPrinter::SetAccepted(bool accepted) {
  if (accepted == accepted_) {
    return;
  }
  accepted_ = accepted;
  if (marks_ == Marks::kColor) {
    pending_ += accepted ? "\033[4;32m" : "\033[0m";
  } else if (marks_ == Marks::kBrackets) {
    pending_ += accepted ? '[' : ']';
    last_ = ']';
  }
}

bool TokenPrinter::Flush() {
  const bool written = std::fwrite(pending_.data(), 1, pending_.size(), out_) ==
                           pending_.size() &&
                       std::fflush(out_) == 0;
  pending_.clear();
  return written;
}

}  // namespace specwire::cli
