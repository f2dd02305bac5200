// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep_report.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/bench/report.h"
#include "cli/bench/speedup_model.h"
#include "cli/completion.h"
#include "cli/table.h"

namespace specwire::cli::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string Number(const std::optional<double>& value) {
  return value ? absl::StrFormat("%.2f", *value) : "-";
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

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

// Nothing if no fixed run length was measured, or no pass.
std::optional<SpeedupModel> ModelFor(const ClusterSweep& cluster) {
  std::vector<FixedRun> runs;
  for (const SweepResult& result : cluster.results) {
    const RunLength run_length = result.point.run_length;
    // The first point has the shortest round trip.
    if (!run_length ||
        result.point.round_trip != cluster.results.front().point.round_trip ||
        result.speculative().num_completed == 0) {
      continue;
    }
    runs.push_back(MakeFixedRun(result.speculative(), *run_length));
  }
  const absl::StatusOr<PassCosts> costs =
      PassCosts::Create(cluster.step_costs, TypicalContext(cluster.results));
  if (!costs.ok() || runs.empty()) return std::nullopt;
  const double draft_token =
      absl::ToDoubleMicroseconds(cluster.draft_token) / costs->plain_us();
  return SpeedupModel(*costs, draft_token, std::move(runs));
}

SweepExpectation Expect(const SpeedupModel& model, const SweepPoint& point) {
  const SpeedupModel::Best ideal = model.BestAt(0);
  SweepExpectation expected;
  expected.ideal = ideal.speedup;
  expected.ideal_run_length = ideal.run_length;
  if (point.run_length) {
    expected.model = model.Speedup(*point.run_length, point.round_trip);
    expected.model_run_length = *point.run_length;
  } else {
    const SpeedupModel::Best best = model.BestAt(point.round_trip);
    expected.model = best.speedup;
    expected.model_run_length = best.run_length;
  }
  return expected;
}

std::string SurvivalText(const Figures& figures) {
  constexpr size_t kMostTold = 8;
  std::vector<std::string> shares;
  for (double share : SurvivalOf(figures.speculation)) {
    if (shares.size() == kMostTold) break;
    shares.push_back(absl::StrFormat("%.2f", share));
  }
  return shares.empty() ? "-" : absl::StrJoin(shares, " ");
}

TableRow RowOf(const ClusterSweep& cluster, const SweepResult& result) {
  const Figures& figures = result.speculative();
  const std::optional<RequestComparison>& requests = result.report.requests;
  const std::optional<SweepExpectation>& expected = result.expected;
  const auto of = [&](double SweepExpectation::*field) {
    return expected ? Number((*expected).*field) : std::string("-");
  };
  return {cluster.drafter,
          absl::StrFormat("%g", cluster.temperature),
          absl::StrFormat("%g", result.point.round_trip),
          RunLengthText(result.point.run_length),
          requests ? PooledText(requests->decoding) : "-",
          requests ? PooledText(requests->end_to_end) : "-",
          Number(figures.tokens_per_pass()),
          of(&SweepExpectation::ideal),
          Number(result.eta()),
          of(&SweepExpectation::model),
          Number(result.eta_net()),
          Number(figures.predicted_speedup),
          result.HasFaults() ? "FAULTS" : "equal",
          SurvivalText(figures)};
}

std::string ClusterText(const ClusterSweep& cluster) {
  return absl::StrFormat(
      "drafter %s, temperature %g: plain step %.3f ms, draft token %.3f ms\n",
      cluster.drafter,
      cluster.temperature,
      absl::ToDoubleMilliseconds(cluster.plain_step),
      absl::ToDoubleMilliseconds(cluster.draft_token));
}

Json ResultJson(const ClusterSweep& cluster, const SweepResult& result) {
  const Figures& figures = result.speculative();
  const std::optional<RequestComparison>& requests = result.report.requests;
  Json json = {
      {"drafter", cluster.drafter},
      {"temperature", cluster.temperature},
      {"round_trip", result.point.round_trip},
      {"round_trip_us", absl::ToDoubleMicroseconds(result.round_trip)},
      {"run_length", RunLengthText(result.point.run_length)},
      {"speedup", requests ? PooledJson(requests->decoding) : Json(nullptr)},
      {"speedup_end_to_end",
       requests ? PooledJson(requests->end_to_end) : Json(nullptr)},
      {"tokens_per_pass", figures.tokens_per_pass()},
      {"survival", SurvivalOf(figures.speculation)},
      {"ideal", nullptr},
      {"ideal_run_length", nullptr},
      {"eta", OrNull(result.eta())},
      {"model", nullptr},
      {"model_run_length", nullptr},
      {"eta_net", OrNull(result.eta_net())},
      {"predicted_speedup", OrNull(figures.predicted_speedup)},
      {"measured_speedup", OrNull(figures.measured_speedup)},
      {"completed", figures.num_completed},
      {"failed", figures.num_failed},
      {"ids_equal",
       result.report.ids ? Json(result.report.ids->equal()) : Json(nullptr)}};
  if (result.expected) {
    json["ideal"] = result.expected->ideal;
    json["ideal_run_length"] = result.expected->ideal_run_length;
    json["model"] = result.expected->model;
    json["model_run_length"] = result.expected->model_run_length;
  }
  Json stats = StatsJson(figures.speculation);
  for (const char* name :
       {"rule", "num_spec_tokens", "predicted_speedup", "measured_speedup"}) {
    stats.erase(name);
  }
  json["speculative_decoding"] = std::move(stats);
  return json;
}

Json ClusterJson(const ClusterSweep& cluster) {
  Json costs = Json::array();
  for (const v1::StepCost& cost : cluster.step_costs) {
    costs.push_back({{"num_rows", cost.num_rows()},
                     {"context_length", cost.context_length()},
                     {"duration_us", cost.duration_us()}});
  }
  return {{"drafter", cluster.drafter},
          {"temperature", cluster.temperature},
          {"plain_step_us", absl::ToDoubleMicroseconds(cluster.plain_step)},
          {"draft_token_us", absl::ToDoubleMicroseconds(cluster.draft_token)},
          {"step_costs", std::move(costs)}};
}

std::string LinkText(StretchedLink link) {
  switch (link) {
    case StretchedLink::kDraft:
      return "draft";
    case StretchedLink::kVerifier:
      return "verifier";
    case StretchedLink::kBoth:
      return "both";
  }
  return "";
}

// A place of a plot, and the points that belong there.
struct Place {
  std::string text;
  std::function<bool(const SweepPoint&)> has;
};

// One line for each drafter and temperature.
std::vector<PlotLine> LinesOf(const Sweep& sweep,
                              const SweepOptions& grid,
                              const std::vector<Place>& places) {
  std::vector<PlotLine> lines;
  for (const ClusterSweep& cluster : sweep.clusters) {
    PlotLine line;
    line.name = grid.temperatures.size() == 1
                    ? cluster.drafter
                    : absl::StrFormat(
                          "%s, T = %g", cluster.drafter, cluster.temperature);
    for (size_t i = 0; i < places.size(); ++i) {
      for (const SweepResult& result : cluster.results) {
        if (!places[i].has(result.point) || !result.speedup()) continue;
        PlotPoint point{i, *result.speedup()};
        const auto& interval = result.report.requests->decoding->interval;
        if (interval) {
          point.low = interval->low;
          point.high = interval->high;
        }
        line.points.push_back(point);
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

Plot MakePlot(const Sweep& sweep,
              const SweepOptions& grid,
              const std::vector<Place>& places) {
  Plot plot;
  plot.y_label = "speed-up of decoding over plain";
  for (const Place& place : places) plot.places.push_back(place.text);
  plot.lines = LinesOf(sweep, grid, places);
  return plot;
}

}  // namespace

std::optional<double> SweepResult::speedup() const {
  if (!report.requests || !report.requests->decoding) return std::nullopt;
  return report.requests->decoding->ratio;
}

std::optional<double> SweepResult::eta() const {
  if (!speedup() || !expected) return std::nullopt;
  return *speedup() / expected->ideal;
}

std::optional<double> SweepResult::eta_net() const {
  if (!speedup() || !expected) return std::nullopt;
  return *speedup() / expected->model;
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
  const std::optional<SpeedupModel> model = ModelFor(*cluster);
  if (!model) return;
  for (SweepResult& result : cluster->results) {
    // A run length that failed to be measured is in no model.
    if (result.point.run_length.value_or(0) > model->longest()) continue;
    result.expected = Expect(*model, result.point);
  }
}

std::string SweepText(const Sweep& sweep) {
  std::string text;
  std::vector<TableRow> rows = {{"DRAFTER",
                                 "TEMPERATURE",
                                 "ROUND TRIP",
                                 "RUN",
                                 "SPEED-UP",
                                 "END TO END",
                                 "TOKENS/PASS",
                                 "IDEAL",
                                 "ETA",
                                 "MODEL",
                                 "ETA NET",
                                 "EXPECTED",
                                 "IDS",
                                 "SURVIVAL"}};
  for (const ClusterSweep& cluster : sweep.clusters) {
    absl::StrAppend(&text, ClusterText(cluster));
    for (const SweepResult& result : cluster.results) {
      rows.push_back(RowOf(cluster, result));
    }
  }
  absl::StrAppend(&text, "\n", TableText(rows));
  if (sweep.interrupted) absl::StrAppend(&text, "\ninterrupted\n");
  if (!sweep.status.ok()) {
    absl::StrAppend(&text, "\nended early: ", sweep.status.message(), "\n");
  }
  return text;
}

Json SweepJson(const Sweep& sweep,
               const Options& options,
               const SweepOptions& grid) {
  Json json = {{"clusters", Json::array()},
               {"points", Json::array()},
               {"interval", "95 %, bootstrap over pairs of requests"},
               {"interrupted", sweep.interrupted},
               {"error", std::string(sweep.status.message())},
               {"settings",
                {{"dataset", options.dataset},
                 {"num", OrNull(options.num)},
                 {"max_tokens", options.max_tokens},
                 {"ignore_eos", options.ignore_eos},
                 {"concurrency", options.num_workers()},
                 {"seed", options.seed},
                 {"link", LinkText(grid.link)},
                 {"jitter", grid.jitter}}}};
  for (const ClusterSweep& cluster : sweep.clusters) {
    json["clusters"].push_back(ClusterJson(cluster));
    for (const SweepResult& result : cluster.results) {
      json["points"].push_back(ResultJson(cluster, result));
    }
  }
  return json;
}

std::vector<Plot> SweepPlots(const Sweep& sweep, const SweepOptions& grid) {
  const bool has_auto = std::find(grid.run_lengths.begin(),
                                  grid.run_lengths.end(),
                                  std::nullopt) != grid.run_lengths.end();
  const RunLength shown = has_auto ? RunLength() : grid.run_lengths.front();
  const double shortest = grid.round_trips.front();
  std::vector<Place> trips;
  for (double trip : grid.round_trips) {
    trips.push_back({absl::StrFormat("%g", trip), [=](const SweepPoint& point) {
                       return point.round_trip == trip &&
                              point.run_length == shown;
                     }});
  }
  std::vector<Place> lengths;
  for (RunLength length : grid.run_lengths) {
    lengths.push_back({RunLengthText(length), [=](const SweepPoint& point) {
                         return point.round_trip == shortest &&
                                point.run_length == length;
                       }});
  }
  Plot by_trip = MakePlot(sweep, grid, trips);
  by_trip.title =
      absl::StrCat("Speed-up by round trip, run length ", RunLengthText(shown));
  by_trip.x_label = "round trip, in plain steps";
  Plot by_length = MakePlot(sweep, grid, lengths);
  by_length.title =
      absl::StrFormat("Speed-up by run length, round trip %g", shortest);
  by_length.x_label = "run length, in draft tokens";
  return {by_trip, by_length};
}

}  // namespace specwire::cli::bench
