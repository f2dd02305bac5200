// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace specwire {

// Which blocks of a KV pool are taken. It hands out block numbers and knows
// nothing of what lies in them.
//
// Thread safety: one thread, the engine's; the gauges from any thread.
class BlockPool {
 public:
  // REQUIRES: num_blocks >= 0.
  explicit BlockPool(int32_t num_blocks);

  // Appends `count` free blocks to `blocks`; returns false and changes nothing
  // if there are not as many. The block freed last is handed out first, since
  // its memory is the likeliest to be in a cache.
  // REQUIRES: count >= 0.
  [[nodiscard]] bool Allocate(int32_t count, std::vector<int32_t>* blocks);

  // Takes blocks back. A number that is not handed out is logged and skipped:
  // handing one block to two sequences would mix their texts.
  void Free(absl::Span<const int32_t> blocks);

  // Gauges.
  int32_t total() const { return total_; }
  int32_t used() const { return used_.load(std::memory_order_relaxed); }
  int32_t free() const { return total_ - used(); }

 private:
  const int32_t total_;
  // Numbers of free blocks; the last is the next to go.
  std::vector<int32_t> free_;
  std::vector<bool> taken_;
  std::atomic<int32_t> used_{0};
};

}  // namespace specwire
