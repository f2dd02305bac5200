// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/sampling/params.h"

namespace specwire {

// Chooses tokens under the coupled rule (Gumbel-max with shared noise; Daliri,
// Musco, Suresh, arXiv 2408.07978): the token at position t is
//   argmax_v (l_t(v) + g(seed, t, v))
// over the tokens that survive the pipeline, where l is the log-probability and
// g Gumbel noise keyed by seed, position, token and choice; lowest id on a tie.
// At temperature 0 it is the arg-max of the logits. Target and drafter use the
// same class, each on its own logits, so a draft token is right if it is equal.
//
// Thread safety: const methods from any thread.
class CoupledSampler {
 public:
  // `choice` is the index of this sample among the request's n.
  CoupledSampler(SamplingParams params, int32_t choice);

  // The token at `position` given the target's logits there, [vocab_size] f32;
  // -1 if no logit is a number.
  // REQUIRES: logits is not empty, position >= 0.
  int32_t Choose(absl::Span<const float> logits, int position) const;

  const SamplingParams& params() const { return params_; }

 private:
  SamplingParams params_;
  int32_t choice_;
  bool greedy_;
  // No token is cut, so there is no need to list the survivors.
  bool uncut_;
};

}  // namespace specwire
