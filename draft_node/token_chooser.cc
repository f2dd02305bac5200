// SPDX-License-Identifier: Apache-2.0
#include "draft_node/token_chooser.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/softmax.h"

namespace specwire::draft {
namespace {

using Chosen = absl::StatusOr<std::optional<DraftToken>>;

absl::Status NotNumbers() {
  return absl::InternalError("the logits are not numbers");
}

absl::StatusOr<int32_t> ChooseToken(const LogitRow& row,
                                    const TokenHistory& history,
                                    CoupledSampler* sampler) {
  const int32_t token =
      row.logits.empty() ? row.best : sampler->Choose(row.logits, history);
  if (token < 0) return NotNumbers();
  return token;
}

class CoupledChooser final : public TokenChooser {
 public:
  CoupledChooser(const DraftSequenceParams& params, float min_confidence)
      : sampler_(params.sampling, params.choice, params.context),
        min_confidence_(min_confidence) {}

  Chosen Choose(const LogitRow& row, const TokenHistory& history) override {
    DraftToken chosen;
    SPECWIRE_ASSIGN_OR_RETURN(chosen.token,
                              ChooseToken(row, history, &sampler_));
    if (estimates()) {
      chosen.confidence = Probability(row.logits, chosen.token);
      if (chosen.confidence < static_cast<double>(min_confidence_)) {
        return std::nullopt;
      }
    }
    return chosen;
  }

  bool NeedsBestOnly(int position) const override {
    return !estimates() && sampler_.IsPlainArgMax(position);
  }
  bool estimates() const override { return min_confidence_ > 0; }

 private:
  CoupledSampler sampler_;
  const float min_confidence_;
};

class RatioChooser final : public TokenChooser {
 public:
  RatioChooser(const DraftSequenceParams& params, float min_confidence)
      : pipeline_(params.sampling, params.context),
        choice_(params.choice),
        min_confidence_(min_confidence) {}

  Chosen Choose(const LogitRow& row, const TokenHistory& history) override {
    DraftToken chosen;
    chosen.q = TruncateForDraft(pipeline_.Distribution(row.logits, history),
                                kMaxDraftDistribution);
    if (chosen.q.token_ids.empty()) return NotNumbers();
    // The likeliest token's, not the drawn one's: a run may end by q alone.
    chosen.confidence = static_cast<double>(*std::max_element(
        chosen.q.probabilities.begin(), chosen.q.probabilities.end()));
    if (chosen.confidence < static_cast<double>(min_confidence_)) {
      return std::nullopt;
    }
    chosen.token =
        DrawDraft(chosen.q,
                  {.seed = static_cast<uint64_t>(pipeline_.params().seed),
                   .position = history.position(),
                   .choice = choice_});
    return chosen;
  }
  bool estimates() const override { return min_confidence_ > 0; }

 private:
  Pipeline pipeline_;
  const int32_t choice_;
  const float min_confidence_;
};

class AdversarialChooser final : public TokenChooser {
 public:
  AdversarialChooser(const DraftSequenceParams& params, int vocab_size)
      : sampler_(params.sampling, params.choice, params.context),
        vocab_size_(vocab_size) {}

  Chosen Choose(const LogitRow& row, const TokenHistory& history) override {
    SPECWIRE_ASSIGN_OR_RETURN(const int32_t right,
                              ChooseToken(row, history, &sampler_));
    if (vocab_size_ < 2) return std::nullopt;
    return DraftToken{.token = (right + 1) % vocab_size_};
  }

  bool NeedsBestOnly(int position) const override {
    return sampler_.IsPlainArgMax(position);
  }
  // Once the first is wrong, no later one can be right.
  bool repeats() const override { return true; }

 private:
  CoupledSampler sampler_;
  const int32_t vocab_size_;
};

}  // namespace

std::unique_ptr<TokenChooser> MakeCoupledChooser(
    const DraftSequenceParams& params, float min_confidence) {
  return std::make_unique<CoupledChooser>(params, min_confidence);
}

std::unique_ptr<TokenChooser> MakeRatioChooser(
    const DraftSequenceParams& params, float min_confidence) {
  return std::make_unique<RatioChooser>(params, min_confidence);
}

std::unique_ptr<TokenChooser> MakeAdversarialChooser(
    const DraftSequenceParams& params, int vocab_size) {
  return std::make_unique<AdversarialChooser>(params, vocab_size);
}

}  // namespace specwire::draft
