// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/sweep_options.h"
#include "cli/bench/sweep_report.h"

namespace specwire::cli::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(SweepOptionsTest, DefaultsAreThoseOfTheFlags) {
  const auto parsed = ParseSweep({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const SweepOptions options;
  EXPECT_EQ(parsed->drafters, options.drafters);
  EXPECT_EQ(parsed->temperatures, options.temperatures);
  EXPECT_EQ(parsed->round_trips, options.round_trips);
  EXPECT_EQ(parsed->run_lengths, options.run_lengths);
  EXPECT_EQ(parsed->link, options.link);
}

TEST(SweepOptionsTest, ListsAreRead) {
  SweepTexts texts;
  texts.drafters = "ngram,random,local";
  texts.temperatures = "1,0.5";
  texts.round_trips = "3,0,0.25";
  texts.run_lengths = "auto,32,1";
  texts.link = "both";
  texts.jitter = 0.5;
  const auto options = ParseSweep(texts);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->drafters, ElementsAre("ngram", "random", "local"));
  EXPECT_THAT(options->temperatures, ElementsAre(1, 0.5));
  EXPECT_THAT(options->round_trips, ElementsAre(0, 0.25, 3));
  EXPECT_THAT(options->run_lengths,
              ElementsAre(std::nullopt, RunLength(32), RunLength(1)));
  EXPECT_EQ(options->link, StretchedLink::kBoth);
  EXPECT_EQ(options->jitter, 0.5);
}

TEST(SweepOptionsTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(SweepTexts*)>>>
      cases = {
          {"--sweep_drafters", [](auto* t) { t->drafters = "nobody"; }},
          {"--sweep_drafters", [](auto* t) { t->drafters = "ngram,"; }},
          {"--sweep_drafters", [](auto* t) { t->drafters = "ngram,ngram"; }},
          {"--sweep_temperatures", [](auto* t) { t->temperatures = ""; }},
          {"--sweep_temperatures", [](auto* t) { t->temperatures = "-1"; }},
          {"--sweep_temperatures", [](auto* t) { t->temperatures = "nan"; }},
          {"--sweep_round_trips", [](auto* t) { t->round_trips = "0,x"; }},
          {"--sweep_round_trips", [](auto* t) { t->round_trips = "1001"; }},
          {"--sweep_round_trips", [](auto* t) { t->round_trips = "1,1.0"; }},
          {"--sweep_run_lengths", [](auto* t) { t->run_lengths = "0"; }},
          {"--sweep_run_lengths", [](auto* t) { t->run_lengths = "33"; }},
          {"--sweep_run_lengths", [](auto* t) { t->run_lengths = "1.5"; }},
          {"--sweep_run_lengths",
           [](auto* t) { t->run_lengths = "auto,auto"; }},
          {"--sweep_link", [](auto* t) { t->link = "all"; }},
          {"--sweep_jitter", [](auto* t) { t->jitter = -1; }}};
  for (const auto& [flag, change] : cases) {
    SweepTexts texts;
    change(&texts);
    const absl::Status status = ParseSweep(texts).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(flag));
  }
}

TEST(SweepOptionsTest, LongRunsComeFirstAndTheControlsChoiceLast) {
  SweepOptions options;
  options.round_trips = {0, 1};
  options.run_lengths = {std::nullopt, 1, 4};
  std::vector<std::string> order;
  for (const SweepPoint& point : PointsOf(options)) {
    order.push_back(RunLengthText(point.run_length) +
                    (point.round_trip > 0 ? " far" : ""));
  }
  EXPECT_THAT(order,
              ElementsAre("4", "1", "auto", "4 far", "1 far", "auto far"));
}

// A report of ten requests whose decoding took so much less time.
Report MakeReport(double speedup, const std::vector<int64_t>& histogram) {
  Report report;
  Figures figures;
  figures.num_completed = 10;
  figures.prompt_tokens = 1000;
  figures.output_tokens = 1010;
  v1::SpeculationStats* stats = &figures.speculation;
  stats->set_num_passes(510);
  int64_t steps = 0;
  for (const int64_t count : histogram) {
    stats->add_acceptance_histogram(count);
    steps += count;
  }
  stats->set_num_spec_steps(steps);
  stats->set_num_draft_tokens(steps *
                              (static_cast<int64_t>(histogram.size()) - 1));
  report.modes[Mode::kPlain];
  report.modes[Mode::kSpeculative] = figures;
  report.requests = RequestComparison{};
  report.requests->decoding = PooledRatio{10, speedup, {}};
  report.requests->decoding->interval = {speedup - 0.1, speedup + 0.1};
  report.ids = IdsComparison{10, {}};
  return report;
}

