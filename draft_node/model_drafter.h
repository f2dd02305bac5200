// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"

namespace specwire::draft {

struct ModelDrafterOptions {
  // "model", "oracle" or "adversarial".
  std::string name = "model";
  // A run ends before the first token that the model holds less likely than
  // this, in [0, 1); 0 never ends one.
  float min_confidence = 0;
};

// Drafts with a causal language model: it chooses tokens as the target does, by
// the request's parameters and with the same noise, from its own logits.
//
//   model        proposes what it chooses;
//   oracle       the same, given the target's own file: always right, and as
//   dear
//                as the target, so for tests and measurements only;
//   adversarial  given the target's own file: always a token that the target
//   does
//                not choose.
//
// Under the ratio rule `model` and `oracle` draw by their own noise and propose
// with each token the distribution that they drew it from; the adversary's
// tokens are accepted as seldom as the target draws them.
//
// Where it has no room, in its context or its KV cache, it proposes fewer
// tokens or none.
//
// Thread safety: see Drafter.
class ModelDrafter final : public Drafter {
 public:
  // INVALID_ARGUMENT if the engine's tokenizer is not one that we implement.
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
  int64_t kv_blocks_total() const override {
    return engine_->kv_blocks_total();
  }
  int64_t kv_blocks_used() const override { return engine_->kv_blocks_used(); }

 private:
  ModelDrafter(std::unique_ptr<Engine> engine,
               ModelDrafterOptions options,
               std::string fingerprint);

  const std::unique_ptr<Engine> engine_;
  const ModelDrafterOptions options_;
  const std::string vocabulary_fingerprint_;
};

}  // namespace specwire::draft
