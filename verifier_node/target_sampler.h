// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/messages.h"
#include "common/sampling/coupled.h"
#include "common/sampling/history.h"
#include "common/sampling/logprobs.h"
#include "common/sampling/params.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"

namespace specwire::verifier {

// What a verify step decides about.
struct StepRows {
  // Prompt and all committed tokens.
  absl::Span<const int32_t> log;
  // Draft tokens that follow.
  absl::Span<const int32_t> draft;
  // Ratio rule: what each of draft was drawn from; else empty.
  absl::Span<const DraftDistribution> q;
};

// A step's rows up to and including the one of the first wrong draft token.
struct TracedRows {
  // As many as there are draft tokens among them.
  std::vector<TargetProbability> drafts;
  std::vector<TargetProbability> choices;
};

// Decides the tokens of one sequence, by its request's rule: the one place
// where a step's logits become tokens. Pure code: no clock, no sockets, no
// model.
//
//   coupled  the target's own token at each position, by noise that the drafter
//            shares (CoupledSampler);
//   ratio    a draft token or its correction, then a bonus token; at a position
//            without a proposal a plain draw (common/sampling/ratio.h).
//
// Under either rule a draft token was accepted if and only if the token decided
// for its place equals it.
//
// Thread safety: one thread at a time.
class TargetSampler {
 public:
  // `choice` is the index of this sample among the request's n.
  TargetSampler(AcceptanceRule rule,
                const SamplingParams& params,
                int32_t choice,
                const SequenceContext& context);

  // True if Decide() would return the arg-max of the raw logits for each of
  // `count` rows from `position` on, so that these need not be written down.
  // Holds under the ratio rule too: where p is all on one token, the draft
  // token is that one, or it is rejected and corrected to it.
  bool IsPlainArgMax(int position, size_t count) const;

  // The token for each draft token, and one beyond. Those behind a wrong draft
  // token mean nothing. `logits` are the target's, [draft.size() + 1,
  // vocab_size] f32. INTERNAL if they are not numbers or no token is left.
  // REQUIRES: rows.log is not empty; under the ratio rule ValidateDraft holds
  // for each draft token.
  absl::StatusOr<std::vector<int32_t>> Decide(absl::Span<const float> logits,
                                              const StepRows& rows);

  // What the target thinks of the draft tokens that count and of what it
  // decided; the arguments are Decide's, `tokens` its answer.
  TracedRows Trace(absl::Span<const float> logits,
                   const StepRows& rows,
                   absl::Span<const int32_t> tokens);

  AcceptanceRule rule() const { return rule_; }

 private:
  // -1 if no token is left.
  int32_t DecideRow(absl::Span<const float> row,
                    const StepRows& rows,
                    size_t index);

  const AcceptanceRule rule_;
  const int32_t choice_;
  CoupledSampler coupled_;
  Pipeline pipeline_;
  LogprobReader logprob_reader_;
};

}  // namespace specwire::verifier
