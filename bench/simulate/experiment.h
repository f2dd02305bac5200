// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/simulate/simulation.h"
#include "bench/simulate/trace.h"

namespace specwire::simulate {

// What a set of requests did.
struct Tally {
  int64_t num_tokens = 0;
  // Sum of their durations.
  absl::Duration time = {};
  // Sums of passes and of draft tokens, verified and accepted.
  coordinator::SpeculationFigures figures = {};
  // Sum of their predicted speed-ups, each times its duration in seconds.
  double predicted = 0;

  Tally& operator+=(const Tally& other);
  // What they expected of themselves against plain decoding; 0 if nothing.
  double predicted_speedup() const;
  // Tokens a second of one of them.
  double rate() const;
  double tokens_per_pass() const;
};

// The name under which all categories are counted together.
inline constexpr char kAllCategories[] = "all";

// Runs each trace `repeats` times, in an order that `settings.seed` shuffles
// anew for each time, and counts by category and over all.
absl::StatusOr<std::map<std::string, Tally>> RunAll(
    const Settings& settings, const std::vector<Trace>& traces, int repeats);

// The fixed settings of a search in hindsight: plain, and every run length with
// a window of the same and of twice the size, without and with endless
// patience; `local`: and of the verifier's own drafts.
std::vector<Policy> FixedPolicies(const std::vector<int>& run_lengths,
                                  bool local = false);
// For example "plain", "5/10 waiting", "4 local".
std::string Describe(const Policy& policy);

// Control against hindsight, for one category. Rates are those of plain
// decoding under the same load.
struct Comparison {
  double adaptive = 0;
  double best_fixed = 0;
  Policy best;
  // Of the adaptive run.
  double tokens_per_pass = 0;
  double acceptance = 0;
  double predicted = 0;
  // Of the draft tokens that were verified, the verifier's own.
  double local = 0;
  // In the order of the policies.
  std::vector<double> fixed;

  double regret() const { return adaptive / best_fixed; }
};
// `settings.policy` is the adaptive one. Each category is run by itself unless
// `mixed`.
absl::StatusOr<std::map<std::string, Comparison>> CompareWithFixed(
    const Settings& settings,
    const std::vector<Trace>& traces,
    const std::vector<Policy>& fixed,
    int repeats,
    bool mixed);

// A drafter whose quality changes: `good`, then `bad`, then `good` again, each
// for `segment` tokens of one request.
Trace SwitchTrace(const std::vector<Trace>& good,
                  const std::vector<Trace>& bad,
                  int segment);
// The rate against plain decoding between two numbers of completion tokens.
// REQUIRES: 0 <= begin < end <= the request's tokens.
double SpeedupBetween(const RequestResult& result,
                      absl::Duration plain,
                      int64_t begin,
                      int64_t end);

}  // namespace specwire::simulate
