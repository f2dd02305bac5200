// SPDX-License-Identifier: Apache-2.0
#include "draft_node/model_drafter.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/text/tokenizer.h"
#include "draft_node/model_path.h"

namespace specwire::draft {
namespace {

absl::StatusOr<int32_t> ChooseToken(const CoupledSampler& sampler,
                                    absl::Span<const float> logits,
                                    size_t position) {
  const int32_t token = sampler.Choose(logits, static_cast<int>(position));
  if (token < 0) return absl::InternalError("the logits are not numbers");
  return token;
}

// Proposes what the model chooses, as long as it is sure enough.
class ModelSequence final : public DraftSequence {
 public:
  ModelSequence(Engine* engine,
                const DraftSequenceParams& params,
                float min_confidence)
      : path_(engine),
        sampler_(params.sampling, params.choice),
        min_confidence_(min_confidence) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    const size_t limit =
        static_cast<size_t>(std::min(max_tokens, path_.Room(path)));
    DraftRun run;
    if (limit < 1) return run;
    float confidence = 1;
    SPECWIRE_ASSIGN_OR_RETURN(absl::Span<const float> logits,
                              path_.LogitsAfter(path));
    while (true) {
      SPECWIRE_ASSIGN_OR_RETURN(
          const int32_t token,
          ChooseToken(sampler_, logits, path.size() + run.tokens.size()));
      if (min_confidence_ > 0) {
        const double probability = Probability(logits, token);
        if (probability < static_cast<double>(min_confidence_)) break;
        confidence *= static_cast<float>(probability);
      }
      run.tokens.push_back(token);
      if (run.tokens.size() == limit) break;
      SPECWIRE_ASSIGN_OR_RETURN(logits, path_.LogitsAfterNext(token));
    }
    if (min_confidence_ > 0 && !run.tokens.empty()) run.confidence = confidence;
    return run;
  }

 private:
  ModelPath path_;
  const CoupledSampler sampler_;
  const float min_confidence_;
};

// Proposes tokens that the target, whose file the model is, does not choose.
class AdversarialSequence final : public DraftSequence {
 public:
  AdversarialSequence(Engine* engine, const DraftSequenceParams& params)
      : path_(engine),
        sampler_(params.sampling, params.choice),
        vocab_size_(engine->info().vocab_size) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    DraftRun run;
    if (path_.Room(path) < 1 || vocab_size_ < 2) return run;
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                              path_.LogitsAfter(path));
    SPECWIRE_ASSIGN_OR_RETURN(const int32_t right,
                              ChooseToken(sampler_, logits, path.size()));
    // Once the first is wrong, no later one can be right.
    run.tokens.assign(static_cast<size_t>(max_tokens),
                      (right + 1) % vocab_size_);
    return run;
  }

 private:
  ModelPath path_;
  const CoupledSampler sampler_;
  const int32_t vocab_size_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(
    std::unique_ptr<Engine> engine, ModelDrafterOptions options) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(engine->tokenizer_model()));
  // The constructor is private.
  return std::unique_ptr<ModelDrafter>(new ModelDrafter(
      std::move(engine), std::move(options), tokenizer->fingerprint()));
}

ModelDrafter::ModelDrafter(std::unique_ptr<Engine> engine,
                           ModelDrafterOptions options,
                           std::string fingerprint)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      vocabulary_fingerprint_(std::move(fingerprint)) {}

std::unique_ptr<DraftSequence> ModelDrafter::NewSequence(
    const DraftSequenceParams& params) {
  if (options_.name == "adversarial") {
    return std::make_unique<AdversarialSequence>(engine_.get(), params);
  }
  return std::make_unique<ModelSequence>(
      engine_.get(), params, options_.min_confidence);
}

}  // namespace specwire::draft
