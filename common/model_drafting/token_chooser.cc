// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/token_chooser.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/kernels/maths.h"
#include "common/sampling/coupled.h"
#include "common/sampling/greedy.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/processors.h"
#include "common/sampling/row_maxima.h"
#include "common/sampling/softmax.h"

namespace specwire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

absl::Status NotNumbers() {
  return absl::InternalError("the logits are not numbers");
}

// The parameters of rows that processors have been through.
SamplingParams WithoutProcessors(SamplingParams params) {
  const SamplingParams none;
  params.logit_bias = none.logit_bias;
  params.repetition_penalty = none.repetition_penalty;
  params.frequency_penalty = none.frequency_penalty;
  params.presence_penalty = none.presence_penalty;
  return params;
}

class CoupledChooser final : public TokenChooser {
 public:
  CoupledChooser(const DraftSequenceParams& params, DraftHead* head)
      : head_(*head),
        processors_(params.sampling, params.context),
        sampler_(WithoutProcessors(params.sampling), params.choice),
        greedy_(params.sampling.temperature < kGreedyTemperature),
        temperature_(
            greedy_ ? 1.0 : static_cast<double>(params.sampling.temperature)) {}

  absl::StatusOr<DraftToken> Choose(const LogitRow& row,
                                    const TokenHistory& history) override {
    const bool processes = processors_.ActiveAt(history.position());
    if (greedy_ && !processes) return ChooseLikeliest(row.logits);
    // Noise, biases and counts go by token.
    const absl::Span<const float> all =
        processors_.Apply(head_.ByToken(row.logits), history);
    DraftToken chosen;
    chosen.token = sampler_.Choose(all, history);
    if (chosen.token < 0) return NotNumbers();
    // Where nothing was changed, the fewer logits say the same.
    chosen.probability = Likelihood(processes ? all : row.logits,
                                    all[static_cast<size_t>(chosen.token)]);
    return chosen;
  }

 private:
  absl::StatusOr<DraftToken> ChooseLikeliest(absl::Span<const float> logits) {
    const int32_t best = ArgMax(logits);
    if (best < 0) return NotNumbers();
    const float logit = logits[static_cast<size_t>(best)];
    if (logit == -kInfinity) return NotNumbers();
    return DraftToken{.token = head_.Token(best),
                      .probability = Likelihood(logits, logit)};
  }

  // A token's probability at the request's temperature; the cuts would make it
  // likelier, which is left to whoever learns what probabilities mean.
  double Likelihood(absl::Span<const float> row, float logit) {
    maxima_.Compute(row);
    if (!std::isfinite(maxima_.largest())) return 1;
    const double best = static_cast<double>(maxima_.largest()) / temperature_;
    const double exponent = static_cast<double>(logit) / temperature_ - best;
    // Exp() is made for these.
    if (!(exponent > -700)) return 0;
    return std::min(Exp(exponent) / SumOfWeights(row, temperature_, best), 1.0);
  }

  DraftHead& head_;
  LogitProcessors processors_;
  // For rows that these have been through.
  CoupledSampler sampler_;
  const bool greedy_;
  const double temperature_;
  RowMaxima maxima_;
};

class RatioChooser final : public TokenChooser {
 public:
  RatioChooser(const DraftSequenceParams& params, DraftHead* head)
      : head_(*head),
        pipeline_(params.sampling, params.context),
        choice_(params.choice) {}

  absl::StatusOr<DraftToken> Choose(const LogitRow& row,
                                    const TokenHistory& history) override {
    DraftToken chosen;
    if (pipeline_.ProcessesAt(history.position())) {
      chosen.q = TruncateForDraft(
          pipeline_.Distribution(head_.ByToken(row.logits), history),
          kMaxDraftDistribution);
    } else {
      chosen.q = TruncateForDraft(pipeline_.Distribution(row.logits, history),
                                  kMaxDraftDistribution);
      head_.MapToTokens(absl::MakeSpan(chosen.q.token_ids));
    }
    if (chosen.q.token_ids.empty()) return NotNumbers();
    // The likeliest token's, not the drawn one's: a run may end by q alone.
    chosen.probability = static_cast<double>(*std::max_element(
        chosen.q.probabilities.begin(), chosen.q.probabilities.end()));
    chosen.token =
        DrawDraft(chosen.q,
                  {.seed = static_cast<uint64_t>(pipeline_.params().seed),
                   .position = history.position(),
                   .choice = choice_});
    return chosen;
  }

 private:
  DraftHead& head_;
  Pipeline pipeline_;
  const int32_t choice_;
};

class OracleChooser final : public TokenChooser {
 public:
  explicit OracleChooser(const DraftSequenceParams& params)
      : sampler_(params.sampling, params.choice, params.context) {}

  absl::StatusOr<DraftToken> Choose(const LogitRow& row,
                                    const TokenHistory& history) override {
    const int32_t token =
        row.logits.empty() ? row.best : sampler_.Choose(row.logits, history);
    if (token < 0) return NotNumbers();
    return DraftToken{.token = token};
  }
  bool NeedsBestOnly(int position) const override {
    return sampler_.IsPlainArgMax(position);
  }

 private:
  CoupledSampler sampler_;
};

class AdversarialChooser final : public TokenChooser {
 public:
  AdversarialChooser(const DraftSequenceParams& params, int vocab_size)
      : oracle_(params), vocab_size_(vocab_size) {}

  absl::StatusOr<DraftToken> Choose(const LogitRow& row,
                                    const TokenHistory& history) override {
    SPECWIRE_ASSIGN_OR_RETURN(DraftToken chosen, oracle_.Choose(row, history));
    chosen.token = (chosen.token + 1) % vocab_size_;
    return chosen;
  }
  bool NeedsBestOnly(int position) const override {
    return oracle_.NeedsBestOnly(position);
  }
  // Once the first is wrong, no later one can be right.
  bool repeats() const override { return true; }

 private:
  OracleChooser oracle_;
  const int32_t vocab_size_;
};

}  // namespace

DraftHead::DraftHead(absl::Span<const int32_t> token_ids)
    : token_ids_(token_ids) {
  if (token_ids.empty()) return;
  row_.assign(static_cast<size_t>(token_ids.back()) + 1, -kInfinity);
}

absl::Span<const float> DraftHead::ByToken(absl::Span<const float> logits) {
  if (token_ids_.empty()) return logits;
  for (size_t i = 0; i < token_ids_.size(); ++i) {
    row_[static_cast<size_t>(token_ids_[i])] = logits[i];
  }
  return row_;
}

void DraftHead::MapToTokens(absl::Span<int32_t> indices) const {
  if (token_ids_.empty()) return;
  for (int32_t& index : indices) index = Token(index);
}

std::unique_ptr<TokenChooser> MakeCoupledChooser(
    const DraftSequenceParams& params, DraftHead* head) {
  return std::make_unique<CoupledChooser>(params, head);
}

std::unique_ptr<TokenChooser> MakeRatioChooser(
    const DraftSequenceParams& params, DraftHead* head) {
  return std::make_unique<RatioChooser>(params, head);
}

std::unique_ptr<TokenChooser> MakeOracleChooser(
    const DraftSequenceParams& params) {
  return std::make_unique<OracleChooser>(params);
}

std::unique_ptr<TokenChooser> MakeAdversarialChooser(
    const DraftSequenceParams& params, int vocab_size) {
  return std::make_unique<AdversarialChooser>(params, vocab_size);
}

}  // namespace specwire
