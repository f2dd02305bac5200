// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace specwire {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";

bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("!#$%&'*+-.^_`|~").find(c) !=
             absl::string_view::npos;
}

bool IsValueCharacter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= ' ' && byte != 0x7f);
}

}  // namespace

std::optional<std::vector<std::pair<std::string, std::string>>> ParseHeaders(
    absl::string_view head) {
  std::vector<std::pair<std::string, std::string>> headers;
  for (bool first = true;; first = false) {
    const size_t end = head.find(kLineEnd);
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view line = head.substr(0, end);
    head.remove_prefix(end + kLineEnd.size());
    if (line.empty()) break;
    if (!std::all_of(line.begin(), line.end(), IsValueCharacter)) {
      return std::nullopt;
    }
    if (first) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return std::nullopt;
    const absl::string_view name = line.substr(0, colon);
    if (name.empty() ||
        !std::all_of(name.begin(), name.end(), IsTokenCharacter)) {
      return std::nullopt;
    }
    headers.emplace_back(
        std::string(name),
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))));
  }
  if (!head.empty()) return std::nullopt;
  return headers;
}

}  // namespace specwire
