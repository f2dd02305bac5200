// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/params.h"

namespace specwire {

// A token that survived the pipeline.
struct Candidate {
  int32_t token_id = 0;
  // Logit divided by temperature: a log-probability up to a constant.
  double score = 0;
};

// Applies temperature, min_p, top_k and top_p, in this order, to one position's
// logits, [vocab_size] f32, and returns what is left by ascending id; at least
// one token, none if no logit is finite. NaN counts as minus infinity. Ties at
// a cut keep the lowest ids; top_p sums run over what min_p and top_k left.
//
// The result is the same on every machine: all sums are doubles in a fixed
// order.
//
// REQUIRES: logits is not empty, params.temperature >= kGreedyTemperature.
std::vector<Candidate> ApplyPipeline(absl::Span<const float> logits,
                                     const SamplingParams& params);

// Probabilities of candidates, renormalised.
std::vector<double> Probabilities(absl::Span<const Candidate> candidates);

// Softmax probability of one token under raw logits, [vocab_size] f32; 0 if it
// is not a number. REQUIRES: token is an index of logits.
double Probability(absl::Span<const float> logits, int32_t token);

}  // namespace specwire
