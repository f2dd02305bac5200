// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace specwire {

// Sums over the vocabulary, the same on every machine: doubles, own Exp and
// Log, in chunks of 1024 ids, each by 16 lanes (lane i takes the ids i, i + 16,
// ...) that are folded in halves; chunk results are added in order. A token
// that is left out counts as 0, which changes no bit, so it does not matter who
// leaves it out.
//
// Thread safety: functions from any thread, LaneSum one at a time.

// Sums what single tokens weigh. Weights are >= 0.
class LaneSum {
 public:
  // REQUIRES: token ids ascend.
  void Add(int32_t token_id, double weight);
  double Total();

 private:
  void EndChunk();

  double lanes_[16] = {};
  double total_ = 0;
  int32_t chunk_ = 0;
};

// The sum over i of e^(row[i] / temperature - best), [vocab_size] f32. What is
// not a number, or so small that the exponent is below -700, counts as 0.
// REQUIRES: best is finite, and at least the largest row[i] / temperature.
double SumOfWeights(absl::Span<const float> row,
                    double temperature,
                    double best);

// The same, and the single weights, as many as the row has logits.
double WeightsOfRow(absl::Span<const float> row,
                    double temperature,
                    double best,
                    double* weights);

// Log-probability of a token under raw logits, [vocab_size] f32: -infinity if
// its logit is that or no number. Logits of +infinity share all the
// probability. REQUIRES: token is an index of logits.
double LogProbability(absl::Span<const float> logits, int32_t token);
// The same as a probability, 0 instead of -infinity.
double Probability(absl::Span<const float> logits, int32_t token);

// What all logits have in common: the logarithm of a token's probability is
// (logit - largest) - log_sum.
struct LogSum {
  double largest = 0;
  double log_sum = 0;
};
// REQUIRES: `largest` is the largest of logits.
LogSum LogSumOfRow(absl::Span<const float> logits, float largest);
double LogProbability(float logit, const LogSum& sum);

}  // namespace specwire
