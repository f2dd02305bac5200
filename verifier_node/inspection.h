// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/engine.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/pipeline.h"

namespace specwire::verifier {

// Longest text that is looked at, most tokens that are generated for it, and
// most candidates that are told.
inline constexpr int kMaxInspectTokens = 128;
inline constexpr int kMaxInspectGenerated = 32;
inline constexpr int kMaxInspectTop = 64;
static_assert(kMaxInspectTokens + kMaxInspectGenerated <= Engine::kMaxRows);

// Something to be found out from the engine, in pieces between which others
// have theirs.
//
// Thread safety: the engine's thread; whoever has been told of the end may read
// the result on any.
class Inspection {
 public:
  virtual ~Inspection() = default;
  // One piece: a pass, or what takes no longer. Returns whether it was the
  // last.
  virtual absl::StatusOr<bool> Step(Engine* engine) = 0;
  // Gives up what it holds of the engine.
  virtual void Release() = 0;
};

// Attention weights of all heads of a layer.
class AttentionInspection final : public Inspection {
 public:
  // REQUIRES: 1 to kMaxInspectTokens tokens.
  AttentionInspection(std::vector<int32_t> tokens, int layer)
      : tokens_(std::move(tokens)), probe_{.layer = layer} {}
  absl::StatusOr<bool> Step(Engine* engine) override;
  void Release() override {}

  const std::vector<int32_t>& tokens() const { return tokens_; }
  // See AttentionProbe; empty if the engine has no attention.
  const std::vector<float>& weights() const { return probe_.weights; }

 private:
  const std::vector<int32_t> tokens_;
  AttentionProbe probe_;
};

// Stages of the pipeline in its order.
enum class PipelineStage {
  kRaw,
  kLogitBias,
  kMinTokens,
  kRepetitionPenalty,
  kFrequencyPenalty,
  kPresencePenalty,
  kTemperature,
  kMinP,
  kTopK,
  kTopP,
};
inline constexpr int kNumPipelineStages = 10;

// The next token's distribution after each stage.
class NextTokenInspection final : public Inspection {
 public:
  struct Stage {
    // The settings switch it on.
    bool active = false;
    // Tokens that have any probability.
    int num_left = 0;
    // The likeliest, by ascending id among equals; no more than asked for.
    TokenDistribution top;
  };

  // `tokens` are those of the context's prompt, and output behind it.
  // REQUIRES: 1 to kMaxInspectTokens tokens; sampling is valid.
  NextTokenInspection(std::vector<int32_t> tokens,
                      SamplingParams sampling,
                      SequenceContext context,
                      int top)
      : tokens_(std::move(tokens)),
        sampling_(std::move(sampling)),
        context_(std::move(context)),
        top_(top) {}
  absl::StatusOr<bool> Step(Engine* engine) override;
  void Release() override {}

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int prompt_length() const { return context_.prompt_length; }
  // One for each PipelineStage.
  const std::vector<Stage>& stages() const { return stages_; }

 private:
  const std::vector<int32_t> tokens_;
  const SamplingParams sampling_;
  const SequenceContext context_;
  const int top_;
  std::vector<float> logits_;
  std::vector<Stage> stages_;
};

// Greedy tokens with a KV cache and without, and the work that they took.
class CacheInspection final : public Inspection {
 public:
  struct Work {
    // Of each token's pass, as the engine counts them.
    std::vector<int64_t> key_rows;
    absl::Duration duration;
    std::vector<int32_t> tokens;
  };

  // REQUIRES: 1 to kMaxInspectTokens tokens, 1 to kMaxInspectGenerated to come.
  CacheInspection(std::vector<int32_t> prompt, int num_tokens)
      : prompt_(std::move(prompt)),
        num_tokens_(static_cast<size_t>(num_tokens)) {}
  absl::StatusOr<bool> Step(Engine* engine) override;
  void Release() override { kv_ = nullptr; }

  const std::vector<int32_t>& prompt() const { return prompt_; }
  const Work& with_cache() const { return with_cache_; }
  const Work& without_cache() const { return without_cache_; }

 private:
  const std::vector<int32_t> prompt_;
  const size_t num_tokens_;
  std::unique_ptr<KvSequence> kv_;
  Work with_cache_;
  Work without_cache_;
};

// An inspection that is handed to the engine's thread.
struct OpenInspection {
  // Shared with whoever reads the result.
  std::shared_ptr<Inspection> inspection;
  absl::Time deadline = absl::InfiniteFuture();
  // Whether nobody waits any more.
  std::function<bool()> abandoned;
  // Told once how it ended.
  std::function<void(absl::Status)> done;
};

}  // namespace specwire::verifier
