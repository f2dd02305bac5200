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

// Share of the runs of `length` tokens that occurred earlier in the same text:
// a greedy text that goes in circles is easy to look up. 0 if it is shorter.
double RepeatRate(const std::vector<int32_t>& token_ids, int length = 4);

}  // namespace specwire::cli::bench
