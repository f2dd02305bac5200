// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/processors.h"
#include "common/sampling/row_maxima.h"

namespace specwire {

// A token that survived the pipeline.
struct Candidate {
  int32_t token_id = 0;
  // Processed logit divided by temperature: a log-probability up to a constant.
  double score = 0;
};

// A probability distribution over some tokens, by ascending id.
struct TokenDistribution {
  std::vector<int32_t> token_ids;
  // As many as token_ids, in (0, 1].
  std::vector<double> probabilities;
};

// The probability of a token; 0 if it is not among them.
double ProbabilityOf(const TokenDistribution& distribution, int32_t token);

// What the pipeline makes of one sequence's logits, position by position:
// logit_bias, min_tokens and penalties (LogitProcessors), temperature, min_p,
// top_k, top_p.
//   min_p keeps what is at least min_p times as likely as the likeliest token;
//   top_k keeps the k likeliest of these;
//   top_p keeps of these the shortest most-likely prefix whose probabilities,
//         renormalised among these, reach top_p.
// Ties at a cut keep the lowest ids. NaN counts as -infinity, which is never
// kept; logits of +infinity leave only each other, as equals. 0 and -0 are
// equal.
//
// What is kept is a function of logits, history and parameters alone and the
// same on every machine: all sums are doubles in a fixed order (softmax.h), and
// shortcuts only leave out what cannot matter.
//
// Thread safety: one thread at a time. Memory is kept from call to call.
class Pipeline {
 public:
  Pipeline(SamplingParams params, SequenceContext context);

  // Bias, mask and penalties: see LogitProcessors::Apply. REQUIRES: logits,
  // [vocab_size] f32, is not empty.
  absl::Span<const float> Process(absl::Span<const float> logits,
                                  const TokenHistory& history) {
    return processors_.Apply(logits, history);
  }
  // Whether Process may change a row for this position.
  bool ProcessesAt(int position) const {
    return processors_.ActiveAt(position);
  }

  // Temperature and cuts, for a processed row: what is left by ascending id; at
  // least one token, none if no logit is above -infinity. Valid until the next
  // call. REQUIRES: not greedy(), row is not empty.
  absl::Span<const Candidate> Cut(absl::Span<const float> row);

  // The whole pipeline: the distribution that the next token is drawn from, all
  // on the arg-max if greedy(). Empty if no logit is above -infinity. Valid
  // until the next call. Tokens less likely than e^-700 times the likeliest are
  // left out.
  const TokenDistribution& Distribution(absl::Span<const float> logits,
                                        const TokenHistory& history);

  // Temperature 0 (below kGreedyTemperature): the arg-max of processed logits.
  bool greedy() const { return params_.temperature < kGreedyTemperature; }
  // No token is cut.
  bool uncut() const {
    return params_.min_p <= 0 && params_.top_k <= 0 && params_.top_p >= 1;
  }
  const SamplingParams& params() const { return params_; }

 private:
  double ScoreOf(float logit) const {
    return static_cast<double>(logit) / temperature_;
  }
  // Appends the row's tokens with low <= score < high, by ascending id.
  // REQUIRES: maxima_ is the row's.
  void Collect(absl::Span<const float> row,
               double low,
               double high,
               std::vector<Candidate>* out) const;
  // Turn a row whose largest logit is finite, or what the cuts left of one,
  // into distribution_, which is empty.
  void FillUncut(absl::Span<const float> row);
  void FillFromCandidates(absl::Span<const Candidate> candidates);
  void KeepEquals(absl::Span<const float> row, float logit);
  // The cuts, on candidates_; the last one also on a whole row that nothing cut
  // before.
  void KeepTopK(size_t k);
  void KeepTopP(double best);
  void KeepTopPOfRow(absl::Span<const float> row, double best);
  // Keeps of the bands that `next_band(low, high)` puts into band_ the shortest
  // most-likely prefix that weighs `wanted`.
  template <class NextBand>
  void KeepPrefix(double best, double wanted, NextBand next_band);

  const SamplingParams params_;
  const double temperature_;
  LogitProcessors processors_;
  RowMaxima maxima_;
  std::vector<Candidate> candidates_;
  // Scratch.
  std::vector<Candidate> band_;
  std::vector<Candidate> kept_;
  std::vector<double> scores_;
  TokenDistribution distribution_;
};

}  // namespace specwire