// Half of 500 rounds have two draft tokens, right with chances 0.8 and 0.6. A
// row costs a tenth, a draft token a twentieth.
ClusterSweep MakeCluster() {
  ClusterSweep cluster;
  cluster.drafter = "hybrid";
  cluster.plain_step = absl::Milliseconds(2);
  cluster.draft_token = absl::Microseconds(100);
  for (const auto& [rows, us] :
       std::vector<std::pair<int, int64_t>>{{1, 2000}, {11, 4000}}) {
    v1::StepCost cost;
    cost.set_num_rows(rows);
    cost.set_context_length(16);
    cost.set_duration_us(us);
    cluster.step_costs.push_back(cost);
  }
  for (const double round_trip : {0.0, 0.5}) {
    for (const RunLength run_length : {RunLength(2), RunLength()}) {
      SweepResult result;
      result.point = {round_trip, run_length};
      result.round_trip = round_trip * cluster.plain_step;
      result.report = MakeReport(1.2, {50, 50, 150});
      cluster.results.push_back(std::move(result));
    }
  }
  return cluster;
}

TEST(SweepReportTest, PointsAreHeldAgainstIdealAndModel) {
  ClusterSweep cluster = MakeCluster();
  SetExpectations(&cluster);
  // E(1) = 1.4, T(1) = 1 + 0.5 * 0.15; E(2) = 1.7, T(2) = 1 + 0.5 * 0.3.
  const double ideal = 1.7 / 1.15;
  for (const SweepResult& result : cluster.results) {
    ASSERT_TRUE(result.expected.has_value());
    EXPECT_DOUBLE_EQ(result.expected->ideal, ideal);
    EXPECT_EQ(result.expected->ideal_run_length, 2);
    EXPECT_DOUBLE_EQ(*result.eta(), 1.2 / ideal);
  }
  EXPECT_DOUBLE_EQ(cluster.results[0].expected->model, ideal);
  EXPECT_DOUBLE_EQ(cluster.results[1].expected->model, ideal);
  EXPECT_DOUBLE_EQ(cluster.results[2].expected->model, 1.7 / 1.65);
  EXPECT_DOUBLE_EQ(*cluster.results[2].eta_net(), 1.2 / (1.7 / 1.65));
  // Just better than plain; at a longer way it would not be.
  EXPECT_DOUBLE_EQ(cluster.results[3].expected->model, 1.7 / 1.65);
  cluster.results[3].point.round_trip = 1;
  SetExpectations(&cluster);
  EXPECT_DOUBLE_EQ(cluster.results[3].expected->model, 1);
  EXPECT_EQ(cluster.results[3].expected->model_run_length, 0);
}

TEST(SweepReportTest, WithoutFixedLengthsOrCostsNothingIsExpected) {
  ClusterSweep cluster = MakeCluster();
  cluster.step_costs.clear();
  SetExpectations(&cluster);
  EXPECT_FALSE(cluster.results[0].eta().has_value());
  cluster = MakeCluster();
  cluster.results.erase(cluster.results.begin());
  SetExpectations(&cluster);
  for (const SweepResult& result : cluster.results) {
    EXPECT_FALSE(result.expected.has_value());
  }
}

Sweep MakeSweep() {
  Sweep sweep;
  sweep.clusters.push_back(MakeCluster());
  sweep.clusters.back().draft_token = absl::ZeroDuration();
  sweep.clusters.push_back(MakeCluster());
  for (ClusterSweep& cluster : sweep.clusters) SetExpectations(&cluster);
  sweep.clusters[1].drafter = "suffix";
  return sweep;
}

SweepOptions MakeGrid() {
  SweepOptions grid;
  grid.drafters = {"hybrid", "suffix"};
  grid.round_trips = {0, 0.5};
  grid.run_lengths = {2, std::nullopt};
  return grid;
}

