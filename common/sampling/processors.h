// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/token_counts.h"

namespace specwire {

// The stages of the pipeline that change single logits, in this order:
//   logit_bias          is added;
//   min_tokens          tokens that end the sequence become -infinity at
//                       positions before prompt_length + min_tokens;
//   repetition_penalty  the logit of a token that is in prompt or output is
//                       divided by it if positive, else multiplied by it (as
//                       in vLLM; CTRL, arXiv 1909.05858);
//   frequency_penalty   times the token's count in the output is subtracted;
//   presence_penalty    is subtracted if it is in the output at all.
// Counts are those of the tokens before the position, draft tokens included.
// Arithmetic is in double, rounded to float after the bias and after the
// penalties; a finite logit stays finite. What is not a number stays none.
//
// Thread safety: one thread at a time.
class LogitProcessors {
 public:
  LogitProcessors(const SamplingParams& params, SequenceContext context);

  // Whether a row for this position may be changed.
  bool ActiveAt(int position) const;
  // The changed row. Where no stage is on it is `logits` itself, nothing is
  // copied and the history is not looked at; else it is valid until the next
  // call. Tokens outside the row are left alone.
  absl::Span<const float> Apply(absl::Span<const float> logits,
                                const TokenHistory& history);

 private:
  bool MasksAt(int position) const;
  float Penalise(float logit, const TokenCounts::Entry& entry) const;

  const std::vector<LogitBias> logit_bias_;
  const double repetition_penalty_;
  const double frequency_penalty_;
  const double presence_penalty_;
  const bool penalties_on_;
  const std::vector<int32_t> end_token_ids_;
  // First position at which the sequence may end.
  const int64_t first_end_;
  TokenCounts counts_;
  std::vector<float> row_;
};

}  // namespace specwire
