// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/model/engine.h"

namespace specwire {

struct FakeEngineOptions {
  int max_model_len = 4096;
  int block_size = 16;
  int num_blocks = 1024;
  // How long every pass takes.
  absl::Duration pass_delay = absl::ZeroDuration();
  // The token at this position is EOS, whatever comes before.
  std::optional<int> eos_position = std::nullopt;
  // Whether full blocks are found again by later sequences. Each holds blocks
  // of its own all the same.
  bool prefix_cache = false;
};

// A tiny deterministic engine for tests, without a model: the next token is a
// hash of the last three tokens in the cache, so text depends on what was
// really cached, and falls into loops after some hundred tokens.
//
// Thread safety: as Engine says; the rest from any thread.
class FakeEngine final : public Engine {
 public:
  static constexpr int kVocabSize = 64;
  static constexpr int32_t kEos = 2;
  // Tokens of this and lower ids are never generated (save kEos on request).
  static constexpr int32_t kLastSpecial = 5;
  // A pass with one of these tokens returns an error, throws, or computes only
  // NaN.
  static constexpr int32_t kFailingToken = 3;
  static constexpr int32_t kThrowingToken = 4;
  static constexpr int32_t kNanToken = 5;

  explicit FakeEngine(FakeEngineOptions options = {});
  ~FakeEngine() override;

  const ModelInfo& info() const override { return info_; }
  const TokenizerModel& tokenizer_model() const override { return tokenizer_; }
  std::unique_ptr<KvSequence> NewSequence() override;
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs) override;
  int kv_block_size() const override { return options_.block_size; }
  int64_t kv_blocks_total() const override { return options_.num_blocks; }
  int64_t kv_blocks_used() const override { return blocks_used_; }
  int64_t rows_computed() const override { return num_rows_; }

  // What decoding `tokens` plainly generates.
  std::vector<int32_t> Continue(std::vector<int32_t> tokens, int count) const;

  // Passes and rows so far.
  int64_t num_passes() const { return num_passes_; }
  int64_t num_rows() const { return num_rows_; }
  // For each run so far: the number of its sequence, counted from 0 in the
  // order in which they were made, and its rows.
  std::vector<std::pair<int, int>> runs() const;

  // The next passes, so many, fail whatever their tokens.
  void FailNext(int num_passes) { num_failing_ = num_passes; }

  // While it is paused, Forward waits before it computes.
  void Pause();
  void Resume();
  // Waits until a Forward waits; false if none does in time.
  [[nodiscard]] bool WaitUntilPaused();

 private:
  class Sequence;

  int32_t NextToken(absl::Span<const int32_t> tokens) const;
  int64_t BlocksFor(int64_t length) const;
  absl::Status CheckRuns(absl::Span<const ForwardRun> runs) const;
  void WaitWhilePaused();

  const FakeEngineOptions options_;
  ModelInfo info_;
  TokenizerModel tokenizer_;
  int num_sequences_ = 0;
  // Salts and the texts, in whole blocks, that were computed under them.
  std::set<std::pair<std::string, std::vector<int32_t>>> prefixes_;
  std::vector<float> logits_;
  std::atomic<int64_t> blocks_used_{0};
  std::atomic<int64_t> num_passes_{0};
  std::atomic<int64_t> num_rows_{0};
  std::atomic<int> num_failing_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<int, int>> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire
