// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/bench/figures.h"
#include "cli/bench/speedup_model.h"
#include "cli/bench/sweep_options.h"
#include "specwire/v1/verifier.pb.h"

// What the points of a sweep measured, held against what they should have.

namespace specwire::cli::bench {

// What a point should have reached, by SpeedupModel.
struct SweepExpectation {
  // The best over all run lengths if the way from verdict to proposal took no
  // time at all, from the fixed run lengths at the shortest round trip; 1 if
  // none pays.
  double ideal = 1;
  int ideal_run_length = 0;
  // With the point's round trip. Of a fixed run length: with its own survival,
  // so that what is held against the model is time alone. Where it is the
  // coordinator's choice: of the best run length, from the same as `ideal`; 1
  // if none pays.
  double model = 1;
  int model_run_length = 0;
  // Of a fixed run length: the round that the model expects of each request by
  // what it accepted, over the one it had; the median, so that what disturbed a
  // few of them does not count.
  std::optional<PooledRatio> rounds;
};

// A request that decoded in both modes.
struct SweepPair {
  // Of it alone, with drafts.
  Figures speculative;
  // Mean times behind the first token: of a token without drafts, and of a
  // verify pass with them.
  double plain_step_ms = 0;
  double round_ms = 0;
};
std::vector<SweepPair> PairsOf(const RunResult& run);

struct SweepResult {
  SweepPoint point;
  // What the way took longer in the mean, jitter included.
  absl::Duration round_trip;
  Report report;
  std::vector<SweepPair> pairs;
  std::optional<SweepExpectation> expected;

  const Figures& speculative() const {
    return report.modes.at(Mode::kSpeculative);
  }
  // Of decoding alone: the model knows no queue and no prompt. Pooled over all
  // requests, as the model's rounds are.
  std::optional<PooledRatio> decoding() const;
  std::optional<double> speedup() const;
  // Against ideal and model: 1 is as good as can be, more is possible where the
  // coordinator does better than any fixed run length. By `speedup` and its
  // interval; eta_net of a fixed run length by `expected->rounds`.
  std::optional<PooledRatio> eta() const;
  std::optional<PooledRatio> eta_net() const;
  // Failures, or token ids that differ.
  bool HasFaults() const;
};

// The points of one drafter and temperature, which had a cluster of their own:
// what its coordinator had learnt from others would decide where it begins.
struct ClusterSweep {
  std::string drafter;
  float temperature = 0;
  // Median time of a further token in plain decoding, measured first.
  absl::Duration plain_step;
  // Of a draft token, as its node tells it; 0 if it does not, or there is none.
  absl::Duration draft_token;
  // Of the verifier.
  std::vector<v1::StepCost> step_costs;
  std::vector<SweepResult> results;
  // What SetExpectations found out at the shortest round trip, in plain steps.
  std::optional<DraftLoop> loop;
};

struct Sweep {
  std::vector<ClusterSweep> clusters;
  bool interrupted = false;
  // Why it ended early, if it did.
  absl::Status status;

  bool HasFaults() const;
};

// Fills in `expected` of every point and `loop`, where enough was measured. The
// context that passes are taken at is the mean of the middle of the requests.
void SetExpectations(ClusterSweep* cluster);

}  // namespace specwire::cli::bench
