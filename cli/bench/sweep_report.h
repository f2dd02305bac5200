// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/bench/figures.h"
#include "cli/bench/options.h"
#include "cli/bench/plot.h"
#include "cli/bench/sweep_options.h"
#include "nlohmann/json.hpp"
#include "specwire/v1/verifier.pb.h"

// From the points of a sweep to what is printed. Pure functions.

namespace specwire::cli::bench {

// What a point should have reached, by SpeedupModel with the fixed run lengths
// of the same cluster at the shortest round trip.
struct SweepExpectation {
  // The best over all run lengths without any round trip; 1 if none pays.
  double ideal = 1;
  int ideal_run_length = 0;
  // With the point's round trip: of its own run length, or, where that is the
  // coordinator's choice, of the best one, 1 if none pays.
  double model = 1;
  int model_run_length = 0;
};

struct SweepResult {
  SweepPoint point;
  // Of round_trip plain steps.
  absl::Duration round_trip;
  Report report;
  std::optional<SweepExpectation> expected;

  const Figures& speculative() const {
    return report.modes.at(Mode::kSpeculative);
  }
  // Of decoding alone: the model knows no queue and no prompt. Pooled over all
  // requests, as the model's rounds are.
  std::optional<double> speedup() const;
  // speedup / ideal and speedup / model: 1 is as good as can be, more is
  // possible where the coordinator does better than any fixed run length.
  std::optional<double> eta() const;
  std::optional<double> eta_net() const;
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
  // Of a draft token; 0 if it is not measured, as of lookups.
  absl::Duration draft_token;
  // Of the verifier.
  std::vector<v1::StepCost> step_costs;
  std::vector<SweepResult> results;
};

struct Sweep {
  std::vector<ClusterSweep> clusters;
  bool interrupted = false;
  // Why it ended early, if it did.
  absl::Status status;

  bool HasFaults() const;
};

// Fills in what every point should have reached, where enough was measured. The
// context that passes are taken at is the mean of the middle of the requests.
void SetExpectations(ClusterSweep* cluster);

std::string SweepText(const Sweep& sweep);
nlohmann::ordered_json SweepJson(const Sweep& sweep,
                                 const Options& options,
                                 const SweepOptions& grid);

// Speed-up by round trip, at the coordinator's run length or, if the sweep has
// none, the first of the grid; and by run length at the shortest round trip.
// One line for each drafter and temperature.
std::vector<Plot> SweepPlots(const Sweep& sweep, const SweepOptions& grid);

}  // namespace specwire::cli::bench
