// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/sampling/history.h"
#include "common/sampling/ratio.h"

namespace specwire::draft {

// What a model says of a position: its logits, [vocab_size] f32, or only which
// of them is the largest.
struct LogitRow {
  absl::Span<const float> logits;
  // If logits is empty; -1 if none of them is a number.
  int32_t best = -1;
};

// A draft token, and what is known of it.
struct DraftToken {
  int32_t token = 0;
  // How sure the model is of it; 1 if that was not looked at.
  double confidence = 1;
  // Ratio rule: what it was drawn from.
  DraftDistribution q = {};
};

// How a sequence's draft tokens come from its model's logits: a pure function
// of logits and history, which makes the tokens independent of how passes were
// batched.
//
// Thread safety: one thread at a time.
class TokenChooser {
 public:
  virtual ~TokenChooser() = default;
  // The token at history.position(); none if the run should end before it.
  // INTERNAL if the logits are not numbers.
  virtual absl::StatusOr<std::optional<DraftToken>> Choose(
      const LogitRow& row, const TokenHistory& history) = 0;
  // Whether Choose() at this position needs the arg-max only.
  virtual bool NeedsBestOnly(int /*position*/) const { return false; }
  // Whether the tokens' confidences make one of the run.
  virtual bool estimates() const { return false; }
  // The first token of a run stands for all of it.
  virtual bool repeats() const { return false; }
};

// What the model chooses under the coupled rule, by the request's parameters
// and noise, as long as it holds it at least `min_confidence` likely.
std::unique_ptr<TokenChooser> MakeCoupledChooser(
    const DraftSequenceParams& params, float min_confidence);

// Draws from the model's own distribution, cut as the request says and to what
// can be sent, as long as that has a token at least `min_confidence` likely.
std::unique_ptr<TokenChooser> MakeRatioChooser(
    const DraftSequenceParams& params, float min_confidence);

// A token that the target, whose file the model is, does not choose.
std::unique_ptr<TokenChooser> MakeAdversarialChooser(
    const DraftSequenceParams& params, int vocab_size);

}  // namespace specwire::draft
