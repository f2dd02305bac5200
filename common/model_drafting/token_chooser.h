// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/sampling/history.h"
#include "common/sampling/ratio.h"

namespace specwire {

// Which tokens a model's logits belong to.
//
// Thread safety: one thread at a time.
// Lifetime: must not outlive the ids.
class DraftHead {
 public:
  // The tokens' ids, ascending; empty: logit i is token i's.
  explicit DraftHead(absl::Span<const int32_t> token_ids);

  // The token of a logit.
  int32_t Token(int32_t index) const {
    return token_ids_.empty() ? index : token_ids_[static_cast<size_t>(index)];
  }
  // The logits by token id, -infinity for all that have none. Valid until the
  // next call, or as long as `logits`.
  absl::Span<const float> ByToken(absl::Span<const float> logits);
  // Makes tokens of indices.
  void MapToTokens(absl::Span<int32_t> indices) const;

 private:
  const absl::Span<const int32_t> token_ids_;
  // Up to the last token that has a logit; the others stay -infinity.
  std::vector<float> row_;
};

// What a model says of a position: its logits, one for each token of its head,
// or only which token has the largest.
struct LogitRow {
  absl::Span<const float> logits;
  // If logits is empty; -1 if none of them is a number.
  int32_t best = -1;
};

// A draft token, and what is known of it.
struct DraftToken {
  int32_t token = 0;
  // How likely the model holds it, or under the ratio rule the likeliest of
  // those that it was drawn from; 1 if that was not looked at.
  double probability = 1;
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
  // The token at history.position(). INTERNAL if the logits are not numbers.
  virtual absl::StatusOr<DraftToken> Choose(const LogitRow& row,
                                            const TokenHistory& history) = 0;
  // Whether Choose() at this position needs the arg-max only.
  virtual bool NeedsBestOnly(int /*position*/) const { return false; }
  // The first token of a run stands for all of it.
  virtual bool repeats() const { return false; }
};

// What the model chooses under the coupled rule, by the request's parameters
// and noise. `head` outlives it, and may serve others too.
std::unique_ptr<TokenChooser> MakeCoupledChooser(
    const DraftSequenceParams& params, DraftHead* head);

// Draws from the model's own distribution, cut as the request says and to what
// can be sent. `head` as above.
std::unique_ptr<TokenChooser> MakeRatioChooser(
    const DraftSequenceParams& params, DraftHead* head);

// What the target chooses, whose file the model is, without probabilities:
// that needs only the arg-max where temperature is 0. REQUIRES: the head is not
// trimmed.
std::unique_ptr<TokenChooser> MakeOracleChooser(
    const DraftSequenceParams& params);

// A token that the target, whose file the model is, does not choose. REQUIRES:
// the head is not trimmed, vocab_size >= 2.
std::unique_ptr<TokenChooser> MakeAdversarialChooser(
    const DraftSequenceParams& params, int vocab_size);

}  // namespace specwire
