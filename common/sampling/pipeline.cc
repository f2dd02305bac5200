// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/kernels/maths.h"

namespace specwire {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kChunk = 1024;

// Most likely first, lower id first on a tie.
bool Before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.token_id < b.token_id;
}

bool LowerId(const Candidate& a, const Candidate& b) {
  return a.token_id < b.token_id;
}

// Sum in an order that does not depend on who adds: in chunks, each by 16 lanes
// that are folded in halves, chunk results in order.
double FixedOrderSum(absl::Span<const double> values) {
  double sum = 0;
  for (size_t begin = 0; begin < values.size(); begin += kChunk) {
    const size_t end = std::min(begin + kChunk, values.size());
    double lanes[kLanes] = {};
    for (size_t i = begin; i < end; ++i)
      lanes[(i - begin) % kLanes] += values[i];
    for (size_t width = kLanes / 2; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    sum += lanes[0];
  }
  return sum;
}

double MaxScore(absl::Span<const Candidate> candidates) {
  double best = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) best = std::max(best, c.score);
  return best;
}

// e^(score - largest score) of each candidate.
std::vector<double> Weights(absl::Span<const Candidate> candidates) {
  const double best = MaxScore(candidates);
  std::vector<double> weights(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = Exp(candidates[i].score - best);
  }
  return weights;
}

void CutMinP(float min_p, std::vector<Candidate>* candidates) {
  const double least = MaxScore(*candidates) + Log(static_cast<double>(min_p));
  std::erase_if(*candidates,
                [least](const Candidate& c) { return c.score < least; });
}

void CutTopK(size_t k, std::vector<Candidate>* candidates) {
  if (k >= candidates->size()) return;
  std::nth_element(candidates->begin(),
                   candidates->begin() + static_cast<std::ptrdiff_t>(k) - 1,
                   candidates->end(),
                   Before);
  candidates->resize(k);
  std::sort(candidates->begin(), candidates->end(), LowerId);
}

// Keeps the shortest most-likely prefix whose sum reaches top_p of the total.
void CutTopP(float top_p, std::vector<Candidate>* candidates) {
  const double best = MaxScore(*candidates);
  const double wanted =
      static_cast<double>(top_p) * FixedOrderSum(Weights(*candidates));
  // Sorting everything would cost far more than the sum: sort a little, and
  // more only if that was not enough.
  double reached = 0;
  size_t kept = 0;
  size_t sorted = 0;
  while (kept < candidates->size() && (kept == 0 || reached < wanted)) {
    if (kept == sorted) {
      sorted = std::min(candidates->size(), std::max<size_t>(64, sorted * 4));
      std::partial_sort(
          candidates->begin() + static_cast<std::ptrdiff_t>(kept),
          candidates->begin() + static_cast<std::ptrdiff_t>(sorted),
          candidates->end(),
          Before);
    }
    reached += Exp((*candidates)[kept++].score - best);
  }
  candidates->resize(kept);
  std::sort(candidates->begin(), candidates->end(), LowerId);
}

}  // namespace

std::vector<Candidate> ApplyPipeline(absl::Span<const float> logits,
                                     const SamplingParams& params) {
  const double temperature = static_cast<double>(params.temperature);
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -std::numeric_limits<float>::infinity()) {
      candidates.push_back({static_cast<int32_t>(i),
                            static_cast<double>(logits[i]) / temperature});
    }
  }
  if (candidates.empty()) return candidates;
  if (params.min_p > 0) CutMinP(params.min_p, &candidates);
  if (params.top_k > 0) {
    CutTopK(static_cast<size_t>(params.top_k), &candidates);
  }
  if (params.top_p < 1) CutTopP(params.top_p, &candidates);
  return candidates;
}

double Probability(absl::Span<const float> logits, int32_t token) {
  float best = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) best = std::max(best, logit);
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight =
        Exp(static_cast<double>(logits[i]) - static_cast<double>(best));
    weights[i] = weight == weight ? weight : 0;
  }
  const double sum = FixedOrderSum(weights);
  return sum > 0 ? weights[static_cast<size_t>(token)] / sum : 0;
}

std::vector<double> Probabilities(absl::Span<const Candidate> candidates) {
  std::vector<double> weights = Weights(candidates);
  const double sum = FixedOrderSum(weights);
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace specwire
