// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep_report.h"

#include <algorithm>
#include <functional>
#include <limits>
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
          PooledText(result.decoding()),
          requests ? PooledText(requests->end_to_end) : "-",
          Number(figures.tokens_per_pass()),
          of(&SweepExpectation::ideal),
          PooledText(result.eta()),
          of(&SweepExpectation::model),
          PooledText(result.eta_net()),
          Number(figures.predicted_speedup),
          result.HasFaults() ? "FAULTS" : "equal",
          SurvivalText(figures)};
}

std::string ClusterText(const ClusterSweep& cluster) {
  std::string text = absl::StrFormat(
      "drafter %s, temperature %g: plain step %.3f ms, draft token %.3f ms",
      cluster.drafter,
      cluster.temperature,
      absl::ToDoubleMilliseconds(cluster.plain_step),
      absl::ToDoubleMilliseconds(cluster.draft_token));
  if (!cluster.loop) return text + "\n";
  absl::StrAppendFormat(
      &text,
      "; in place, in plain steps: draft token %.3f, round %.3f\n",
      cluster.loop->draft_token,
      cluster.loop->base);
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const SweepResult& result : cluster.results) {
    const std::optional<PooledRatio> part = result.eta_net();
    if (!result.point.run_length || !part) continue;
    low = std::min(low, part->ratio);
    high = std::max(high, part->ratio);
  }
  if (high > 0) {
    absl::StrAppendFormat(
        &text, "  eta net of fixed run lengths: %.3f to %.3f\n", low, high);
  }
  return text;
}

// A ratio and its interval, under names that begin with `name`.
void AddRatio(const std::string& name,
              const std::optional<PooledRatio>& ratio,
              Json* json) {
  (*json)[name] = ratio ? Json(ratio->ratio) : Json(nullptr);
  (*json)[name + "_interval"] =
      ratio && ratio->interval
          ? Json({ratio->interval->low, ratio->interval->high})
          : Json(nullptr);
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
      {"speedup", PooledJson(result.decoding())},
      {"speedup_end_to_end",
       requests ? PooledJson(requests->end_to_end) : Json(nullptr)},
      {"tokens_per_pass", figures.tokens_per_pass()},
      {"survival", SurvivalOf(figures.speculation)},
      {"ideal", nullptr},
      {"ideal_run_length", nullptr},
      {"model", nullptr},
      {"model_run_length", nullptr},
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
  AddRatio("eta", result.eta(), &json);
  AddRatio("eta_net", result.eta_net(), &json);
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
          {"draft_token_in_place",
           cluster.loop ? Json(cluster.loop->draft_token) : Json(nullptr)},
          {"round_in_place",
           cluster.loop ? Json(cluster.loop->base) : Json(nullptr)},
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

PlotPoint MeasuredPoint(size_t place, const PooledRatio& speedup) {
  PlotPoint point{place, speedup.ratio};
  if (speedup.interval) {
    point.low = speedup.interval->low;
    point.high = speedup.interval->high;
  }
  return point;
}

// For each drafter and temperature what was measured, and what the model said.
std::vector<PlotLine> LinesOf(const Sweep& sweep,
                              const SweepOptions& grid,
                              const std::vector<Place>& places) {
  std::vector<PlotLine> lines;
  for (const ClusterSweep& cluster : sweep.clusters) {
    PlotLine measured;
    measured.name =
        grid.temperatures.size() == 1
            ? cluster.drafter
            : absl::StrFormat(
                  "%s, T = %g", cluster.drafter, cluster.temperature);
    PlotLine model;
    model.name = absl::StrCat(measured.name, ", model");
    for (size_t i = 0; i < places.size(); ++i) {
      for (const SweepResult& result : cluster.results) {
        if (!places[i].has(result.point)) continue;
        if (const auto speedup = result.decoding()) {
          measured.points.push_back(MeasuredPoint(i, *speedup));
        }
        if (result.expected) {
          model.points.push_back({i, result.expected->model});
        }
      }
    }
    lines.push_back(std::move(measured));
    if (!model.points.empty()) lines.push_back(std::move(model));
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
  absl::StrAppend(&text,
                  "\n",
                  TableText(rows),
                  "\nSPEED-UP is of decoding, behind the first token: that is "
                  "what IDEAL and MODEL are about. END TO END is of whole "
                  "requests, with their prompts. ETA NET of a fixed run is "
                  "the median over requests.\n");
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
