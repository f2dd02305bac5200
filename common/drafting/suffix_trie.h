// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace specwire {

// Counts which token came how often after which of the last tokens, of none up
// to kDepth of them: a suffix tree cut off at that depth. Tokens are only ever
// added.
//
// Memory: at most kDepth + 1 nodes of 16 bytes for each token, and an entry of
// a hash table for each node that has siblings.
//
// Thread safety: as a container.
class SuffixTrie {
 public:
  // Longest context. Longer ones hardly ever disagree with it.
  static constexpr int kDepth = 8;

  // Where a text stands in a trie: the nodes of its last tokens. It stays valid
  // as the trie grows, but does not know what was added to the trie elsewhere.
  struct Place {
    // Of the last 0, 1, ... depth tokens.
    std::array<int32_t, kDepth + 1> nodes = {};
    int depth = 0;
    // How many of the last tokens occurred before with something behind them;
    // beyond kDepth an estimate, the number of tokens in a row whose contexts
    // all did.
    int match_length = 0;
  };

  // What came next most often.
  struct Next {
    int32_t token = 0;
    // How often it did, and how often anything came next.
    int32_t count = 0;
    int32_t total = 0;
  };

  SuffixTrie() : nodes_(1) {}

  // Adds a token behind `place` and moves that behind it.
  void Add(Place* place, int32_t token);
  // Moves the place behind a token that is not added.
  void Move(Place* place, int32_t token) const;
  // Where a text stands that ends with `tokens`, of which the last kDepth
  // count.
  Place Find(absl::Span<const int32_t> tokens) const;

  // What came next most often behind the last `depth` tokens; of equally
  // frequent ones the latest. None if nothing did. REQUIRES: 0 <= depth <=
  // place.depth.
  std::optional<Next> MostFrequent(const Place& place, int depth) const;
  // Most of the last tokens behind which something came; -1: the trie is empty.
  int LongestMatch(const Place& place) const;

  size_t num_tokens() const { return num_tokens_; }
  // Bytes that it occupies, about.
  size_t num_bytes() const;

 private:
  struct Node {
    int32_t token = -1;
    // Occurrences, and those with something behind them.
    int32_t count = 0;
    int32_t total = 0;
    // The most frequent child.
    int32_t best = -1;
  };

  // The child of a node with this token; -1: none.
  int32_t Child(int32_t parent, int32_t token) const;
  int32_t ChildOrNew(int32_t parent, int32_t token);
  void UpdateMatchLength(Place* place) const;

  std::vector<Node> nodes_;
  // The children of nodes that have more than one, by parent and token. One
  // that is alone is its parent's best.
  absl::flat_hash_map<uint64_t, int32_t> siblings_;
  size_t num_tokens_ = 0;
};

}  // namespace specwire
