// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_line.h"

#include "absl/strings/ascii.h"

namespace specwire::cli {

ChatLine ParseChatLine(absl::string_view line) {
  using Kind = ChatLine::Kind;
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (text.empty()) return {Kind::kEmpty, ""};
  if (text[0] != '/') return {Kind::kMessage, std::string(text)};
  if (text.substr(0, 2) == "//") {
    return {Kind::kMessage, std::string(text.substr(1))};
  }
  if (text == "/help") return {Kind::kHelp, ""};
  if (text == "/new") return {Kind::kNew, ""};
  if (text == "/quit" || text == "/exit") return {Kind::kQuit, ""};
  return {Kind::kUnknown,
          std::string(text.substr(0, text.find_first_of(" \t\v\f\r")))};
}

}  // namespace specwire::cli
