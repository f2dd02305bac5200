// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/sweep_options.h"
#include "cli/bench/sweep_report.h"
#include "cli/bench/sweep_result.h"

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

// A report of ten requests with 850 tokens behind the first, whose decoding
// took so much less time.
Report MakeReport(double speedup, const std::vector<int64_t>& histogram) {
  Report report;
  Figures figures;
  figures.num_completed = 10;
  figures.prompt_tokens = 1000;
  figures.output_tokens = 860;
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

// With three requests that took so many plain steps for a round, of which one
// was disturbed.
void SetReport(Report report, double round_time, SweepResult* result) {
  const Figures& figures = report.modes.at(Mode::kSpeculative);
  result->pairs = {{figures, 2, 2 * round_time},
                   {figures, 2, 20 * round_time},
                   {figures, 2, 2 * round_time}};
  result->report = std::move(report);
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
      SetReport(MakeReport(1.2, {50, 50, 150}), 1.7 / 1.2, &result);
      cluster.results.push_back(std::move(result));
    }
  }
  return cluster;
}

TEST(SweepResultTest, PointsAreHeldAgainstIdealAndModel) {
  ClusterSweep cluster = MakeCluster();
  SetExpectations(&cluster);
  // E(1) = 1.4, T(1) = 1 + 0.5 * 0.15; E(2) = 1.7, T(2) = 1 + 0.5 * 0.3.
  const double ideal = 1.7 / 1.15;
  for (const SweepResult& result : cluster.results) {
    ASSERT_TRUE(result.expected.has_value());
    EXPECT_DOUBLE_EQ(result.expected->ideal, ideal);
    EXPECT_EQ(result.expected->ideal_run_length, 2);
    EXPECT_DOUBLE_EQ(result.eta()->ratio, 1.2 / ideal);
    EXPECT_DOUBLE_EQ(result.eta()->interval->low, 1.1 / ideal);
  }
  // A round took 1.7 / 1.2 where 1.15 are known of; the rest is the way.
  EXPECT_DOUBLE_EQ(cluster.loop->base, 1.7 / 1.2 - 1.15);
  EXPECT_DOUBLE_EQ(cluster.loop->draft_token, 0.05);
  EXPECT_DOUBLE_EQ(cluster.results[0].expected->model, 1.2);
  EXPECT_DOUBLE_EQ(cluster.results[1].expected->model, 1.2);
  const double far = 1.7 / (1.7 / 1.2 + 0.5);
  EXPECT_DOUBLE_EQ(cluster.results[2].expected->model, far);
  // Of a fixed run length by the rounds of its requests, the median; else by
  // the speed-up.
  EXPECT_DOUBLE_EQ(cluster.results[0].eta_net()->ratio, 1);
  EXPECT_DOUBLE_EQ(cluster.results[2].eta_net()->ratio, 1.2 / far);
  EXPECT_DOUBLE_EQ(cluster.results[2].eta_net()->interval->high, 1.2 / far);
  EXPECT_DOUBLE_EQ(cluster.results[1].eta_net()->interval->high, 1.3 / 1.2);
  // Plain decoding is better there.
  EXPECT_DOUBLE_EQ(cluster.results[3].expected->model, 1);
  EXPECT_EQ(cluster.results[3].expected->model_run_length, 0);
}

TEST(SweepResultTest, AFixedLengthIsHeldAgainstItsOwnSurvival) {
  ClusterSweep cluster = MakeCluster();
  // Farther away it happened to be right more often.
  SetReport(MakeReport(1.2, {0, 0, 250}), 1.5, &cluster.results[2]);
  SetExpectations(&cluster);
  EXPECT_DOUBLE_EQ(cluster.results[2].expected->model, 2 / (1.7 / 1.2 + 0.5));
  EXPECT_DOUBLE_EQ(cluster.results[2].eta_net()->ratio,
                   (1.7 / 1.2 + 0.5) / 1.5);
  EXPECT_DOUBLE_EQ(cluster.results[2].expected->ideal, 1.7 / 1.15);
}

TEST(SweepResultTest, ARoundTripIsMeasuredInThePointsOwnPlainSteps) {
  ClusterSweep cluster = MakeCluster();
  // The machine was twice as slow, so the way counts half.
  Summary* itl = &cluster.results[2].report.modes[Mode::kPlain].itl_ms;
  itl->count = 10;
  itl->p50 = 4;
  SetExpectations(&cluster);
  EXPECT_DOUBLE_EQ(cluster.results[2].expected->model,
                   1.7 / (1.7 / 1.2 + 0.25));
}

TEST(SweepResultTest, TheVerifiersOwnDraftsKnowNoWay) {
  ClusterSweep cluster = MakeCluster();
  cluster.drafter = "local";
  cluster.draft_token = absl::ZeroDuration();
  SetExpectations(&cluster);
  EXPECT_EQ(cluster.loop->base, 0);
  for (const SweepResult& result : cluster.results) {
    EXPECT_DOUBLE_EQ(result.expected->model, 1.7 / 1.1);
    EXPECT_DOUBLE_EQ(result.expected->ideal, 1.7 / 1.1);
  }
}

