// SPDX-License-Identifier: Apache-2.0
#include "common/model/kv_cache.h"

#include <algorithm>

namespace specwire {
namespace {

int BlocksOf(int length) { return (length + kKvBlockSize - 1) / kKvBlockSize; }

}  // namespace

std::unique_ptr<PagedSequence> KvCache::NewSequence() {
  return std::make_unique<PagedSequence>(this);
}

void PagedSequence::Truncate(int length) {
  length_ = std::clamp(length, 0, length_);
  ReleaseFrom(length_);
}

int PagedSequence::BlocksFor(int count) const {
  return std::max(BlocksOf(length_ + count) - static_cast<int>(blocks_.size()),
                  0);
}

bool PagedSequence::Reserve(int count) {
  return cache_->pool_.Allocate(BlocksFor(count), &blocks_);
}

void PagedSequence::ReleaseFrom(int length) {
  const size_t kept =
      std::min(static_cast<size_t>(BlocksOf(length)), blocks_.size());
  if (cache_->release_ != nullptr) {
    for (size_t i = kept; i < blocks_.size(); ++i) {
      cache_->release_(blocks_[i], 0);
    }
    if (const int slot = length % kKvBlockSize; slot != 0 && kept > 0) {
      cache_->release_(blocks_[kept - 1], slot);
    }
  }
  cache_->pool_.Free(absl::MakeSpan(blocks_).subspan(kept));
  blocks_.resize(kept);
}

}  // namespace specwire
