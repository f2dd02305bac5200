// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix_trie.h"

#include <algorithm>

namespace specwire {
namespace {

uint64_t Key(int32_t parent, int32_t token) {
  return static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 |
         static_cast<uint32_t>(token);
}

}  // namespace

int32_t SuffixTrie::Child(int32_t parent, int32_t token) const {
  const Node& node = nodes_[static_cast<size_t>(parent)];
  if (node.best < 0) return -1;
  const Node& best = nodes_[static_cast<size_t>(node.best)];
  if (best.token == token) return node.best;
  // It has no siblings.
  if (best.count == node.total) return -1;
  const auto it = siblings_.find(Key(parent, token));
  return it == siblings_.end() ? -1 : it->second;
}

int32_t SuffixTrie::ChildOrNew(int32_t parent, int32_t token) {
  int32_t child = Child(parent, token);
  if (child >= 0) return child;
  child = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({.token = token});
  const Node& node = nodes_[static_cast<size_t>(parent)];
  if (node.best >= 0) {
    const Node& best = nodes_[static_cast<size_t>(node.best)];
    if (best.count == node.total) {
      siblings_.emplace(Key(parent, best.token), node.best);
    }
    siblings_.emplace(Key(parent, token), child);
  }
  return child;
}

void SuffixTrie::Add(Place* place, int32_t token) {
  std::array<int32_t, kDepth + 1> next = {};
  for (int depth = 0; depth <= place->depth; ++depth) {
    const int32_t parent = place->nodes[static_cast<size_t>(depth)];
    const int32_t child = ChildOrNew(parent, token);
    Node& node = nodes_[static_cast<size_t>(parent)];
    const int32_t count = ++nodes_[static_cast<size_t>(child)].count;
    ++node.total;
    if (node.best < 0 ||
        count >= nodes_[static_cast<size_t>(node.best)].count) {
      node.best = child;
    }
    if (depth < kDepth) next[static_cast<size_t>(depth) + 1] = child;
  }
  place->nodes = next;
  place->depth = std::min(place->depth + 1, kDepth);
  UpdateMatchLength(place);
  ++num_tokens_;
}

void SuffixTrie::Move(Place* place, int32_t token) const {
  std::array<int32_t, kDepth + 1> next = {};
  int depth = 0;
  // What does not occur behind the shorter context does not behind the longer.
  while (depth < kDepth && depth <= place->depth) {
    const int32_t child =
        Child(place->nodes[static_cast<size_t>(depth)], token);
    if (child < 0) break;
    next[static_cast<size_t>(++depth)] = child;
  }
  place->nodes = next;
  place->depth = depth;
  UpdateMatchLength(place);
}

SuffixTrie::Place SuffixTrie::Find(absl::Span<const int32_t> tokens) const {
  Place place;
  const size_t size = std::min(tokens.size(), static_cast<size_t>(kDepth));
  for (const int32_t token : tokens.last(size)) Move(&place, token);
  return place;
}

std::optional<SuffixTrie::Next> SuffixTrie::MostFrequent(const Place& place,
                                                         int depth) const {
  const Node& node =
      nodes_[static_cast<size_t>(place.nodes[static_cast<size_t>(depth)])];
  if (node.best < 0) return std::nullopt;
  const Node& best = nodes_[static_cast<size_t>(node.best)];
  return Next{.token = best.token, .count = best.count, .total = node.total};
}

int SuffixTrie::LongestMatch(const Place& place) const {
  int depth = place.depth;
  while (depth >= 0 &&
         nodes_[static_cast<size_t>(place.nodes[static_cast<size_t>(depth)])]
                 .total == 0) {
    --depth;
  }
  return depth;
}

void SuffixTrie::UpdateMatchLength(Place* place) const {
  const int longest = std::max(LongestMatch(*place), 0);
  place->match_length =
      longest == kDepth ? std::max(kDepth, place->match_length + 1) : longest;
}

size_t SuffixTrie::num_bytes() const {
  return nodes_.capacity() * sizeof(Node) +
         siblings_.capacity() * (sizeof(std::pair<uint64_t, int32_t>) + 1);
}

}  // namespace specwire