TEST(SweepResultTest, TheIdealHasTheLowerPriceOfADraftToken) {
  ClusterSweep cluster = MakeCluster();
  // Rounds as if draft tokens were free: 1, 2 and 4 of them, one of 0.1 each
  // for its row, and 0.2 for the way.
  cluster.results.clear();
  for (const int run_length : {1, 2, 4}) {
    SweepResult result;
    result.point.run_length = run_length;
    std::vector<int64_t> histogram(static_cast<size_t>(run_length) + 1);
    histogram.back() = 500;
    SetReport(MakeReport(1, histogram), 1.2 + 0.1 * run_length, &result);
    cluster.results.push_back(std::move(result));
  }
  SetExpectations(&cluster);
  EXPECT_NEAR(cluster.loop->draft_token, 0, 1e-12);
  EXPECT_NEAR(cluster.loop->base, 0.2, 1e-12);
  for (const SweepResult& result : cluster.results) {
    EXPECT_NEAR(result.expected->ideal, 5 / 1.4, 1e-9);
    EXPECT_NEAR(result.eta_net()->ratio, 1, 1e-9);
  }
}

Record MakeRecord(Mode mode, int64_t index, int num_tokens, int step_ms) {
  Record record;
  record.mode = mode;
  record.index = index;
  record.token_ids.resize(static_cast<size_t>(num_tokens));
  record.chunks = {
      {absl::Milliseconds(7), 1},
      {absl::Milliseconds(7 + step_ms * (num_tokens - 1)), num_tokens - 1}};
  record.finished.mutable_speculation()->set_num_passes(num_tokens);
  return record;
}

TEST(SweepResultTest, PairsAreRequestsThatDecodedInBothModes) {
  RunResult run;
  run.records = {MakeRecord(Mode::kSpeculative, 0, 11, 3),
                 MakeRecord(Mode::kPlain, 0, 11, 2),
                 MakeRecord(Mode::kPlain, 1, 11, 2),
                 MakeRecord(Mode::kSpeculative, 2, 11, 2),
                 // Ended with their prompts.
                 MakeRecord(Mode::kPlain, 3, 1, 2),
                 MakeRecord(Mode::kSpeculative, 3, 1, 2),
                 MakeRecord(Mode::kPlain, 4, 11, 2),
                 MakeRecord(Mode::kSpeculative, 4, 11, 2)};
  // Ten tokens behind the first in five passes.
  run.records[0].finished.mutable_speculation()->set_num_passes(6);
  run.records.back().status = absl::UnavailableError("gone");
  const std::vector<SweepPair> pairs = PairsOf(run);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_DOUBLE_EQ(pairs[0].plain_step_ms, 2);
  EXPECT_DOUBLE_EQ(pairs[0].round_ms, 6);
  EXPECT_EQ(pairs[0].speculative.num_completed, 1);
  EXPECT_EQ(pairs[0].speculative.speculation.num_passes(), 6);
}

TEST(SweepResultTest, WithoutFixedLengthsOrCostsNothingIsExpected) {
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
                           "round 0.267",
                           "eta net of fixed run lengths: 1.000 to 1.353",
                           "behind the first token",
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
  EXPECT_NEAR(point["eta_interval"][1].get<double>(), 1.3 * 1.15 / 1.7, 1e-9);
  const double round = 1.7 / 1.2 + 0.5;
  EXPECT_NEAR(point["eta_net"].get<double>(), 1.2 * round / 1.7, 1e-9);
  EXPECT_NEAR(
      point["eta_net_interval"][0].get<double>(), 0.12 * round / 1.7, 1e-9);
  EXPECT_NEAR(json["clusters"][1]["round_in_place"].get<double>(),
              1.7 / 1.2 - 1.15,
              1e-9);
  EXPECT_NEAR(
      json["clusters"][1]["draft_token_in_place"].get<double>(), 0.05, 1e-9);
  EXPECT_EQ(point["ideal_run_length"], 2);
  EXPECT_EQ(point["ids_equal"], true);
  EXPECT_TRUE(point["predicted_speedup"].is_null());
  EXPECT_EQ(json["settings"]["link"], "draft");
}

TEST(SweepReportTest, PlotsShowTheControlsChoiceAndTheShortestRoundTrip) {
  const std::vector<Plot> plots = SweepPlots(MakeSweep(), MakeGrid());
  ASSERT_EQ(plots.size(), 2u);
  for (const Plot& plot : plots) {
    ASSERT_EQ(plot.lines.size(), 4u);
    EXPECT_EQ(plot.lines[2].name, "suffix");
    ASSERT_EQ(plot.lines[2].points.size(), 2u);
    EXPECT_EQ(plot.lines[2].points[1].place, 1u);
    EXPECT_EQ(plot.lines[2].points[1].value, 1.2);
    EXPECT_NEAR(*plot.lines[2].points[1].high, 1.3, 1e-9);
    EXPECT_EQ(plot.lines[3].name, "suffix, model");
    ASSERT_EQ(plot.lines[3].points.size(), 2u);
    EXPECT_NEAR(plot.lines[3].points[0].value, 1.2, 1e-9);
    EXPECT_FALSE(plot.lines[3].points[0].high.has_value());
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
  EXPECT_EQ(plots[0].lines[2].name, "hybrid, T = 1");
  // Without the control's choice the first length is shown.
  EXPECT_THAT(plots[0].title, HasSubstr("run length 2"));
  EXPECT_EQ(plots[0].lines[0].points.size(), 2u);
}

}  // namespace
}  // namespace specwire::cli::bench
