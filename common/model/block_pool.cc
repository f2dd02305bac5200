// SPDX-License-Identifier: Apache-2.0
#include "common/model/block_pool.h"

#include <utility>

#include "common/base/logging.h"

namespace specwire {

BlockPool::BlockPool(int32_t num_blocks, Evicted evicted)
    : total_(num_blocks),
      evicted_(std::move(evicted)),
      states_(static_cast<size_t>(num_blocks) + 1) {
  StateOf(total_).colder = total_;
  StateOf(total_).warmer = total_;
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
    if (free_.empty()) {
      const int32_t coldest = StateOf(total_).warmer;
      Uncache(coldest);
      free_.push_back(coldest);
      if (evicted_ != nullptr) evicted_(coldest);
    }
    const int32_t block = free_.back();
    free_.pop_back();
    StateOf(block).holders = 1;
    blocks->push_back(block);
  }
  used_.store(used() + count, std::memory_order_relaxed);
  return true;
}

void BlockPool::Hold(int32_t block) {
  State& state = StateOf(block);
  if (state.cached) {
    Uncache(block);
    used_.store(used() + 1, std::memory_order_relaxed);
  } else if (state.holders == 0) {
    SPECWIRE_LOG(Error, "KV block ", block, " was shared but is free");
    return;
  }
  ++state.holders;
}

bool BlockPool::Release(int32_t block, bool keep) {
  if (block < 0 || block >= total_ || StateOf(block).holders == 0) {
    SPECWIRE_LOG(Error, "KV block ", block, " was freed but is not in use");
    return false;
  }
  if (--StateOf(block).holders > 0) {
    return false;
  }
  used_.store(used() - 1, std::memory_order_relaxed);
  if (keep) {
    Cache(block);
    return false;
  }
  free_.push_back(block);
  return true;
}

void BlockPool::Discard(int32_t block) {
  if (!StateOf(block).cached) {
    SPECWIRE_LOG(Error, "KV block ", block, " was discarded but is not cached");
    return;
  }
  Uncache(block);
  free_.push_back(block);
}

void BlockPool::Cache(int32_t block) {
  State& state = StateOf(block);
  state.cached = true;
  state.colder = StateOf(total_).colder;
  state.warmer = total_;
  StateOf(state.colder).warmer = block;
  StateOf(total_).colder = block;
  cached_.store(cached() + 1, std::memory_order_relaxed);
}

void BlockPool::Uncache(int32_t block) {
  State& state = StateOf(block);
  state.cached = false;
  StateOf(state.colder).warmer = state.warmer;
  StateOf(state.warmer).colder = state.colder;
  cached_.store(cached() - 1, std::memory_order_relaxed);
}

}  // namespace specwire
