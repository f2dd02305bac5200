// SPDX-License-Identifier: Apache-2.0
#include "common/model/prefix_index.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace specwire {

PrefixIndex::PrefixIndex(int32_t num_blocks, Hash hash)
    : hash_(hash),
      nodes_(static_cast<size_t>(num_blocks)),
      buckets_(std::max<size_t>(nodes_.size(), 1), kNone) {}

size_t PrefixIndex::GoodHash(size_t parent,
                             absl::string_view salt,
                             absl::Span<const int32_t> tokens) {
  return absl::HashOf(parent, salt, tokens);
}

size_t PrefixIndex::HashOf(int32_t parent,
                           absl::string_view salt,
                           absl::Span<const int32_t> tokens) const {
  return parent == kNone ? hash_(0, salt, tokens)
                         : hash_(NodeOf(parent).hash, "", tokens);
}

int32_t PrefixIndex::Find(int32_t parent,
                          absl::string_view salt,
                          absl::Span<const int32_t> tokens) const {
  const size_t hash = HashOf(parent, salt, tokens);
  for (int32_t block = buckets_[BucketOf(hash)]; block != kNone;
       block = NodeOf(block).next) {
    const Node& node = NodeOf(block);
    if (node.hash == hash && node.parent == parent &&
        absl::MakeConstSpan(node.tokens) == tokens &&
        (parent != kNone || node.salt == salt)) {
      return block;
    }
  }
  return kNone;
}

void PrefixIndex::Insert(int32_t block,
                         int32_t parent,
                         absl::string_view salt,
                         absl::Span<const int32_t> tokens) {
  Node& node = NodeOf(block);
  node.is_entry = true;
  node.hash = HashOf(parent, salt, tokens);
  node.tokens.assign(tokens.begin(), tokens.end());
  if (parent == kNone) {
    node.salt.assign(salt.data(), salt.size());
  } else {
    Node& above = NodeOf(parent);
    node.next_sibling = above.first_child;
    if (above.first_child != kNone) {
      NodeOf(above.first_child).previous_sibling = block;
    }
    above.first_child = block;
  }
  node.parent = parent;
  int32_t& bucket = buckets_[BucketOf(node.hash)];
  node.next = bucket;
  bucket = block;
  ++size_;
}

void PrefixIndex::Remove(int32_t block,
                         absl::FunctionRef<void(int32_t block)> orphaned) {
  for (int32_t at = block;;) {
    while (NodeOf(at).first_child != kNone) at = NodeOf(at).first_child;
    const int32_t parent = NodeOf(at).parent;
    RemoveLeaf(at);
    if (at == block) return;
    orphaned(at);
    at = parent;
  }
}

void PrefixIndex::RemoveLeaf(int32_t block) {
  Node& node = NodeOf(block);
  int32_t* link = &buckets_[BucketOf(node.hash)];
  while (*link != block) link = &NodeOf(*link).next;
  *link = node.next;
  if (node.previous_sibling != kNone) {
    NodeOf(node.previous_sibling).next_sibling = node.next_sibling;
  } else if (node.parent != kNone) {
    NodeOf(node.parent).first_child = node.next_sibling;
  }
  if (node.next_sibling != kNone) {
    NodeOf(node.next_sibling).previous_sibling = node.previous_sibling;
  }
  node = Node();
  --size_;
}

}  // namespace specwire
