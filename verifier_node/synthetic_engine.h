// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/drafting/synthetic.h"
#include "common/model/engine.h"

namespace specwire::verifier {

struct SyntheticEngineOptions {
  int vocab_size = kDefaultSyntheticVocab;
  // What a pass takes, and what each of its rows adds.
  absl::Duration step_time = absl::ZeroDuration();
  absl::Duration row_time = absl::ZeroDuration();
  // 0: kDefaultMaxModelLen.
  int max_model_len = 0;
  int64_t kv_cache_mib = 512;
  // Name of the model for users; empty: "synthetic".
  std::string served_model_name = {};
  SyntheticHang hang = {};
  // After so many passes all fail, as those of a broken engine do; -1: none
  // does.
  int64_t fail_after = -1;
};

// An engine without a model, for load tests: its tokens are those of a
// SyntheticLanguage, whatever the sampling parameters (a token that these
// forbid gives way to another), and a pass takes the time that it is told to.
//
// Thread safety: as Engine says.
class SyntheticEngine final : public Engine {
 public:
  static constexpr int kDefaultMaxModelLen = 8192;
  static constexpr int kMaxMaxModelLen = 1 << 20;
  // What a token takes of kv_cache_mib: about what it takes of memory.
  static constexpr int64_t kBytesPerToken = 16;

  // INVALID_ARGUMENT, naming the flag, if the options are out of range.
  static absl::StatusOr<std::unique_ptr<SyntheticEngine>> Create(
      const SyntheticEngineOptions& options);

  const ModelInfo& info() const override { return info_; }
  const TokenizerModel& tokenizer_model() const override { return tokenizer_; }
  std::unique_ptr<KvSequence> NewSequence() override;
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs) override;
  int kv_block_size() const override { return kBlockSize; }
  int64_t kv_blocks_total() const override { return num_blocks_; }
  int64_t kv_blocks_used() const override { return blocks_used_; }
  int64_t rows_computed() const override { return num_rows_; }
  int64_t progress() const override { return time_.progress(); }

 private:
  class Sequence;
  static constexpr int kBlockSize = 16;

  explicit SyntheticEngine(const SyntheticEngineOptions& options);

  // The number of rows, if all runs are in range and have room.
  absl::StatusOr<int64_t> CheckRuns(absl::Span<const ForwardRun> runs) const;
  void Compute(const ForwardRun& run);

  const SyntheticLanguage language_;
  const absl::Duration step_time_;
  const absl::Duration row_time_;
  const TokenizerModel tokenizer_;
  const int64_t num_blocks_;
  ModelInfo info_;
  std::vector<float> logits_;
  SyntheticTime time_;
  // Negative: without end.
  int64_t passes_left_ = -1;
  std::atomic<int64_t> blocks_used_{0};
  std::atomic<int64_t> num_rows_{0};
};

}  // namespace specwire::verifier