TEST(SweepReportTest, TextHasARowForEachPoint) {
  Sweep sweep = MakeSweep();
  EXPECT_FALSE(sweep.HasFaults());
  std::string text = SweepText(sweep);
  EXPECT_THAT(text,
              HasSubstr("drafter suffix, temperature 0: plain step 2.000 ms, "
                        "draft token 0.100 ms"));
  for (const char* part : {"1.20 (1.10 to 1.30)",
                           "ETA NET",
                           "auto",
                           "0.5",
                           "0.80 0.60",
                           "equal"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  sweep.clusters[0].results[0].report.ids->differences.push_back({0, 0, 3});
  sweep.status = absl::UnavailableError("gone");
  EXPECT_TRUE(sweep.HasFaults());
  text = SweepText(sweep);
  EXPECT_THAT(text, HasSubstr("FAULTS"));
  EXPECT_THAT(text, HasSubstr("ended early: gone"));
}

TEST(SweepReportTest, JsonHasTheDocumentedNames) {
  const Json json = SweepJson(MakeSweep(), Options(), MakeGrid());
  ASSERT_EQ(json["points"].size(), 8u);
  ASSERT_EQ(json["clusters"].size(), 2u);
  EXPECT_EQ(json["clusters"][0]["plain_step_us"], 2000);
  EXPECT_EQ(json["clusters"][1]["draft_token_us"], 100);
  EXPECT_EQ(json["clusters"][1]["step_costs"][1]["num_rows"], 11);
  const Json& point = json["points"][6];
  EXPECT_EQ(point["drafter"], "suffix");
  EXPECT_EQ(point["round_trip"], 0.5);
  EXPECT_EQ(point["round_trip_us"], 1000);
  EXPECT_EQ(point["run_length"], "2");
  EXPECT_EQ(point["speedup"]["ratio"], 1.2);
  EXPECT_NEAR(point["speedup"]["low"].get<double>(), 1.1, 1e-9);
  EXPECT_TRUE(point["speedup_end_to_end"].is_null());
  EXPECT_EQ(point["survival"].size(), 2u);
  EXPECT_NEAR(point["eta"].get<double>(), 1.2 * 1.15 / 1.7, 1e-9);
  EXPECT_NEAR(point["eta_net"].get<double>(), 1.2 * 1.65 / 1.7, 1e-9);
  EXPECT_EQ(point["ideal_run_length"], 2);
  EXPECT_EQ(point["ids_equal"], true);
  EXPECT_TRUE(point["predicted_speedup"].is_null());
  EXPECT_EQ(json["settings"]["link"], "draft");
}

TEST(SweepReportTest, PlotsShowTheControlsChoiceAndTheShortestRoundTrip) {
  const std::vector<Plot> plots = SweepPlots(MakeSweep(), MakeGrid());
  ASSERT_EQ(plots.size(), 2u);
  for (const Plot& plot : plots) {
    ASSERT_EQ(plot.lines.size(), 2u);
    EXPECT_EQ(plot.lines[1].name, "suffix");
    ASSERT_EQ(plot.lines[1].points.size(), 2u);
    EXPECT_EQ(plot.lines[1].points[1].place, 1u);
    EXPECT_EQ(plot.lines[1].points[1].value, 1.2);
    EXPECT_NEAR(*plot.lines[1].points[1].high, 1.3, 1e-9);
  }
  EXPECT_THAT(plots[0].places, ElementsAre("0", "0.5"));
  EXPECT_THAT(plots[0].title, HasSubstr("auto"));
  EXPECT_THAT(plots[1].places, ElementsAre("2", "auto"));
}

TEST(SweepReportTest, LinesOfSeveralTemperaturesAreToldApart) {
  Sweep sweep = MakeSweep();
  SweepOptions grid = MakeGrid();
  grid.drafters = {"hybrid"};
  grid.temperatures = {0, 1};
  grid.run_lengths = {2};
  sweep.clusters[1].drafter = "hybrid";
  sweep.clusters[1].temperature = 1;
  const std::vector<Plot> plots = SweepPlots(sweep, grid);
  EXPECT_EQ(plots[0].lines[0].name, "hybrid, T = 0");
  EXPECT_EQ(plots[0].lines[1].name, "hybrid, T = 1");
  // Without the control's choice the first length is shown.
  EXPECT_THAT(plots[0].title, HasSubstr("run length 2"));
  EXPECT_EQ(plots[0].lines[0].points.size(), 2u);
}

}  // namespace
}  // namespace specwire::cli::bench
