// SPDX-License-Identifier: Apache-2.0
#include "common/model/block_pool.h"

#include "common/base/logging.h"

namespace specwire {

BlockPool::BlockPool(int32_t num_blocks)
    : total_(num_blocks), taken_(static_cast<size_t>(num_blocks), false) {
  free_.reserve(static_cast<size_t>(num_blocks));
  for (int32_t block = num_blocks - 1; block >= 0; --block) {
    free_.push_back(block);
  }
}

bool BlockPool::Allocate(int32_t count, std::vector<int32_t>* blocks) {
  if (count > free()) {
    return false;
  }
  // Before anything is taken, since it may throw.
  blocks->reserve(blocks->size() + static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    taken_[static_cast<size_t>(block)] = true;
    blocks->push_back(block);
  }
  used_.store(used() + count, std::memory_order_relaxed);
  return true;
}

void BlockPool::Free(absl::Span<const int32_t> blocks) {
  int32_t freed = 0;
  for (const int32_t block : blocks) {
    if (block < 0 || block >= total_ || !taken_[static_cast<size_t>(block)]) {
      SPECWIRE_LOG(Error, "KV block ", block, " was freed but is not in use");
      continue;
    }
    taken_[static_cast<size_t>(block)] = false;
    free_.push_back(block);
    ++freed;
  }
  used_.store(used() - freed, std::memory_order_relaxed);
}

}  // namespace specwire
