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

std::optional<SpecialMatcher::Match> SpecialMatcher::Find(
    absl::string_view text, size_t begin, bool allow_control) const {
  while (begin < text.size()) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) {
      ++begin;
      continue;
    }
    std::optional<Match> longest;
    bool control = false;
    int32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      node = Child(node, text[end++]);
      if (node < 0) break;
      const Node& state = nodes_[static_cast<size_t>(node)];
      if (state.id < 0) continue;
      longest = {begin, end, state.id};
      control = state.control;
    }
    if (longest.has_value() && (allow_control || !control)) return longest;
    begin = longest.has_value() ? longest->end : begin + 1;
  }
  return std::nullopt;
}

}  // namespace specwire
