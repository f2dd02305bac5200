// SPDX-License-Identifier: Apache-2.0
#include "common/text/special_matcher.h"

namespace specwire {
namespace {

uint64_t EdgeKey(int32_t node, char byte) {
  return (static_cast<uint64_t>(node) << 8) | static_cast<uint8_t>(byte);
}

}  // namespace

SpecialMatcher::SpecialMatcher() : nodes_(1) {}

int32_t SpecialMatcher::Child(int32_t node, char byte) const {
  const auto it = edges_.find(EdgeKey(node, byte));
  return it == edges_.end() ? -1 : it->second;
}

void SpecialMatcher::Add(absl::string_view text, int32_t id, bool control) {
  int32_t node = 0;
  for (const char byte : text) {
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.emplace(EdgeKey(node, byte), child);
    }
    node = child;
  }
  starts_[static_cast<uint8_t>(text[0])] = true;
  Node& end = nodes_[static_cast<size_t>(node)];
  if (end.id < 0) end = {id, control};
}

std::optional<SpecialMatcher::Found> SpecialMatcher::Longest(
    absl::string_view text,
    size_t begin,
    size_t end,
    absl::FunctionRef<bool(size_t)> may_reach) const {
  std::optional<Found> longest;
  int32_t node = 0;
  for (size_t at = begin; at < text.size();) {
    node = Child(node, text[at++]);
    if (node < 0) break;
    const Node& state = nodes_[static_cast<size_t>(node)];
    if (state.id < 0) continue;
    if (at > end && (state.control || !may_reach(at))) continue;
    longest = {{begin, at, state.id}, state.control};
  }
  return longest;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::Find(
    absl::string_view text,
    size_t begin,
    size_t end,
    bool allow_control,
    absl::FunctionRef<bool(size_t)> may_reach) const {
  while (begin < end) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) {
      ++begin;
      continue;
    }
    const auto longest = Longest(text, begin, end, may_reach);
    if (longest.has_value() && (allow_control || !longest->control)) {
      return longest->match;
    }
    begin = longest.has_value() ? longest->match.end : begin + 1;
  }
  return std::nullopt;
}

bool SpecialMatcher::IsControl(absl::string_view text) const {
  const auto longest =
      Longest(text, 0, text.size(), [](size_t) { return false; });
  return longest.has_value() && longest->control &&
         longest->match.end == text.size();
}

bool SpecialMatcher::BeginsWithControl(absl::string_view text) const {
  const auto longest =
      Longest(text, 0, text.size(), [](size_t) { return false; });
  return longest.has_value() && longest->control;
}

}  // namespace specwire
