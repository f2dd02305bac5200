// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/model/block_pool.h"
#include "common/model/engine.h"

namespace specwire {

// Positions in one KV block.
inline constexpr int kKvBlockSize = 16;

class PagedSequence;

// Which blocks hold which positions of which sequence. Keys and values
// themselves belong to the operations (Ops), which address them by block
// number.
//
// Thread safety: one thread, the engine's; the pool's gauges from any thread.
class KvCache {
 public:
  // Called with positions whose contents no longer count: those of `block` from
  // `slot` on.
  using Release = std::function<void(int32_t block, int slot)>;

  // `release` may be empty.
  KvCache(int32_t num_blocks, Release release)
      : pool_(num_blocks), release_(std::move(release)) {}

  std::unique_ptr<PagedSequence> NewSequence();

  const BlockPool& pool() const { return pool_; }

 private:
  friend class PagedSequence;

  BlockPool pool_;
  const Release release_;
};

// A sequence as a table of blocks: position p lies in blocks()[p / 16], slot
// p % 16.
//
// Thread safety: the engine's thread only.
// Lifetime: must not outlive the KvCache that made it.
class PagedSequence final : public KvSequence {
 public:
  explicit PagedSequence(KvCache* cache) : cache_(cache) {}
  ~PagedSequence() override { ReleaseFrom(0); }
  PagedSequence(const PagedSequence&) = delete;
  PagedSequence& operator=(const PagedSequence&) = delete;

  int length() const override { return length_; }
  void Truncate(int length) override;

  const KvCache* cache() const { return cache_; }
  absl::Span<const int32_t> blocks() const { return blocks_; }

  // Blocks that `count` more positions need beyond those held.
  int BlocksFor(int count) const;

  // Takes blocks for `count` more positions, which do not count before
  // Advance; returns false and changes nothing if the pool has too few.
  [[nodiscard]] bool Reserve(int count);

  // Counts `count` reserved positions as cached.
  // REQUIRES: they are reserved.
  void Advance(int count) { length_ += count; }

  // Gives back what is reserved and does not count.
  void Unreserve() { ReleaseFrom(length_); }

 private:
  // Returns the blocks that hold no position below `length`.
  void ReleaseFrom(int length);

  KvCache* const cache_;
  std::vector<int32_t> blocks_;
  int length_ = 0;
};

}  // namespace specwire
