// SPDX-License-Identifier: Apache-2.0
#include "cli/token_printer.h"

#include <algorithm>

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

bool TokenPrinter::Print(const v1::GenerateDelta& delta) {
  const absl::string_view text = delta.text();
  size_t start = 0;
  const int count = std::min(delta.text_ends_size(), delta.origins_size());
  for (int i = 0; i < count; ++i) {
    const int32_t told = std::max<int32_t>(delta.text_ends(i), 0);
    const size_t end = std::min(static_cast<size_t>(told), text.size());
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
  for (char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (is_terminal_ && control && c != '\n' && c != '\t') {
      pending_ += "\xef\xbf\xbd";
    } else {
      pending_ += c;
    }
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
