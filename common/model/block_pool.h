// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace specwire {

// Which blocks of a KV pool are taken, and by how many. It hands out block
// numbers and knows nothing of what lies in them.
//
// A block is free, held by one or more sequences, or cached: held by none, but
// kept for a later one until its room is needed. The one that was let go
// longest ago is evicted first.
//
// Thread safety: one thread, the engine's; the gauges from any thread.
class BlockPool {
 public:
  // Called with a cached block that is about to be handed out anew.
  using Evicted = std::function<void(int32_t block)>;

  // `evicted` may be empty. REQUIRES: num_blocks >= 0.
  explicit BlockPool(int32_t num_blocks, Evicted evicted = nullptr);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Appends `count` blocks, each with one holder, to `blocks`: free ones, then
  // evicted ones. Returns false and changes nothing if there are not as many.
  // The block freed last is handed out first, since its memory is the likeliest
  // to be in a cache.
  // REQUIRES: count >= 0.
  [[nodiscard]] bool Allocate(int32_t count, std::vector<int32_t>* blocks);

  // One more holder of a block that is held or cached.
  void Hold(int32_t block);

  // One holder less. The last one leaves the block cached if `keep`, else free;
  // returns true if it is free now. A block that nobody holds is logged and
  // skipped: handing it to two sequences would mix their texts.
  bool Release(int32_t block, bool keep);

  // Frees a cached block.
  void Discard(int32_t block);

  // Of a block's number in range.
  int32_t holders(int32_t block) const { return StateOf(block).holders; }

  // Gauges: all blocks; those held (a shared one counts once); those cached;
  // those that Allocate can hand out, cached ones among them.
  int32_t total() const { return total_; }
  int32_t used() const { return used_.load(std::memory_order_relaxed); }
  int32_t cached() const { return cached_.load(std::memory_order_relaxed); }
  int32_t free() const { return total_ - used(); }

 private:
  struct State {
    int32_t holders = 0;
    bool cached = false;
    // Neighbours in the ring of cached blocks.
    int32_t colder = 0;
    int32_t warmer = 0;
  };

  State& StateOf(int32_t block) { return states_[static_cast<size_t>(block)]; }
  const State& StateOf(int32_t block) const {
    return states_[static_cast<size_t>(block)];
  }
  // Puts a block at the warm end of the ring, or takes it out.
  void Cache(int32_t block);
  void Uncache(int32_t block);

  const int32_t total_;
  const Evicted evicted_;
  // Numbers of free blocks; the last is the next to go.
  std::vector<int32_t> free_;
  // A block each, and behind them the ring's end: the coldest block is the one
  // warmer than it, the warmest the one colder.
  std::vector<State> states_;
  std::atomic<int32_t> used_{0};
  std::atomic<int32_t> cached_{0};
};

}  // namespace specwire
