// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/speedup_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace specwire::cli::bench {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;

v1::StepCost Cost(int num_rows, int context_length, int64_t duration_us) {
  v1::StepCost cost;
  cost.set_num_rows(num_rows);
  cost.set_context_length(context_length);
  cost.set_duration_us(duration_us);
  return cost;
}

// v = 1, 1.1, 1.2, ... one tenth for each further row.
PassCosts TenthARow() {
  return *PassCosts::Create({Cost(1, 16, 1000), Cost(11, 16, 2000)}, 16);
}

TEST(PassCostsTest, InterpolatesBetweenRows) {
  const PassCosts costs = *PassCosts::Create(
      {Cost(8, 16, 3000), Cost(1, 16, 2000), Cost(4, 16, 2600)}, 16);
  EXPECT_DOUBLE_EQ(costs.plain_us(), 2000);
  EXPECT_DOUBLE_EQ(costs.At(1), 1);
  EXPECT_DOUBLE_EQ(costs.At(2), 1.1);
  EXPECT_DOUBLE_EQ(costs.At(4), 1.3);
  EXPECT_DOUBLE_EQ(costs.At(6), 1.4);
  // Beyond the last as between the last two.
  EXPECT_DOUBLE_EQ(costs.At(12), 1.7);
}

TEST(PassCostsTest, InterpolatesBetweenContexts) {
  const std::vector<v1::StepCost> measured = {
      Cost(1, 16, 1000), Cost(1, 256, 2000), Cost(2, 16, 2500)};
  EXPECT_DOUBLE_EQ(PassCosts::Create(measured, 136)->plain_us(), 1500);
  EXPECT_DOUBLE_EQ(PassCosts::Create(measured, 1)->plain_us(), 1000);
  EXPECT_DOUBLE_EQ(PassCosts::Create(measured, 900)->plain_us(), 2000);
}

TEST(PassCostsTest, APassCostsNoMoreThanOneOfMoreRows) {
  // The first measurement was disturbed.
  const PassCosts costs = *PassCosts::Create(
      {Cost(1, 16, 5000), Cost(4, 16, 2600), Cost(8, 16, 3900)}, 16);
  EXPECT_DOUBLE_EQ(costs.plain_us(), 2600);
  EXPECT_DOUBLE_EQ(costs.At(2), 1);
  EXPECT_DOUBLE_EQ(costs.At(8), 1.5);
}

