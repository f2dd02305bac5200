// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/bench/runner.h"
#include "cli/bench/sweep_cluster.h"
#include "cli/client.h"
#include "common/base/logging.h"
#include "common/base/processors.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"

namespace specwire::cli::bench {
namespace {

// Of the first measurement of a plain step.
constexpr int64_t kPlainRequests = 6;

UpOptions ClusterOptions(const UpOptions& up, const std::string& drafter) {
  UpOptions options = up;
  options.listen = "127.0.0.1:0";
  options.http = "none";
  options.num_processors = UsableProcessors();
  options.drafter = drafter;
  if (drafter == kLocalDrafter) {
    // Any but none, which is plain decoding.
    options.drafter = kNgramDrafter;
    options.num_draft_nodes = 0;
  }
  return options;
}

// The points of one drafter and temperature, as they are measured.
class ClusterRunner {
 public:
  ClusterRunner(const Options& options,
                const std::vector<Question>& questions,
                ClusterSweep* sweep)
      : options_(options), questions_(questions), sweep_(sweep) {}

  // CANCELLED if a signal asked to stop.
  absl::Status Run(const SweepOptions& grid,
                   const UpOptions& up,
                   absl::Duration ready_timeout) {
    SPECWIRE_ASSIGN_OR_RETURN(
        cluster_,
        SweepCluster::Start(
            ClusterOptions(up, sweep_->drafter), grid.link, ready_timeout));
    SPECWIRE_ASSIGN_OR_RETURN(
        client_,
        Client::ConnectTo(cluster_->coordinator(), kConnectTimeout, {}));
    SPECWIRE_ASSIGN_OR_RETURN(sweep_->step_costs, cluster_->StepCosts());
    SPECWIRE_RETURN_IF_ERROR(MeasurePlainStep());
    const absl::Status measured = MeasurePoints(grid);
    if (absl::IsCancelled(measured)) return measured;
    SPECWIRE_ASSIGN_OR_RETURN(sweep_->draft_token, cluster_->DraftTokenTime());
    return measured;
  }

 private:
  absl::StatusOr<RunResult> Measure(const Options& options) {
    SPECWIRE_ASSIGN_OR_RETURN(RequestMaker maker,
                              RequestMaker::Create(options, &questions_));
    RunResult run = RunBlocks(
        options, questions_, {client_->generation()}, std::move(maker));
    if (run.interrupted) return absl::CancelledError("interrupted");
    if (!run.gave_up) return run;
    return absl::UnavailableError(absl::StrCat(
        "too many requests failed in a row, for example: ",
        run.records.empty() ? "" : run.records.back().status.message()));
  }

  absl::Status MeasurePlainStep() {
    Options options = options_;
    options.modes = {Mode::kPlain};
    options.num = std::min(kPlainRequests, options_.num.value_or(1));
    options.temperature = sweep_->temperature;
    SPECWIRE_ASSIGN_OR_RETURN(const RunResult run, Measure(options));
    const Report report = MakeReport(run, options, questions_);
    const Figures& plain = report.modes.at(Mode::kPlain);
    if (plain.itl_ms.count == 0) {
      return absl::FailedPreconditionError(
          "no plain request had two tokens, so a plain step is not known");
    }
    sweep_->plain_step = absl::Milliseconds(plain.itl_ms.p50);
    return absl::OkStatus();
  }

  absl::Status MeasurePoints(const SweepOptions& grid) {
    const std::vector<SweepPoint> points = PointsOf(grid);
    for (const SweepPoint& point : points) {
      SweepResult result;
      result.point = point;
      const absl::Duration round_trip = point.round_trip * sweep_->plain_step;
      SPECWIRE_RETURN_IF_ERROR(cluster_->SetRoundTrip(round_trip, grid.jitter));
      // Jitter is drawn evenly.
      result.round_trip = (1 + grid.jitter / 2) * round_trip;
      const Options options = PointOptions(point);
      SPECWIRE_ASSIGN_OR_RETURN(const RunResult run, Measure(options));
      result.report = MakeReport(run, options, questions_);
      result.pairs = PairsOf(run);
      sweep_->results.push_back(std::move(result));
      SPECWIRE_LOG(Info,
                   "drafter ",
                   sweep_->drafter,
                   ", temperature ",
                   sweep_->temperature,
                   ": ",
                   sweep_->results.size(),
                   " of ",
                   points.size(),
                   " points");
    }
    return absl::OkStatus();
  }

  Options PointOptions(const SweepPoint& point) const {
    Options options = options_;
    options.modes = {Mode::kPlain, Mode::kSpeculative};
    options.temperature = sweep_->temperature;
    if (point.run_length) {
      options.drafter = sweep_->drafter;
      options.max_draft_tokens = point.run_length;
      options.window = point.run_length;
      options.patience_us = -1;
    }
    return options;
  }

  const Options& options_;
  const std::vector<Question>& questions_;
  ClusterSweep* const sweep_;
  // Outlives the connection to it.
  std::unique_ptr<SweepCluster> cluster_;
  std::unique_ptr<Client> client_;
};

}  // namespace

Sweep RunSweep(const SweepOptions& grid,
               const Options& options,
               const std::vector<Question>& questions,
               const UpOptions& up,
               absl::Duration ready_timeout) {
  Sweep sweep;
  for (const std::string& drafter : grid.drafters) {
    for (const float temperature : grid.temperatures) {
      ClusterSweep cluster;
      cluster.drafter = drafter;
      cluster.temperature = temperature;
      const absl::Status status = ClusterRunner(options, questions, &cluster)
                                      .Run(grid, up, ready_timeout);
      if (!cluster.results.empty()) {
        SetExpectations(&cluster);
        sweep.clusters.push_back(std::move(cluster));
      }
      if (status.ok()) continue;
      sweep.interrupted = absl::IsCancelled(status);
      if (!sweep.interrupted) {
        sweep.status = absl::Status(
            status.code(),
            absl::StrCat("drafter ", drafter, ": ", status.message()));
      }
      return sweep;
    }
  }
  return sweep;
}

}  // namespace specwire::cli::bench
