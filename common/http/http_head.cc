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

bool TakeTargetHost(std::string* head, std::optional<std::string>* host) {
  host->reset();
  const absl::string_view line =
      absl::string_view(*head).substr(0, head->find('\n'));
  const size_t begin = std::min(line.find(' '), line.size());
  absl::string_view target = absl::StripLeadingAsciiWhitespace(
      absl::string_view(*head).substr(begin, line.size() - begin));
  target = target.substr(0, target.find_first_of(" \r"));
  size_t scheme = 0;
  for (const absl::string_view prefix : {"http://", "https://"}) {
    if (absl::StartsWithIgnoreCase(target, prefix)) scheme = prefix.size();
  }
  if (scheme == 0) return true;
  const size_t start = static_cast<size_t>(target.data() - head->data());
  target.remove_prefix(scheme);
  const absl::string_view authority =
      target.substr(0, target.find_first_of("/?#"));
  if (authority.empty() || authority.find('@') != absl::string_view::npos) {
    return false;
  }
  *host = std::string(authority);
  target.remove_prefix(authority.size());
  const bool has_path = absl::StartsWith(target, "/");
  head->erase(start, scheme + host->value().size());
  if (!has_path) head->insert(start, 1, '/');
  return true;
}

}  // namespace specwire
