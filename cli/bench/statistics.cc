// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>

namespace specwire::cli::bench {
namespace {

// The normal distribution's value for 95 %.
constexpr double kNormal95 = 1.959963984540054;

// Of 1 to 30 degrees of freedom.
constexpr double kStudent95[] = {
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060,
    2.2622,  2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199,
    2.1098,  2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
    2.0595,  2.0555, 2.0518, 2.0484, 2.0452, 2.0423};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// The 95 % interval of what `figure` makes of samples of `size` pairs.
template <typename Figure>
RatioEstimate::Interval Bootstrap(size_t size, Figure figure) {
  constexpr int kSamples = 2000;
  std::mt19937_64 random(kSamples);
  std::vector<double> figures;
  std::vector<size_t> picked(size);
  for (int i = 0; i < kSamples; ++i) {
    for (size_t& index : picked) index = random() % size;
    figures.push_back(figure(picked));
  }
  std::sort(figures.begin(), figures.end());
  return {Percentile(figures, 0.025), Percentile(figures, 0.975)};
}

}  // namespace

double Percentile(const std::vector<double>& sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Percentile(values, 0.5);
}

Summary Summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  summary.count = static_cast<int64_t>(values.size());
  summary.mean = Mean(values);
  summary.p50 = Percentile(values, 0.5);
  summary.p90 = Percentile(values, 0.9);
  summary.p99 = Percentile(values, 0.99);
  return summary;
}

double StudentT95(int64_t degrees) {
  if (degrees <= static_cast<int64_t>(std::size(kStudent95))) {
    return kStudent95[degrees - 1];
  }
  // The series in 1/degrees around the normal distribution (Fisher); with more
  // than 30 degrees these two terms are exact to 1e-4.
  const double z = kNormal95;
  const double n = static_cast<double>(degrees);
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
}

std::optional<RatioEstimate> EstimateRatio(const std::vector<double>& ratios) {
  if (ratios.empty()) return std::nullopt;
  std::vector<double> logs;
  for (double ratio : ratios) logs.push_back(std::log(ratio));
  const double mean = Mean(logs);
  RatioEstimate estimate;
  estimate.pairs = static_cast<int64_t>(ratios.size());
  estimate.geometric_mean = std::exp(mean);
  if (ratios.size() < 2) return estimate;
  double squares = 0;
  for (double log : logs) squares += (log - mean) * (log - mean);
  const double n = static_cast<double>(ratios.size());
  const double half =
      StudentT95(estimate.pairs - 1) * std::sqrt(squares / (n - 1) / n);
  estimate.interval =
      RatioEstimate::Interval{std::exp(mean - half), std::exp(mean + half)};
  return estimate;
}

std::optional<PooledRatio> PoolPairs(std::vector<PairedWork> pairs) {
  std::erase_if(pairs, [](const PairedWork& pair) {
    return !(pair.tokens > 0 && pair.time > 0 && pair.base_tokens > 0 &&
             pair.base_time > 0);
  });
  if (pairs.empty()) return std::nullopt;
  const auto ratio = [](const PairedWork& sum) {
    return sum.tokens / sum.time / (sum.base_tokens / sum.base_time);
  };
  const auto add = [](const PairedWork& pair, PairedWork* sum) {
    sum->tokens += pair.tokens;
    sum->time += pair.time;
    sum->base_tokens += pair.base_tokens;
    sum->base_time += pair.base_time;
  };
  PairedWork sum;
  for (const PairedWork& pair : pairs) add(pair, &sum);
  PooledRatio pooled;
  pooled.pairs = static_cast<int64_t>(pairs.size());
  pooled.ratio = ratio(sum);
  if (pairs.size() < 2) return pooled;
  pooled.interval =
      Bootstrap(pairs.size(), [&](const std::vector<size_t>& picked) {
        PairedWork sample;
        for (const size_t index : picked) add(pairs[index], &sample);
        return ratio(sample);
      });
  return pooled;
}

std::optional<PooledRatio> MedianOfPairs(const std::vector<double>& ratios) {
  if (ratios.empty()) return std::nullopt;
  PooledRatio median{
      static_cast<int64_t>(ratios.size()), Median(ratios), std::nullopt};
  if (ratios.size() < 2) return median;
  median.interval =
      Bootstrap(ratios.size(), [&](const std::vector<size_t>& picked) {
        std::vector<double> sample;
        for (const size_t index : picked) sample.push_back(ratios[index]);
        return Median(std::move(sample));
      });
  return median;
}

}  // namespace specwire::cli::bench
