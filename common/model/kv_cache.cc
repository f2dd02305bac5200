// SPDX-License-Identifier: Apache-2.0
#include "common/model/kv_cache.h"

#include <algorithm>

#include "common/base/round_up.h"

namespace specwire {
namespace {

constexpr auto kBlockTokens = static_cast<size_t>(kKvBlockSize);

int BlocksOf(int length) {
  return static_cast<int>(DivideUp(length, kKvBlockSize));
}

}  // namespace

std::unique_ptr<PagedSequence> KvCache::NewSequence() {
  return std::make_unique<PagedSequence>(this);
}

void KvCache::Drop(int32_t block) {
  if (pool_.Release(block, index_.Contains(block))) {
    Released(block, 0);
  }
}

void KvCache::Unindex(int32_t block) {
  index_.Remove(block, [this](int32_t orphan) {
    pool_.Discard(orphan);
    Released(orphan, 0);
  });
}

void KvCache::Forget(int32_t block) {
  Unindex(block);
  Released(block, 0);
}

PagedSequence::~PagedSequence() {
  Offer();
  ReleaseFrom(0);
}

void PagedSequence::Truncate(int length) {
  length_ = std::clamp(length, 0, length_);
  const auto cut = static_cast<size_t>(length_ / kKvBlockSize);
  if (length_ % kKvBlockSize != 0 && cut < num_indexed_) {
    if (cache_->pool_.holders(blocks_[cut]) > 1) {
      length_ = static_cast<int>(cut) * kKvBlockSize;
    } else {
      // First what stands on it: the sequence's own, which are let go, and what
      // is cached.
      ReleaseFrom(length_ + kKvBlockSize - length_ % kKvBlockSize);
      cache_->Unindex(blocks_[cut]);
      num_indexed_ = cut;
    }
  }
  ReleaseFrom(length_);
  if (shares_) tokens_.resize(static_cast<size_t>(length_));
}

int PagedSequence::ReusePrefix(absl::string_view salt,
                               absl::Span<const int32_t> tokens) {
  if (shares_ || length_ > 0) return length_;
  shares_ = true;
  salt_.assign(salt.data(), salt.size());
  // At least one is left to compute.
  const size_t most = tokens.empty() ? 0 : (tokens.size() - 1) / kBlockTokens;
  int32_t parent = PrefixIndex::kNone;
  while (blocks_.size() < most) {
    const int32_t block = cache_->index_.Find(
        parent,
        salt_,
        tokens.subspan(blocks_.size() * kBlockTokens, kBlockTokens));
    if (block == PrefixIndex::kNone) break;
    blocks_.push_back(block);
    cache_->pool_.Hold(block);
    parent = block;
  }
  num_indexed_ = blocks_.size();
  length_ = static_cast<int>(blocks_.size()) * kKvBlockSize;
  tokens_.assign(tokens.begin(), tokens.begin() + length_);
  return length_;
}

void PagedSequence::Offer() {
  if (!shares_) return;
  const size_t num_full = static_cast<size_t>(length_) / kBlockTokens;
  for (; num_indexed_ < num_full; ++num_indexed_) {
    const int32_t parent =
        num_indexed_ == 0 ? PrefixIndex::kNone : blocks_[num_indexed_ - 1];
    const auto tokens = absl::MakeConstSpan(tokens_).subspan(
        num_indexed_ * kBlockTokens, kBlockTokens);
    int32_t& block = blocks_[num_indexed_];
    const int32_t equal = cache_->index_.Find(parent, salt_, tokens);
    if (equal == PrefixIndex::kNone) {
      cache_->index_.Insert(block, parent, salt_, tokens);
    } else {
      cache_->pool_.Hold(equal);
      cache_->Drop(block);
      block = equal;
    }
  }
}

int PagedSequence::BlocksFor(int count) const {
  return std::max(BlocksOf(length_ + count) - static_cast<int>(blocks_.size()),
                  0);
}

bool PagedSequence::Reserve(int count) {
  return cache_->pool_.Allocate(BlocksFor(count), &blocks_);
}

void PagedSequence::Advance(absl::Span<const int32_t> tokens) {
  length_ += static_cast<int>(tokens.size());
  if (shares_) tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void PagedSequence::ReleaseFrom(int length) {
  const auto kept = static_cast<size_t>(BlocksOf(length));
  // The deepest first, so that it is evicted before what it stands on.
  while (blocks_.size() > kept) {
    cache_->Drop(blocks_.back());
    blocks_.pop_back();
  }
  num_indexed_ = std::min(num_indexed_, kept);
  if (const int slot = length % kKvBlockSize; slot != 0 && !blocks_.empty()) {
    cache_->Released(blocks_.back(), slot);
  }
}

}  // namespace specwire
