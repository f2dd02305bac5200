// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace specwire::cli::bench {

// A distribution in a few numbers; all 0 if there are no values.
struct Summary {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
Summary Summarize(std::vector<double> values);

// The value below which a share `p` of `sorted` lies, interpolated between
// neighbours: the first is at 0, the last at 1.
// REQUIRES: `sorted` is ascending and not empty; 0 <= p <= 1.
double Percentile(const std::vector<double>& sorted, double p);

// REQUIRES: not empty.
double Median(std::vector<double> values);

// The t for which a variable of Student's distribution lies in [-t, t] with
// probability 0.95. REQUIRES: degrees >= 1.
double StudentT95(int64_t degrees);

// What paired ratios say: their geometric mean and, with two pairs or more, the
// 95 % interval of Student's t distribution over their logarithms.
struct RatioEstimate {
  int64_t pairs = 0;
  double geometric_mean = 0;
  struct Interval {
    double low;
    double high;
  };
  std::optional<Interval> interval;
};
// Nothing if there is no ratio. REQUIRES: all are positive.
std::optional<RatioEstimate> EstimateRatio(const std::vector<double>& ratios);

// The work of one pair: tokens and the time that they took, on both sides.
struct PairedWork {
  double tokens = 0;
  double time = 0;
  double base_tokens = 0;
  double base_time = 0;
};
// All tokens by all time, over the same of the base; with two pairs or more the
// 95 % interval over 2000 samples of the pairs (bootstrap, always the same
// samples). Long pairs count for more, as they do for whoever waits for them.
struct PooledRatio {
  int64_t pairs = 0;
  double ratio = 0;
  std::optional<RatioEstimate::Interval> interval;
};
// Pairs in which something is zero are left out; nothing if no pair is left.
std::optional<PooledRatio> PoolPairs(std::vector<PairedWork> pairs);
// The median of a ratio of each pair, with an interval as above: what disturbed
// a few of them does not count. Nothing if there is none.
std::optional<PooledRatio> MedianOfPairs(const std::vector<double>& ratios);

}  // namespace specwire::cli::bench
