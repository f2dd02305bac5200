// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "common/kernels/maths.h"
#include "common/sampling/greedy.h"
#include "common/sampling/row_kernels.h"
#include "common/sampling/softmax.h"

namespace specwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
// Weights below e^-700 count as 0 (softmax.h).
constexpr double kLeastExponent = -700;
// Tokens are sorted for top_p in bands of scores of this width, as many as are
// needed, and behind the last band all at once.
constexpr double kBandWidth = 2;
constexpr int kNumBands = 12;

// Most likely first, lower id first on a tie.
bool Before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.token_id < b.token_id;
}

bool LowerId(const Candidate& a, const Candidate& b) {
  return a.token_id < b.token_id;
}

double Weight(double score, double best) {
  const double exponent = score - best;
  return exponent >= kLeastExponent ? Exp(exponent) : 0.0;
}

double SumOfWeights(absl::Span<const Candidate> candidates, double best) {
  LaneSum sum;
  for (const Candidate& c : candidates) {
    sum.Add(c.token_id, Weight(c.score, best));
  }
  return sum.Total();
}

}  // namespace

double ProbabilityOf(const TokenDistribution& distribution, int32_t token) {
  const std::vector<int32_t>& ids = distribution.token_ids;
  const auto it = std::lower_bound(ids.begin(), ids.end(), token);
  if (it == ids.end() || *it != token) return 0;
  return distribution.probabilities[static_cast<size_t>(it - ids.begin())];
}

Pipeline::Pipeline(SamplingParams params, SequenceContext context)
    : params_(std::move(params)),
      temperature_(static_cast<double>(params_.temperature)),
      processors_(params_, std::move(context)) {}

absl::Span<const Candidate> Pipeline::Cut(absl::Span<const float> row) {
  candidates_.clear();
  maxima_.Compute(row);
  const float largest = maxima_.largest();
  if (largest == -kFloatInfinity) return candidates_;
  const bool endless = largest == kFloatInfinity;
  if (endless) KeepEquals(row, largest);
  const double best = endless ? 0.0 : ScoreOf(largest);
  const double least = params_.min_p > 0
                           ? best + Log(static_cast<double>(params_.min_p))
                           : -kInfinity;
  const bool top_k_on =
      params_.top_k > 0 && static_cast<size_t>(params_.top_k) < row.size();
  if (!endless) {
    double low = least;
    if (top_k_on) {
      const float kth = maxima_.LowerBoundOfKth(params_.top_k);
      // A bound that no logit is below needs none.
      if (kth > -kFloatInfinity) low = std::max(low, ScoreOf(kth));
    }
    if (params_.top_p < 1 && params_.min_p <= 0 && !top_k_on) {
      KeepTopPOfRow(row, best);
      return candidates_;
    }
    Collect(row, low, kInfinity, &candidates_);
  }
  if (top_k_on) KeepTopK(static_cast<size_t>(params_.top_k));
  if (params_.top_p < 1) KeepTopP(best);
  return candidates_;
}

void Pipeline::KeepEquals(absl::Span<const float> row, float logit) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == logit) candidates_.push_back({static_cast<int32_t>(i), 0.0});
  }
}

void Pipeline::Collect(absl::Span<const float> row,
                       double low,
                       double high,
                       std::vector<Candidate>* out) const {
  const absl::Span<const float> groups = maxima_.groups();
  // A little below `low`, so that this shortcut never decides.
  const double bound = low * temperature_;
  const double least = bound - std::abs(bound) * 1e-9;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (static_cast<double>(groups[g]) < least) continue;
    const size_t begin = g * kGroupTokens;
    const size_t end = std::min(begin + kGroupTokens, row.size());
    for (size_t i = begin; i < end; ++i) {
      if (!(row[i] > -kFloatInfinity)) continue;
      const double score = ScoreOf(row[i]);
      if (score >= low && score < high) {
        out->push_back({static_cast<int32_t>(i), score});
      }
    }
  }
}

