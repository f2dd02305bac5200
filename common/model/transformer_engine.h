// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/engine.h"
#include "common/model/kv_cache.h"
#include "common/model/transformer.h"

namespace specwire {

// The Engine of a Transformer: checks a pass, finds it room in the cache, and
// leaves every sequence as it was where the pass fails.
//
// Thread safety: as Engine.
class TransformerEngine final : public Engine {
 public:
  // With `poison`, positions that belong to no sequence hold NaN.
  TransformerEngine(ModelInfo info,
                    TokenizerModel tokenizer,
                    std::unique_ptr<Transformer> transformer,
                    int num_blocks,
                    bool poison);

  const ModelInfo& info() const override { return info_; }
  const TokenizerModel& tokenizer_model() const override { return tokenizer_; }
  std::unique_ptr<KvSequence> NewSequence() override {
    return cache_.NewSequence();
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs) override;
  int kv_block_size() const override { return kKvBlockSize; }
  int64_t kv_blocks_total() const override { return cache_.pool().total(); }
  int64_t kv_blocks_used() const override { return cache_.pool().used(); }
  int64_t kv_blocks_cached() const override { return cache_.pool().cached(); }
  int64_t rows_computed() const override { return rows_computed_; }
  int64_t kv_rows_projected() const override {
    return transformer_->kv_rows_projected();
  }
  int64_t progress() const override { return transformer_->layers_computed(); }

 private:
  // The sequences of the runs, all of which are found to be in order.
  absl::StatusOr<std::vector<PagedSequence*>> Check(
      absl::Span<const ForwardRun> runs) const;
  // The token of a row of the head; -1 stays.
  int32_t HeadToken(int32_t row) const;
  absl::Status CheckTokens(const ForwardRun& run, int index) const;
  absl::Status Reserve(absl::Span<const ForwardRun> runs,
                       absl::Span<PagedSequence* const> sequences);

  const ModelInfo info_;
  const TokenizerModel tokenizer_;
  const std::unique_ptr<Transformer> transformer_;
  KvCache cache_;
  std::atomic<int64_t> rows_computed_{0};
};

}  // namespace specwire
