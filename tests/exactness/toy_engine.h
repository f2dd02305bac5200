// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/engine.h"

namespace specwire {

// A language model small enough that the distribution of its texts can be
// written down: logits are a table over the last two tokens. Its cache is the
// tokens themselves.
//
// Thread safety: as Engine says.
class ToyEngine final : public Engine {
 public:
  static constexpr int kMaxModelLen = 256;

  // Normally distributed logits. REQUIRES: vocab_size >= 4.
  ToyEngine(int vocab_size, float spread, uint32_t seed);
  // A model of another's logits, off by normally distributed noise.
  ToyEngine(const ToyEngine& original, float noise, uint32_t seed);
  // The same row after any text.
  explicit ToyEngine(const std::vector<float>& row);

  const ModelInfo& info() const override { return info_; }
  const TokenizerModel& tokenizer_model() const override { return tokenizer_; }
  std::unique_ptr<KvSequence> NewSequence() override;
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs) override;
  int kv_block_size() const override { return 16; }
  int64_t kv_blocks_total() const override { return 1 << 16; }
  int64_t kv_blocks_used() const override { return 0; }
  int64_t rows_computed() const override { return rows_computed_; }

  // The logits after these tokens. REQUIRES: not empty.
  absl::Span<const float> RowAfter(absl::Span<const int32_t> tokens) const;
  int vocab_size() const { return info_.vocab_size; }

 private:
  class Sequence;

  void Describe(int vocab_size);

  ModelInfo info_;
  TokenizerModel tokenizer_;
  // [vocab_size, vocab_size, vocab_size] f32
  std::vector<float> table_;
  std::vector<float> logits_;
  std::atomic<int64_t> rows_computed_{0};
};

}  // namespace specwire