TEST(PassCostsTest, NeedsAPlainPass) {
  EXPECT_TRUE(absl::IsFailedPrecondition(PassCosts::Create({}, 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      PassCosts::Create({Cost(2, 16, 5), Cost(1, 16, 0)}, 1).status()));
  // A single cost makes all passes alike.
  EXPECT_DOUBLE_EQ(PassCosts::Create({Cost(1, 16, 5)}, 1)->At(9), 1);
}

// 10 requests, 110 passes, 40 of them with 100 draft tokens: 10 accepted none,
// 10 one, 20 all of four.
Figures MakeFigures() {
  Figures figures;
  figures.num_completed = 10;
  figures.speculation.set_num_passes(110);
  figures.speculation.set_num_spec_steps(40);
  figures.speculation.set_num_draft_tokens(100);
  for (const int64_t count : {10, 10, 0, 0, 20}) {
    figures.speculation.add_acceptance_histogram(count);
  }
  return figures;
}

TEST(FixedRunTest, CountsRoundsBehindThePrompt) {
  const FixedRun run = MakeFixedRun(MakeFigures(), 6, true);
  EXPECT_EQ(run.run_length, 6);
  EXPECT_DOUBLE_EQ(run.answered, 0.4);
  EXPECT_DOUBLE_EQ(run.offered, 2.5);
  EXPECT_THAT(run.survival, ElementsAre(0.75, 0.5, 0.5, 0.5, 0, 0));
}

TEST(FixedRunTest, NothingDraftedIsPlainDecoding) {
  Figures figures;
  EXPECT_EQ(MakeFixedRun(figures, 2, true).answered, 0);
  figures.num_completed = 1;
  figures.speculation.set_num_passes(5);
  const FixedRun run = MakeFixedRun(figures, 2, true);
  EXPECT_EQ(run.answered, 0);
  EXPECT_THAT(run.survival, ElementsAre(0, 0));
  EXPECT_THAT(SurvivalOf(figures.speculation), IsEmpty());
  const SpeedupModel model(TenthARow(), {0.1, 0}, {run});
  EXPECT_DOUBLE_EQ(model.Speedup(2, 0), 1);
  EXPECT_DOUBLE_EQ(model.Speedup(2, 0.25), 0.8);
  EXPECT_EQ(model.BestAt(0).run_length, 0);
  EXPECT_EQ(model.BestAt(0).speedup, 1);
}

// Every round is answered with whole runs, each token right with the same
// chance.
FixedRun Whole(int run_length, double chance) {
  FixedRun run{run_length, 1, static_cast<double>(run_length), {}, true};
  for (int i = 1; i <= run_length; ++i) {
    run.survival.push_back(std::pow(chance, i));
  }
  return run;
}

// A round of `run` as it would be measured: b = `base` and c = `draft_token`.
TimedRun Timed(const FixedRun& run,
               double base,
               double draft_token,
               double round_trip) {
  const SpeedupModel model(TenthARow(), {draft_token, base}, {run});
  return {run, round_trip, model.RoundTime(run.run_length, round_trip)};
}

TEST(MeasureLoopTest, FindsWhatRoundsAreMadeOf) {
  FixedRun some = Whole(4, 0.7);
  some.answered = 0.5;
  const DraftLoop loop = MeasureLoop(TenthARow(),
                                     0.05,
                                     {Timed(Whole(1, 0.7), 0.15, 0.08, 0.25),
                                      Timed(some, 0.15, 0.08, 0.25),
                                      Timed(Whole(8, 0.7), 0.15, 0.08, 0.25)});
  EXPECT_NEAR(loop.draft_token, 0.08, 1e-12);
  EXPECT_NEAR(loop.base, 0.15, 1e-12);
}

TEST(MeasureLoopTest, ADisturbedRequestDoesNotCount) {
  std::vector<TimedRun> runs;
  for (const int run_length : {1, 4, 8}) {
    for (const double accepted : {0.2, 0.5, 0.9}) {
      runs.push_back(Timed(Whole(run_length, accepted), 0.15, 0.08, 0.5));
    }
    runs[runs.size() - 2].round_time += 10;
  }
  const DraftLoop loop = MeasureLoop(TenthARow(), 0.05, runs);
  EXPECT_NEAR(loop.draft_token, 0.08, 1e-12);
  EXPECT_NEAR(loop.base, 0.15, 1e-12);
}

TEST(MeasureLoopTest, AFewRunsTellTheWayAlone) {
  const DraftLoop loop = MeasureLoop(TenthARow(),
                                     0.05,
                                     {Timed(Whole(2, 0.7), 0.15, 0.08, 0),
                                      Timed(Whole(4, 0.7), 0.15, 0.08, 0)});
  EXPECT_EQ(loop.draft_token, 0.05);
  // What three tokens in the mean took more than was told of them is in it.
  EXPECT_NEAR(loop.base, 0.15 + 3 * 0.03, 1e-12);
  EXPECT_EQ(MeasureLoop(TenthARow(), 0.05, {}).base, 0);
}

TEST(MeasureLoopTest, WhatCannotBeIsNotBelieved) {
  const auto measure = [](double base, double draft_token) {
    return MeasureLoop(TenthARow(),
                       0.05,
                       {Timed(Whole(1, 0.7), base, draft_token, 0),
                        Timed(Whole(3, 0.7), base, draft_token, 0),
                        Timed(Whole(5, 0.7), base, draft_token, 0)});
  };
  // Three tokens in the mean.
  EXPECT_EQ(measure(0.1, 0.2).draft_token, 0.1);
  EXPECT_NEAR(measure(0.1, 0.2).base, 0.1 + 3 * 0.1, 1e-12);
  EXPECT_EQ(measure(0.3, -0.02).draft_token, 0);
  EXPECT_NEAR(measure(0.3, -0.02).base, 0.3 - 3 * 0.02, 1e-12);
  EXPECT_EQ(measure(-0.1, 0.05).base, 0);
}

TEST(MeasureLoopTest, RoundsThatDoNotWaitTellNothing) {
  FixedRun local = Whole(4, 0.7);
  local.waits = false;
  const DraftLoop loop = MeasureLoop(TenthARow(), 0, {{local, 1, 3}});
  EXPECT_EQ(loop.base, 0);
  EXPECT_EQ(loop.draft_token, 0);
}

TEST(SpeedupModelTest, LocalDraftsTakeRowsAlone) {
  FixedRun local = Whole(4, 0.5);
  local.waits = false;
  local.answered = 0.5;
  const SpeedupModel model(TenthARow(), {0.05, 0.2}, {local});
  EXPECT_DOUBLE_EQ(model.RoundTime(4, 3), 1 + 0.5 * 0.4);
  EXPECT_DOUBLE_EQ(model.TokensPerRound(4), 1 + 0.5 * 0.9375);
}

TEST(SpeedupModelTest, IsTheSynchronousCycleWhereEveryRoundIsAnswered) {
  const SpeedupModel model(TenthARow(), {0.05, 0.1}, {Whole(8, 0.8)});
  // E(k) = (1 - a^(k+1)) / (1 - a), T = k c + v(k+1) + b + r.
  for (int k = 1; k <= 8; ++k) {
    const double tokens = (1 - std::pow(0.8, k + 1)) / 0.2;
    const double time = 0.05 * k + 1 + 0.1 * k + 0.1 + 0.3;
    EXPECT_NEAR(model.TokensPerRound(k), tokens, 1e-12);
    EXPECT_NEAR(model.RoundTime(k, 0.3), time, 1e-12);
    EXPECT_NEAR(model.Speedup(k, 0.3), tokens / time, 1e-12);
  }
}

TEST(SpeedupModelTest, RoundsWithoutDraftsArePlainPassesThatWaited) {
  const SpeedupModel model(
      TenthARow(), {0.2, 0}, {MakeFixedRun(MakeFigures(), 4, true)});
  // 0.4 of the rounds: 2.25 more tokens, 2.5 draft tokens of 0.2 + 0.1 each.
  EXPECT_DOUBLE_EQ(model.TokensPerRound(4), 1.9);
  EXPECT_DOUBLE_EQ(model.RoundTime(4, 0), 1.3);
  EXPECT_DOUBLE_EQ(model.RoundTime(4, 0.5), 1.8);
  // Half of the length: half of what was offered, as far as is known.
  EXPECT_DOUBLE_EQ(model.TokensPerRound(2), 1.5);
  EXPECT_DOUBLE_EQ(model.RoundTime(2, 0), 1.15);
}

TEST(SpeedupModelTest, ALengthIsToldFromTheNextLongerOneMeasured) {
  FixedRun shorter = Whole(2, 0.9);
  shorter.answered = 0.5;
  shorter.offered = 1;
  FixedRun longer = Whole(6, 0.5);
  longer.offered = 5;
  const SpeedupModel model(TenthARow(), {0, 0}, {longer, shorter});
  EXPECT_EQ(model.longest(), 6);
  EXPECT_DOUBLE_EQ(model.TokensPerRound(1), 1 + 0.5 * 0.9);
  EXPECT_DOUBLE_EQ(model.RoundTime(1, 0), 1 + 0.5 * 0.1 * 0.5);
  EXPECT_DOUBLE_EQ(model.TokensPerRound(2), 1 + 0.5 * (0.9 + 0.81));
  EXPECT_DOUBLE_EQ(model.TokensPerRound(4), 1 + 0.5 + 0.25 + 0.125 + 0.0625);
  // Between 1 at 2 and 5 at 6.
  EXPECT_DOUBLE_EQ(model.RoundTime(4, 0), 1 + 0.1 * 3);
}

TEST(SpeedupModelTest, TheBestLengthFallsOutOfCostsAndRoundTrip) {
  const SpeedupModel model(TenthARow(), {0.05, 0}, {Whole(8, 0.8)});
  int best = 1;
  for (int k = 2; k <= 8; ++k) {
    if (model.Speedup(k, 0) > model.Speedup(best, 0)) best = k;
  }
  EXPECT_EQ(model.BestAt(0).run_length, best);
  EXPECT_THAT(model.BestAt(0).speedup, DoubleEq(model.Speedup(best, 0)));
  // A wait is worth a longer run, until nothing is worth it.
  EXPECT_GT(model.BestAt(2).run_length, best);
  EXPECT_EQ(model.BestAt(5).run_length, 0);
  EXPECT_EQ(model.BestAt(5).speedup, 1);
  EXPECT_EQ(SpeedupModel(TenthARow(), {}, {}).longest(), 0);
}

}  // namespace
}  // namespace specwire::cli::bench
