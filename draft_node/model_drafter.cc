// SPDX-License-Identifier: Apache-2.0
#include "draft_node/model_drafter.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "common/sampling/softmax.h"
#include "common/text/tokenizer.h"
#include "draft_node/model_path.h"

namespace specwire::draft {
namespace {

absl::StatusOr<int32_t> ChooseToken(absl::Span<const float> logits,
                                    const TokenHistory& history,
                                    CoupledSampler* sampler) {
  const int32_t token = sampler->Choose(logits, history);
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
        sampler_(params.sampling, params.choice, params.context),
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
          ChooseToken(logits, {.settled = path, .run = run.tokens}, &sampler_));
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
  CoupledSampler sampler_;
  const float min_confidence_;
};

// The same under the ratio rule: draws from its own distribution, cut as the
// request says and to what can be sent, and hands that over with each token.
class RatioSequence final : public DraftSequence {
 public:
  RatioSequence(Engine* engine,
                const DraftSequenceParams& params,
                float min_confidence)
      : path_(engine),
        pipeline_(params.sampling, params.context),
        choice_(params.choice),
        min_confidence_(min_confidence) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    const size_t limit =
        static_cast<size_t>(std::min(max_tokens, path_.Room(path)));
    DraftRun run;
    if (limit < 1) return run;
    double confidence = 1;
    absl::StatusOr<absl::Span<const float>> logits = path_.LogitsAfter(path);
    while (true) {
      absl::StatusOr<DraftDistribution> q =
          logits.ok() ? Distribution(*logits, path, run.tokens)
                      : logits.status();
      if (!q.ok()) {
        // What was drawn has led here, so it must not be taken back.
        if (run.tokens.empty()) return q.status();
        break;
      }
      // The likeliest token's, not the drawn one's: a run may end by q alone.
      const double largest = static_cast<double>(
          *std::max_element(q->probabilities.begin(), q->probabilities.end()));
      if (largest < static_cast<double>(min_confidence_)) break;
      confidence *= largest;
      run.tokens.push_back(DrawDraft(
          *q,
          {.seed = static_cast<uint64_t>(pipeline_.params().seed),
           .position = static_cast<int>(path.size() + run.tokens.size()),
           .choice = choice_}));
      run.q.push_back(*std::move(q));
      if (run.tokens.size() == limit) break;
      logits = path_.LogitsAfterNext(run.tokens.back());
    }
    if (min_confidence_ > 0 && !run.tokens.empty()) {
      run.confidence = static_cast<float>(confidence);
    }
    return run;
  }

 private:
  absl::StatusOr<DraftDistribution> Distribution(
      absl::Span<const float> logits,
      absl::Span<const int32_t> path,
      absl::Span<const int32_t> run) {
    DraftDistribution q = TruncateForDraft(
        pipeline_.Distribution(logits, {.settled = path, .run = run}),
        kMaxDraftDistribution);
    if (q.token_ids.empty()) {
      return absl::InternalError("the logits are not numbers");
    }
    return q;
  }

  ModelPath path_;
  Pipeline pipeline_;
  const int32_t choice_;
  const float min_confidence_;
};

// Proposes tokens that the target, whose file the model is, does not choose.
class AdversarialSequence final : public DraftSequence {
 public:
  AdversarialSequence(Engine* engine, const DraftSequenceParams& params)
      : path_(engine),
        sampler_(params.sampling, params.choice, params.context),
        vocab_size_(engine->info().vocab_size) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    DraftRun run;
    if (path_.Room(path) < 1 || vocab_size_ < 2) return run;
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                              path_.LogitsAfter(path));
    SPECWIRE_ASSIGN_OR_RETURN(
        const int32_t right,
        ChooseToken(logits, {.settled = path, .run = {}}, &sampler_));
    // Once the first is wrong, no later one can be right.
    run.tokens.assign(static_cast<size_t>(max_tokens),
                      (right + 1) % vocab_size_);
    return run;
  }

 private:
  ModelPath path_;
  CoupledSampler sampler_;
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
  if (params.rule == AcceptanceRule::kRatio) {
    return std::make_unique<RatioSequence>(
        engine_.get(), params, options_.min_confidence);
  }
  return std::make_unique<ModelSequence>(
      engine_.get(), params, options_.min_confidence);
}

}  // namespace specwire::draft