void Pipeline::KeepTopK(size_t k) {
  if (k >= candidates_.size()) return;
  scores_.clear();
  for (const Candidate& c : candidates_) scores_.push_back(c.score);
  const auto kth = scores_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(scores_.begin(), kth, scores_.end(), std::greater<>());
  const double least = *kth;
  size_t above = 0;
  for (const Candidate& c : candidates_) above += c.score > least ? 1 : 0;
  // Of those that tie at the cut, the lowest ids fill up what is left.
  size_t room = k - above;
  size_t kept = 0;
  for (const Candidate& c : candidates_) {
    if (c.score < least || (c.score == least && room == 0)) continue;
    if (c.score == least) --room;
    candidates_[kept++] = c;
  }
  candidates_.resize(kept);
}

void Pipeline::KeepTopP(double best) {
  const double wanted =
      static_cast<double>(params_.top_p) * SumOfWeights(candidates_, best);
  KeepPrefix(best, wanted, [this](double low, double high) {
    for (const Candidate& c : candidates_) {
      if (c.score >= low && c.score < high) band_.push_back(c);
    }
  });
}

void Pipeline::KeepTopPOfRow(absl::Span<const float> row, double best) {
  const double wanted = static_cast<double>(params_.top_p) *
                        SumOfWeights(row, temperature_, best);
  KeepPrefix(best, wanted, [this, row](double low, double high) {
    Collect(row, low, high, &band_);
  });
}

template <class NextBand>
void Pipeline::KeepPrefix(double best, double wanted, NextBand next_band) {
  kept_.clear();
  double reached = 0;
  double high = kInfinity;
  const auto enough = [&] { return !kept_.empty() && reached >= wanted; };
  for (int i = 1; !enough() && high > -kInfinity; ++i) {
    const double low = i <= kNumBands ? best - i * kBandWidth : -kInfinity;
    band_.clear();
    next_band(low, high);
    std::sort(band_.begin(), band_.end(), Before);
    for (const Candidate& c : band_) {
      kept_.push_back(c);
      reached += Weight(c.score, best);
      if (enough()) break;
    }
    high = low;
  }
  std::sort(kept_.begin(), kept_.end(), LowerId);
  candidates_.swap(kept_);
}

const TokenDistribution& Pipeline::Distribution(absl::Span<const float> logits,
                                                const TokenHistory& history) {
  distribution_.token_ids.clear();
  distribution_.probabilities.clear();
  const absl::Span<const float> row = Process(logits, history);
  if (greedy()) {
    const int32_t token = ArgMax(row);
    if (token >= 0 && row[static_cast<size_t>(token)] > -kFloatInfinity) {
      distribution_.token_ids.push_back(token);
      distribution_.probabilities.push_back(1.0);
    }
    return distribution_;
  }
  if (uncut()) maxima_.Compute(row);
  if (uncut() && std::isfinite(maxima_.largest())) {
    FillUncut(row);
  } else {
    FillFromCandidates(Cut(row));
  }
  return distribution_;
}

void Pipeline::FillUncut(absl::Span<const float> row) {
  std::vector<double>& weights = distribution_.probabilities;
  weights.resize(row.size());
  const double total = WeightsOfRow(
      row, temperature_, ScoreOf(maxima_.largest()), weights.data());
  size_t kept = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (weights[i] == 0) continue;
    distribution_.token_ids.push_back(static_cast<int32_t>(i));
    weights[kept++] = weights[i] / total;
  }
  weights.resize(kept);
}

void Pipeline::FillFromCandidates(absl::Span<const Candidate> candidates) {
  double best = -kInfinity;
  for (const Candidate& c : candidates) best = std::max(best, c.score);
  LaneSum sum;
  for (const Candidate& c : candidates) {
    const double weight = Weight(c.score, best);
    if (weight == 0) continue;
    sum.Add(c.token_id, weight);
    distribution_.token_ids.push_back(c.token_id);
    distribution_.probabilities.push_back(weight);
  }
  const double total = sum.Total();
  for (double& probability : distribution_.probabilities) {
    probability /= total;
  }
}

}  // namespace specwire
