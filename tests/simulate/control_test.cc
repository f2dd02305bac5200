// SPDX-License-Identifier: Apache-2.0
// Speculation control against the best fixed setting in hindsight, on accept
// traces of real texts: see docs/performance.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/simulate/experiment.h"
#include "bench/simulate/simulation.h"
#include "bench/simulate/trace.h"

namespace specwire::simulate {
namespace {

// Least part of the best fixed setting's rate.
constexpr double kBar = 0.97;
const std::vector<int> kRunLengths = {1, 2, 4, 8, 12, 16};

// Traces of one drafter; those of the one with a model say how sure it is.
std::vector<Trace> TracesOf(const std::string& drafter) {
  const absl::StatusOr<std::vector<Trace>> all = ReadTraceFile(
      drafter == "hybrid" ? SPECWIRE_TEST_DATA "/traces_hybrid.jsonl"
                          : SPECWIRE_TEST_DATA "/traces.jsonl");
  EXPECT_TRUE(all.ok()) << all.status();
  std::vector<Trace> traces;
  if (!all.ok()) return traces;
  for (const Trace& trace : *all) {
    if (trace.drafter == drafter) traces.push_back(trace);
  }
  return traces;
}

// Links in plain steps of the target, the whole way there and back.
Settings Cluster(double verifier_round_trip, double drafter_round_trip) {
  Settings settings;
  settings.verifier_link.one_way = verifier_round_trip / 2 * settings.plain;
  settings.drafter_link.one_way = drafter_round_trip / 2 * settings.plain;
  settings.verifier_link.jitter = settings.verifier_link.one_way / 10;
  settings.drafter_link.jitter = settings.drafter_link.one_way / 10;
  return settings;
}

class ControlTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ControlTest, IsNearlyAsGoodAsTheBestFixedSettingInEveryCategory) {
  const std::vector<Trace> traces = TracesOf(GetParam());
  ASSERT_GE(traces.size(), 48u);
  for (const double drafter_round_trip : {0.0, 0.12, 1.0}) {
    const auto comparisons = CompareWithFixed(Cluster(0.12, drafter_round_trip),
                                              traces,
                                              FixedPolicies(kRunLengths),
                                              /*repeats=*/6,
                                              /*mixed=*/false);
    ASSERT_TRUE(comparisons.ok()) << comparisons.status();
    // Six categories, and all of them.
    EXPECT_EQ(comparisons->size(), 7u);
    for (const auto& [category, comparison] : *comparisons) {
      EXPECT_GE(comparison.regret(), kBar)
          << category << ", round trip to the drafter of " << drafter_round_trip
          << " plain steps: " << comparison.adaptive << " against "
          << comparison.best_fixed << " with " << Describe(comparison.best);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drafters,
                         ControlTest,
                         ::testing::Values("ngram", "suffix", "hybrid"),
                         [](const auto& one) { return one.param; });

// A draft node beside the verifier's own lookups.
TEST(LocalControlTest, IsNearlyAsGoodAsTheBestFixedSettingInEveryCategory) {
  std::vector<Trace> traces = TracesOf("ngram");
  ASSERT_TRUE(AddLocalTraces(TracesOf("suffix"), &traces).ok());
  for (const double drafter_round_trip : {0.12, 1.0}) {
    const auto comparisons =
        CompareWithFixed(Cluster(0.12, drafter_round_trip),
                         traces,
                         FixedPolicies(kRunLengths, /*local=*/true),
                         /*repeats=*/4,
                         /*mixed=*/false);
    ASSERT_TRUE(comparisons.ok()) << comparisons.status();
    for (const auto& [category, comparison] : *comparisons) {
      EXPECT_GE(comparison.regret(), kBar)
          << category << ", round trip to the drafter of " << drafter_round_trip
          << " plain steps: " << comparison.adaptive << " against "
          << comparison.best_fixed << " with " << Describe(comparison.best);
      EXPECT_GT(comparison.local, 0);
    }
  }
}

std::vector<double> Segments(const Settings& settings, const Trace& trace) {
  const auto results = Simulate(settings, {trace}, std::vector<size_t>{0});
  EXPECT_TRUE(results.ok()) << results.status();
  std::vector<double> speedups;
  const auto third = static_cast<int64_t>(trace.positions.size()) / 3;
  for (int64_t i = 0; results.ok() && i < 3; ++i) {
    speedups.push_back(SpeedupBetween(
        results->front(), settings.plain, i * third, (i + 1) * third));
  }
  return speedups;
}

TEST(ControlOverTimeTest, FollowsADrafterThatGetsWorseAndBetter) {
  const Settings settings = Cluster(0.12, 0.12);
  const Trace trace = SwitchTrace(
      {ConstantTrace(0.85, 16, 600, 1)}, {ConstantTrace(0, 16, 600, 1)}, 600);
  const std::vector<double> speedups = Segments(settings, trace);
  ASSERT_EQ(speedups.size(), 3u);
  std::vector<double> best(3, 1.0);
  for (const Policy& policy : FixedPolicies(kRunLengths)) {
    Settings fixed = settings;
    fixed.policy = policy;
    const std::vector<double> with = Segments(fixed, trace);
    for (size_t i = 0; i < 3; ++i) best[i] = std::max(best[i], with[i]);
  }
  EXPECT_GE(speedups[0], 0.9 * best[0]);
  EXPECT_GE(speedups[1], 0.95);
  // It has to be tried again before it is believed.
  EXPECT_GE(speedups[2], 0.6 * best[2]);
}

TEST(ControlOverTimeTest, ARandomDrafterAndADistantOneCostLittle) {
  const Trace random = ConstantTrace(0, 16, 1000, 1);
  const Trace good = ConstantTrace(0.7, 16, 1000, 1);
  const auto speedup = [](Settings settings, const Trace& trace) {
    const auto results = Simulate(settings, {trace}, std::vector<size_t>{0});
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok()
               ? SpeedupBetween(results->front(), settings.plain, 0, 1000)
               : 0;
  };
  EXPECT_GE(speedup(Cluster(0.12, 0.12), random), 0.97);
  EXPECT_GE(speedup(Cluster(0.12, 40), good), 0.97);
  // Beyond its deadline: as good as stopped.
  EXPECT_GE(speedup(Cluster(0.12, 4000), good), 0.97);
}

}  // namespace
}  // namespace specwire::simulate
