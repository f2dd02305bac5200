// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/block_pool.h"
#include "common/model/engine.h"
#include "common/model/prefix_index.h"

namespace specwire {

// Positions in one KV block.
inline constexpr int kKvBlockSize = 16;

class PagedSequence;

// Which blocks hold which positions of which sequence, and which full blocks
// later sequences of the same prefix may take over. Keys and values themselves
// belong to the operations (Ops), which address them by block number.
//
// Thread safety: one thread, the engine's; the pool's gauges from any thread.
class KvCache {
 public:
  // Called with positions whose contents no longer count: those of `block` from
  // `slot` on. What the prefix cache keeps still counts.
  using Release = std::function<void(int32_t block, int slot)>;

  // `release` may be empty.
  KvCache(int32_t num_blocks, Release release)
      : pool_(num_blocks, [this](int32_t block) { Forget(block); }),
        index_(num_blocks),
        release_(std::move(release)) {}

  std::unique_ptr<PagedSequence> NewSequence();

  const BlockPool& pool() const { return pool_; }
  const PrefixIndex& index() const { return index_; }

 private:
  friend class PagedSequence;

  // One holder of a block less.
  void Drop(int32_t block);
  // Removes a block from the index, with all that stands on it: nobody could
  // find that any more. REQUIRES: no other block of the tree below is held.
  void Unindex(int32_t block);
  // An evicted block's.
  void Forget(int32_t block);
  void Released(int32_t block, int slot) {
    if (release_ != nullptr) release_(block, slot);
  }

  BlockPool pool_;
  PrefixIndex index_;
  const Release release_;
};

// A sequence as a table of blocks: position p lies in blocks()[p / 16], slot
// p % 16.
//
// One that reuses prefixes holds, as its first blocks, entries of the index,
// each the child of the one before; others may hold these too. So whoever holds
// an entry holds its ancestors, and the ancestors are let go last.
//
// Thread safety: the engine's thread only.
// Lifetime: must not outlive the KvCache that made it.
class PagedSequence final : public KvSequence {
 public:
  explicit PagedSequence(KvCache* cache) : cache_(cache) {}
  ~PagedSequence() override;
  PagedSequence(const PagedSequence&) = delete;
  PagedSequence& operator=(const PagedSequence&) = delete;

  int length() const override { return length_; }
  void Truncate(int length) override;
  int ReusePrefix(absl::string_view salt,
                  absl::Span<const int32_t> tokens) override;

  const KvCache* cache() const { return cache_; }
  absl::Span<const int32_t> blocks() const { return blocks_; }

  // Offers the full blocks to other sequences, if this one called ReusePrefix.
  // Where an equal one is offered already, that one is held instead. To be
  // called when what is cached has been settled: later than a rejected draft
  // token's Truncate.
  void Offer();

  // Blocks that `count` more positions need beyond those held.
  int BlocksFor(int count) const;

  // Takes blocks for `count` more positions, which do not count before
  // Advance; returns false and changes nothing if the pool has too few.
  [[nodiscard]] bool Reserve(int count);

  // Counts reserved positions as cached: those of `tokens`.
  // REQUIRES: they are reserved.
  void Advance(absl::Span<const int32_t> tokens);

  // Gives back what is reserved and does not count.
  void Unreserve() { ReleaseFrom(length_); }

 private:
  // Returns the blocks that hold no position below `length`.
  // REQUIRES: length does not cut a block of the index.
  void ReleaseFrom(int length);

  KvCache* const cache_;
  std::vector<int32_t> blocks_;
  int length_ = 0;
  // Since ReusePrefix: the salt, the tokens of all cached positions, and how
  // many blocks are in the index.
  bool shares_ = false;
  std::string salt_;
  std::vector<int32_t> tokens_;
  size_t num_indexed_ = 0;
};

}  // namespace specwire
