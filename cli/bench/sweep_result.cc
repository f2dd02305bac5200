// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep_result.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "common/drafting/drafter_names.h"

namespace specwire::cli::bench {
namespace {

// The middle of the requests, in tokens; 0 if none completed.
double TypicalContext(const std::vector<SweepResult>& results) {
  double tokens = 0;
  double requests = 0;
  for (const SweepResult& result : results) {
    const Figures& figures = result.speculative();
    tokens += static_cast<double>(figures.prompt_tokens) +
              static_cast<double>(figures.output_tokens) / 2;
    requests += static_cast<double>(figures.num_completed);
  }
  return requests > 0 ? tokens / requests : 0;
}

// What it has of both: its own plain steps, which what slowed the machine
// slowed as well.
double RoundTripIn(const SweepResult& result, absl::Duration plain_step) {
  const Summary& own = result.report.modes.at(Mode::kPlain).itl_ms;
  if (own.count > 0) plain_step = absl::Milliseconds(own.p50);
  return absl::FDivDuration(result.round_trip, plain_step);
}

// What a cluster's points are held against.
struct ClusterModel {
  PassCosts costs;
  DraftLoop loop;
  SpeedupModel ideal;
  SpeedupModel model;
};

FixedRun RunOf(const ClusterSweep& cluster, const SweepResult& result) {
  return MakeFixedRun(result.speculative(),
                      *result.point.run_length,
                      cluster.drafter != kLocalDrafter);
}

// The requests of a fixed run length.
std::vector<TimedRun> TimedRuns(const ClusterSweep& cluster,
                                const SweepResult& result) {
  std::vector<TimedRun> runs;
  for (const SweepPair& pair : result.pairs) {
    runs.push_back(
        {MakeFixedRun(pair.speculative,
                      *result.point.run_length,
                      cluster.drafter != kLocalDrafter),
         absl::ToDoubleMilliseconds(result.round_trip) / pair.plain_step_ms,
         pair.round_ms / pair.plain_step_ms});
  }
  return runs;
}

// Nothing if no fixed run length was measured, or no pass.
std::optional<ClusterModel> ModelFor(const ClusterSweep& cluster) {
  const absl::StatusOr<PassCosts> costs =
      PassCosts::Create(cluster.step_costs, TypicalContext(cluster.results));
  // Of the shortest round trip, which the first point has.
  std::vector<FixedRun> runs;
  std::vector<TimedRun> timed;
  for (const SweepResult& result : cluster.results) {
    if (!result.point.run_length || result.pairs.empty() ||
        result.point.round_trip != cluster.results.front().point.round_trip) {
      continue;
    }
    runs.push_back(RunOf(cluster, result));
    const std::vector<TimedRun> requests = TimedRuns(cluster, result);
    timed.insert(timed.end(), requests.begin(), requests.end());
  }
  if (!costs.ok() || timed.empty()) return std::nullopt;
  const double told =
      absl::ToDoubleMicroseconds(cluster.draft_token) / costs->plain_us();
  const DraftLoop loop = MeasureLoop(*costs, told, timed);
  // A bar is not lowered by what disturbs drafts in place, nor by a price that
  // is only a model's where lookups made some of them.
  const DraftLoop none{std::min(told, loop.draft_token), 0};
  return ClusterModel{*costs,
                      loop,
                      SpeedupModel(*costs, none, runs),
                      SpeedupModel(*costs, loop, runs)};
}

std::optional<PooledRatio> ExpectedRounds(const ClusterModel& cluster_model,
                                          const ClusterSweep& cluster,
                                          const SweepResult& result) {
  if (!result.point.run_length) return std::nullopt;
  std::vector<double> ratios;
  for (const TimedRun& timed : TimedRuns(cluster, result)) {
    const SpeedupModel model(
        cluster_model.costs, cluster_model.loop, {timed.run});
    ratios.push_back(model.RoundTime(timed.run.run_length, timed.round_trip) /
                     timed.round_time);
  }
  return MedianOfPairs(ratios);
}

SweepExpectation Expect(const ClusterModel& cluster_model,
                        const ClusterSweep& cluster,
                        const SweepResult& result) {
  const SpeedupModel::Best ideal = cluster_model.ideal.BestAt(0);
  const double round_trip = RoundTripIn(result, cluster.plain_step);
  SpeedupModel::Best model;
  if (const RunLength run_length = result.point.run_length) {
    const SpeedupModel own(
        cluster_model.costs, cluster_model.loop, {RunOf(cluster, result)});
    model = {*run_length, own.Speedup(*run_length, round_trip)};
  } else {
    model = cluster_model.model.BestAt(round_trip);
  }
  return {ideal.speedup,
          ideal.run_length,
          model.speedup,
          model.run_length,
          ExpectedRounds(cluster_model, cluster, result)};
}

std::optional<PooledRatio> Over(const std::optional<PooledRatio>& speedup,
                                double expected) {
  if (!speedup) return std::nullopt;
  PooledRatio part = *speedup;
  part.ratio /= expected;
  if (part.interval) {
    part.interval->low /= expected;
    part.interval->high /= expected;
  }
  return part;
}

}  // namespace

std::vector<SweepPair> PairsOf(const RunResult& run) {
  std::map<int64_t, const Record*> plain;
  for (const Record& record : run.records) {
    if (record.ok() && record.mode == Mode::kPlain) {
      plain[record.index] = &record;
    }
  }
  const auto ms_by = [](const Record& record, int64_t count) {
    return absl::ToDoubleMilliseconds(record.decode_time()) /
           static_cast<double>(count);
  };
  std::vector<SweepPair> pairs;
  for (const Record& record : run.records) {
    const auto found = plain.find(record.index);
    // One pass ended the prompt.
    const int64_t rounds = record.finished.speculation().num_passes() - 1;
    if (!record.ok() || record.mode != Mode::kSpeculative || rounds < 1 ||
        found == plain.end()) {
      continue;
    }
    const Record& base = *found->second;
    if (record.decode_time() <= absl::ZeroDuration() ||
        base.decode_time() <= absl::ZeroDuration()) {
      continue;
    }
    pairs.push_back({ComputeFigures({&record},
                                    absl::ZeroDuration(),
                                    Limits(),
                                    /*has_deadline=*/false),
                     ms_by(base, base.num_decoded()),
                     ms_by(record, rounds)});
  }
  return pairs;
}

std::optional<PooledRatio> SweepResult::decoding() const {
  return report.requests ? report.requests->decoding : std::nullopt;
}

std::optional<double> SweepResult::speedup() const {
  if (!decoding()) return std::nullopt;
  return decoding()->ratio;
}

std::optional<PooledRatio> SweepResult::eta() const {
  if (!expected) return std::nullopt;
  return Over(decoding(), expected->ideal);
}

std::optional<PooledRatio> SweepResult::eta_net() const {
  if (!expected) return std::nullopt;
  if (point.run_length) return expected->rounds;
  return Over(decoding(), expected->model);
}

bool SweepResult::HasFaults() const {
  return report.HasFaults() || (report.ids && !report.ids->equal());
}

bool Sweep::HasFaults() const {
  for (const ClusterSweep& cluster : clusters) {
    for (const SweepResult& result : cluster.results) {
      if (result.HasFaults()) return true;
    }
  }
  return false;
}

void SetExpectations(ClusterSweep* cluster) {
  const std::optional<ClusterModel> model = ModelFor(*cluster);
  if (!model) return;
  cluster->loop = model->loop;
  for (SweepResult& result : cluster->results) {
    result.expected = Expect(*model, *cluster, result);
  }
}

}  // namespace specwire::cli::bench
