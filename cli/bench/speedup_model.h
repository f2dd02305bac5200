// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/figures.h"
#include "specwire/v1/verifier.pb.h"

// What speculation should bring, from what was measured of its parts. All times
// are in plain passes, those of one row. Pure functions.

namespace specwire::cli::bench {

// v(rows): how long a pass takes at a given context.
class PassCosts {
 public:
  // From a verifier's measurements, interpolated between contexts (constant
  // beyond the outermost) and then between rows (beyond the last as between the
  // last two). What else a machine does makes a pass longer, never shorter, so
  // a pass costs at most what one of more rows was measured to cost.
  // FAILED_PRECONDITION if a pass of one row was not measured.
  static absl::StatusOr<PassCosts> Create(
      const std::vector<v1::StepCost>& costs, double context_length);

  // v(rows), 1 for one row. REQUIRES: rows >= 1.
  double At(double rows) const;
  double plain_us() const { return points_.front().us; }

 private:
  struct Point {
    double rows;
    double us;
  };
  // Ascending; the first has one row.
  std::vector<Point> points_;
};

// What drafts of one fixed run length k did for a set of prompts in lock-step.
// A *round* is a verify pass behind the prompt; it is *answered* if it had
// draft tokens. A lookup answers only some rounds, the others are plain passes,
// and its runs may be shorter than k.
struct FixedRun {
  int run_length = 0;
  // a = num_spec_steps / (num_passes - requests), in [0, 1]: each request has
  // one pass that ends its prompt.
  double answered = 0;
  // m = num_draft_tokens / num_spec_steps.
  double offered = 0;
  // S_i, i = 1 to k: share of the answered rounds that accepted i draft tokens
  // or more, from acceptance_histogram.
  std::vector<double> survival;
  // Every round waits for a draft node. What the verifier looks up for itself
  // takes neither a way nor time.
  bool waits = true;
};
// Nothing was drafted, or nothing completed: `answered` is 0.
FixedRun MakeFixedRun(const Figures& speculative, int run_length, bool waits);

// S_1, S_2, ... of any figures: as FixedRun::survival, as far as the histogram
// goes.
std::vector<double> SurvivalOf(const v1::SpeculationStats& stats);

// What a draft costs beside its rows of a pass.
struct DraftLoop {
  // c: a draft token.
  double draft_token = 0;
  // b: the way verdict -> drafter -> proposal -> verifier, as far as it is not
  // made longer on purpose, and whatever else a round takes beyond a plain one.
  double base = 0;
};

// One request with drafts of a fixed run length, as it was timed.
struct TimedRun {
  FixedRun run;
  // What the way was made longer, and a round as measured.
  double round_trip = 0;
  double round_time = 0;
};
// b and c in place, by least squares over the medians of each run length, of
// rounds that waited. `draft_token` is what the drafter says of itself, idle:
// it holds, unless three run lengths or more tell better. At most twice as much
// is believed, and 0 at least: lookups among a model's runs are free, and a
// model that shares a machine's caches with the target is slower than alone.
DraftLoop MeasureLoop(const PassCosts& costs,
                      double draft_token,
                      const std::vector<TimedRun>& runs);

// The law of performance for one drafter and one set of prompts, of decoding
// behind the first token:
//
//   E(k)    = 1 + a (S_1 + ... + S_k)                      tokens a round
//   T(k, r) = 1 + b + r + a (c m(k) + v(1 + m(k)) - 1)     time a round
//   speedup = E(k) / T(k, r)
//
// 1 is a plain step in place, its messages to the client included. r is what
// the way from verdict to proposal takes longer, which lock-step pays in every
// round. Where every round is answered with whole runs (a = 1, m = k) that is
// E / (k c + v(k+1) + b + r). Without `waits`, b, r and c are nothing. a, S and
// m of a run length that was not measured come from the next longer one: the
// first k places of S, and m between those of the measured neighbours (0 for
// k = 0).
class SpeedupModel {
 public:
  // `runs` may have any order; those in which nothing was drafted count too.
  SpeedupModel(PassCosts costs, DraftLoop loop, std::vector<FixedRun> runs);

  // 0 if nothing was measured.
  int longest() const;
  // REQUIRES: 1 <= k <= longest().
  double TokensPerRound(int k) const;
  double RoundTime(int k, double round_trip) const;
  double Speedup(int k, double round_trip) const;

  // The best run length; 0 and 1 if plain decoding is better than any.
  struct Best {
    int run_length = 0;
    double speedup = 1;
  };
  Best BestAt(double round_trip) const;

 private:
  // The measured run from which k is told.
  const FixedRun& RunFor(int k) const;
  double Offered(int k) const;

  PassCosts costs_;
  DraftLoop loop_;
  // By length, ascending.
  std::vector<FixedRun> runs_;
};

}  // namespace specwire::cli::bench
