// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"
#include "common/model_drafting/acceptance_estimate.h"
#include "common/model_drafting/model_sequence.h"
#include "common/model_drafting/token_chooser.h"

namespace specwire {

struct ModelDrafterOptions {
  // "model", "oracle" or "adversarial".
  std::string name = "model";
};

// Drafts with a causal language model: it chooses tokens as the target does, by
// the request's parameters and with the same noise, from its own logits.
//
//   model        proposes what it chooses;
//   oracle       the same, given the target's own file: always right, and as
//                dear as the target, so for tests and measurements only;
//   adversarial  given the target's own file: always a token that the target
//                does not choose.
//
// Under the ratio rule `model` and `oracle` draw by their own noise and propose
// with each token the distribution that they drew it from; the adversary's
// tokens are accepted as seldom as the target draws them.
//
// The model may be a draft model whose head is trimmed: it proposes tokens of
// its head only. `model` says how likely its runs survive: by the model's
// probabilities, and by how often tokens of such a probability were accepted,
// in all of its sequences.
//
// One Propose is one engine pass for all tasks, which advance in step: a token
// each, or a part of what they have to catch up on. What is proposed does not
// depend on what else is in the passes.
//
// What a sequence has cached serves only to be quick: where another one needs
// the room, the cache of the one that has drafted least recently is dropped.
// Where a sequence has no room all the same, or not in its context, it proposes
// fewer tokens or none.
//
// Thread safety: see Drafter.
class ModelDrafter final : public Drafter {
 public:
  static constexpr int kMaxBatch = 64;

  // INVALID_ARGUMENT if the engine's tokenizer is not one that we implement, or
  // if a name that wants the target's own file is given another.
  static absl::StatusOr<std::unique_ptr<ModelDrafter>> Create(
      std::unique_ptr<Engine> engine, ModelDrafterOptions options);

  const std::string& name() const override { return options_.name; }
  const std::string& vocabulary_fingerprint() const override {
    return vocabulary_fingerprint_;
  }
  const std::string& model_digest() const override {
    return engine_->info().model_digest;
  }
  int max_model_len() const override { return engine_->info().max_model_len; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;
  int max_batch() const override { return kMaxBatch; }
  DraftPass Propose(absl::Span<DraftTask> tasks) override;
  int64_t kv_blocks_total() const override {
    return engine_->kv_blocks_total();
  }
  int64_t kv_blocks_used() const override { return engine_->kv_blocks_used(); }
  int64_t kv_blocks_cached() const override {
    return engine_->kv_blocks_cached();
  }
  int64_t progress() const override { return engine_->progress(); }

 private:
  // A task's part of a pass.
  struct Step {
    DraftTask* task = nullptr;
    ModelSequence* sequence = nullptr;
    ForwardRun rows = {};
    int32_t best = -1;
  };

  ModelDrafter(std::unique_ptr<Engine> engine,
               ModelDrafterOptions options,
               std::string fingerprint);

  AcceptanceEstimate* EstimateFor(const DraftSequenceParams& params);
  // Those tasks that need a pass, with their rows in it; the others have their
  // results.
  std::vector<Step> PlanSteps(absl::Span<DraftTask> tasks);
  // Makes sure that the sequence's tokens have room beside `promised` blocks,
  // and adds what they need to these. False if there is none: nothing that is
  // of use in this pass is dropped.
  bool MakeRoom(const ModelSequence& sequence, int64_t* promised);
  int64_t num_free_blocks() const {
    return engine_->kv_blocks_total() - engine_->kv_blocks_used();
  }
  // Computes the steps in one pass, or, if that fails, each in one of its own.
  void Compute(absl::Span<Step> steps);
  // Gives the task a result, if its run is at its end.
  static void OnLogits(Step* step, absl::Span<const float> logits);
  static void OnError(Step* step, const absl::Status& status);

  const std::unique_ptr<Engine> engine_;
  const ModelDrafterOptions options_;
  const std::string vocabulary_fingerprint_;
  DraftHead head_;
  // What probabilities mean is another thing where noise decides.
  AcceptanceEstimate greedy_estimate_;
  AcceptanceEstimate coupled_estimate_;
  AcceptanceEstimate ratio_estimate_;
  int64_t num_passes_ = 0;
  // Those that live, the oldest first.
  std::vector<ModelSequence*> sequences_;
};

}  // namespace specwire
