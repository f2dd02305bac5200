// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace specwire {

// Finds the KV block that holds given tokens behind a given prefix. Entries
// form trees: one for each block, below the entry of the block before it, with
// the salt at the root. An entry is found by a hash that is chained from block
// to block, and taken only if its parent is the very one asked for and its
// tokens (and salt, at the root) are equal. So, block by block, the whole
// prefix is equal, whatever the hashes are.
//
// An entry never outlives its parent. There is at most one for each block of
// the pool, which bounds the memory.
//
// Thread safety: one thread, the engine's.
class PrefixIndex {
 public:
  // No block, or the place of a root's parent.
  static constexpr int32_t kNone = -1;

  // The hash of tokens behind a prefix whose hash is `parent`; `salt` is empty
  // below the root.
  using Hash = size_t (*)(size_t parent,
                          absl::string_view salt,
                          absl::Span<const int32_t> tokens);

  // For blocks numbered from 0. Tests give a poor `hash`.
  // REQUIRES: num_blocks >= 0.
  explicit PrefixIndex(int32_t num_blocks, Hash hash = &GoodHash);

  // The block that holds `tokens` behind the block `parent`; kNone if there is
  // none. Only a root's salt counts, since it decides all below it.
  // REQUIRES: parent is kNone or has an entry.
  int32_t Find(int32_t parent,
               absl::string_view salt,
               absl::Span<const int32_t> tokens) const;

  // REQUIRES: as Find, which returns kNone; `block` has no entry.
  void Insert(int32_t block,
              int32_t parent,
              absl::string_view salt,
              absl::Span<const int32_t> tokens);

  // Removes a block's entry and all below it. `orphaned` is called with each of
  // the latter, children before parents.
  // REQUIRES: the block has an entry.
  void Remove(int32_t block, absl::FunctionRef<void(int32_t block)> orphaned);

  bool Contains(int32_t block) const { return NodeOf(block).is_entry; }
  // Number of entries.
  size_t size() const { return size_; }

 private:
  struct Node {
    bool is_entry = false;
    size_t hash = 0;
    std::vector<int32_t> tokens;
    std::string salt;  // of a root
    int32_t parent = kNone;
    int32_t first_child = kNone;
    int32_t next_sibling = kNone;
    int32_t previous_sibling = kNone;
    // The next entry whose hash leads to the same bucket.
    int32_t next = kNone;
  };

  Node& NodeOf(int32_t block) { return nodes_[static_cast<size_t>(block)]; }
  const Node& NodeOf(int32_t block) const {
    return nodes_[static_cast<size_t>(block)];
  }
  static size_t GoodHash(size_t parent,
                         absl::string_view salt,
                         absl::Span<const int32_t> tokens);
  size_t HashOf(int32_t parent,
                absl::string_view salt,
                absl::Span<const int32_t> tokens) const;
  size_t BucketOf(size_t hash) const { return hash % buckets_.size(); }
  // REQUIRES: the block has no child.
  void RemoveLeaf(int32_t block);

  const Hash hash_;
  std::vector<Node> nodes_;       // by block
  std::vector<int32_t> buckets_;  // first entry of each; kNone if empty
  size_t size_ = 0;
};

}  // namespace specwire
