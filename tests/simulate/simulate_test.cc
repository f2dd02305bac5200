// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulate/costs.h"
#include "bench/simulate/experiment.h"
#include "bench/simulate/random.h"
#include "bench/simulate/trace.h"

namespace specwire::simulate {
namespace {

Policy Plain() { return {.kind = Policy::Kind::kPlain}; }

Policy LockStep(int run_length, int window) {
  return {.kind = Policy::Kind::kFixed,
          .run_length = run_length,
          .window = window,
          .patience = absl::InfiniteDuration()};
}

Settings WithRoundTrip(double plain_steps) {
  Settings settings;
  settings.verifier_link.one_way = plain_steps / 4 * settings.plain;
  settings.drafter_link.one_way = plain_steps / 4 * settings.plain;
  return settings;
}

// Speed of one request against plain decoding without any network.
double Speedup(Settings settings, const Policy& policy, const Trace& trace) {
  settings.policy = policy;
  const absl::StatusOr<std::vector<RequestResult>> results =
      Simulate(settings, {trace}, std::vector<size_t>{0});
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return 0;
  return SpeedupBetween(
      results->front(), settings.plain, 0, results->front().num_tokens);
}

TEST(VerifyCostsTest, InterpolatesAndExtrapolates) {
  const absl::StatusOr<VerifyCosts> costs = VerifyCosts::Parse("1:2,5:4,7:6");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_DOUBLE_EQ((*costs)(1), 1);
  EXPECT_DOUBLE_EQ((*costs)(3), 1.5);
  EXPECT_DOUBLE_EQ((*costs)(5), 2);
  EXPECT_DOUBLE_EQ((*costs)(6), 2.5);
  EXPECT_DOUBLE_EQ((*costs)(9), 4);
  EXPECT_DOUBLE_EQ((*VerifyCosts::Parse("1:7"))(5), 1);
}

TEST(VerifyCostsTest, RefusesWhatIsNoTable) {
  for (const char* text :
       {"", "2:1", "1:0", "1:1,1:2", "1:2,4:1", "1:nan", "1", "1:1,x:2"}) {
    EXPECT_FALSE(VerifyCosts::Parse(text).ok()) << text;
  }
}

TEST(SimulateTest, PlainTakesAStepForEachToken) {
  const Trace trace = ConstantTrace(0.5, 16, 500, 1);
  EXPECT_NEAR(Speedup(WithRoundTrip(0), Plain(), trace), 1, 1e-6);
  // Tokens are not waited for one by one: only the first pays the way.
  EXPECT_NEAR(Speedup(WithRoundTrip(2), Plain(), trace), 500 / 501.0, 1e-6);
}

// guides/performance.md 2.3: E(k) / (k c + v(k+1) + r).
TEST(SimulateTest, LockStepAgreesWithTheClosedForm) {
  for (const double acceptance : {0.3, 0.6, 0.8, 0.9}) {
    const Trace trace = ConstantTrace(acceptance, 16, 30000, /*seed=*/3);
    for (const int run_length : {1, 2, 4, 8}) {
      for (const double token : {0.0, 0.13}) {
        for (const double round_trip : {0.0, 0.25, 3.0}) {
          Settings settings = WithRoundTrip(round_trip);
          settings.draft.token = token;
          Trace with_model = trace;
          for (TracePosition& position : with_model.positions) {
            position.model = true;
          }
          const double expected = ClosedFormSpeedup(
              run_length, acceptance, token, round_trip, settings.verify);
          EXPECT_NEAR(
              Speedup(settings, LockStep(run_length, run_length), with_model) /
                  expected,
              1,
              0.02)
              << "acceptance " << acceptance << ", run length " << run_length
              << ", a token " << token << ", round trip " << round_trip;
        }
      }
    }
  }
}

// The verifier's own drafts of constant quality.
Trace WithLocal(Trace trace, double acceptance, int run, uint64_t seed) {
  Trace local = ConstantTrace(acceptance,
                              run,
                              static_cast<int>(trace.positions.size()),
                              seed,
                              /*survival=*/true);
  local.prompt_tokens = trace.prompt_tokens;
  trace.local = std::make_shared<Trace>(std::move(local));
  return trace;
}

Policy Local(int run_length) {
  return {.kind = Policy::Kind::kFixed,
          .run_length = run_length,
          .window = run_length,
          .patience = absl::ZeroDuration(),
          .draft_nodes = false,
          .local_run_length = run_length};
}

TEST(SimulateTest, LocalDraftsTakeRowsAlone) {
  for (const double acceptance : {0.6, 0.8}) {
    const Trace trace =
        WithLocal(ConstantTrace(0, 0, 20000, 1), acceptance, 16, /*seed=*/3);
    for (const int run_length : {1, 2, 3}) {
      const Settings settings = WithRoundTrip(3);
      const double expected = ClosedFormSpeedup(
          run_length, acceptance, 0, /*round_trip=*/0, settings.verify);
      EXPECT_NEAR(
          Speedup(settings, Local(run_length), trace) / expected, 1, 0.02)
          << "acceptance " << acceptance << ", run length " << run_length;
    }
  }
}

TEST(SimulateTest, ADistantNodeDoesNotDelayLocalDrafts) {
  Settings settings = WithRoundTrip(3);
  settings.draft.token = 0.13;
  Trace trace = ConstantTrace(0.5, 8, 5000, 1, /*survival=*/true);
  for (TracePosition& position : trace.positions) position.model = true;
  const Policy adaptive = {.run_length = 4, .window = 8};
  const Trace with = WithLocal(trace, 0.8, 8, 2);
  const double local = Speedup(settings, Local(8), with);
  EXPECT_GT(local, 2);
  EXPECT_GE(Speedup(settings, adaptive, with), 0.95 * local);
  EXPECT_LT(Speedup(settings, adaptive, trace), 1.2);
}

TEST(SimulateTest, DraftingAheadHidesDraftTime) {
  Trace trace = ConstantTrace(0.95, 16, 20000, 5);
  for (TracePosition& position : trace.positions) position.model = true;
  Settings settings = WithRoundTrip(0.1);
  settings.draft.token = 0.2;
  EXPECT_GT(Speedup(settings, LockStep(4, 8), trace),
            1.15 * Speedup(settings, LockStep(4, 4), trace));
}

TEST(SimulateTest, RequestsOfABatchShareAPass) {
  Settings settings = WithRoundTrip(0);
  settings.policy = Plain();
  settings.concurrency = 8;
  const std::vector<Trace> traces = {ConstantTrace(0.5, 16, 300, 1)};
  const auto tallies = RunAll(settings, traces, 8);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  EXPECT_NEAR(tallies->at(kAllCategories).rate() *
                  absl::ToDoubleSeconds(settings.plain),
              1 / settings.verify(8),
              0.01);
  // As many verifiers as requests: nobody shares.
  settings.num_verifiers = 8;
  const auto apart = RunAll(settings, traces, 8);
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_NEAR(
      apart->at(kAllCategories).rate() * absl::ToDoubleSeconds(settings.plain),
      1,
      0.01);
}

// Simulate() compares every text with its trace's; here over settings of all
// kinds.
TEST(SimulateTest, TheTextIsAlwaysTheTraces) {
  Random random(9);
  const auto below = [&](int n) {
    return static_cast<int>(random.Next() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 150; ++i) {
    Settings settings = WithRoundTrip(below(40) / 10.0);
    settings.seed = random.Next();
    settings.verifier_link.jitter = below(3) * settings.plain / 4;
    settings.drafter_link.jitter = below(3) * settings.plain / 4;
    settings.num_verifiers = 1 + below(4);
    settings.num_draft_nodes = 1 + below(2);
    settings.concurrency = 1 + below(8);
    settings.draft.token = below(2) * 0.13;
    settings.policy.run_length = 1 + below(12);
    settings.policy.window = settings.policy.run_length * (1 + below(3));
    settings.policy.draft_nodes = below(4) > 0;
    settings.policy.local_run_length = below(kMaxTracedRun + 1);
    settings.policy.kind =
        below(2) == 0 ? Policy::Kind::kFixed : Policy::Kind::kAdaptive;
    if (settings.policy.kind == Policy::Kind::kFixed) {
      settings.policy.patience = std::vector<absl::Duration>{
          absl::ZeroDuration(),
          settings.plain / 2,
          absl::InfiniteDuration()}[random.Next() % 3];
    }
    std::vector<Trace> traces;
    std::vector<size_t> order;
    for (size_t j = 0; j < 12; ++j) {
      traces.push_back(ConstantTrace(random.Uniform(),
                                     below(kMaxTracedRun + 1),
                                     1 + below(200),
                                     random.Next(),
                                     below(2) == 0));
      traces.back().stopped = below(2) == 0;
      traces.back().prompt_tokens = 1 + below(50);
      for (TracePosition& position : traces.back().positions) {
        position.model = below(2) == 0;
      }
      if (below(2) == 0) {
        traces.back() = WithLocal(std::move(traces.back()),
                                  random.Uniform(),
                                  below(kMaxTracedRun + 1),
                                  random.Next());
      }
      order.push_back(j);
    }
    const auto results = Simulate(settings, traces, order);
    ASSERT_TRUE(results.ok()) << i << ": " << results.status();
    for (const RequestResult& result : *results) {
      EXPECT_EQ(result.num_tokens,
                static_cast<int64_t>(traces[result.trace].positions.size()));
      EXPECT_EQ(result.progress.back().second, result.num_tokens);
      // Each pass has a token of the target's own, but one whose last draft
      // token stops the text.
      const int64_t beyond = result.figures.num_passes +
                             result.figures.num_accepted_draft_tokens -
                             result.num_tokens;
      EXPECT_GE(beyond, 0);
      EXPECT_LE(beyond, traces[result.trace].stopped ? 1 : 0);
    }
  }
}

std::vector<RequestResult> JitteredRun(uint64_t seed) {
  Settings settings = WithRoundTrip(0.5);
  settings.verifier_link.jitter = settings.plain / 4;
  settings.drafter_link.jitter = settings.plain / 4;
  settings.concurrency = 3;
  settings.seed = seed;
  std::vector<Trace> traces;
  std::vector<size_t> order;
  for (size_t i = 0; i < 6; ++i) {
    traces.push_back(ConstantTrace(0.7, 16, 200, i));
    order.push_back(i);
  }
  const auto results = Simulate(settings, traces, order);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *results : std::vector<RequestResult>();
}

TEST(SimulateTest, IsAFunctionOfTheSeed) {
  const std::vector<RequestResult> first = JitteredRun(1);
  const std::vector<RequestResult> again = JitteredRun(1);
  const std::vector<RequestResult> other = JitteredRun(2);
  ASSERT_EQ(first.size(), again.size());
  ASSERT_EQ(first.size(), other.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].progress, again[i].progress);
    EXPECT_NE(first[i].progress, other[i].progress);
  }
}

TEST(SimulateTest, ADrafterBeyondItsDeadlineCostsNoText) {
  Settings settings = WithRoundTrip(0);
  settings.drafter_link.one_way = absl::Seconds(5);
  settings.policy = LockStep(4, 8);
  const Trace trace = ConstantTrace(0.9, 16, 100, 1);
  const auto results = Simulate(settings, {trace}, std::vector<size_t>{0});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->front().num_tokens, 100);
}

TEST(SimulateTest, SwitchTraceHasThreeSegments) {
  const Trace trace = SwitchTrace(
      {ConstantTrace(1, 8, 30, 1)}, {ConstantTrace(0, 8, 30, 1)}, 50);
  ASSERT_EQ(trace.positions.size(), 150u);
  EXPECT_GT(trace.positions[10].right, 0);
  EXPECT_EQ(trace.positions[75].right, 0);
  EXPECT_GT(trace.positions[110].right, 0);
}

}  // namespace
}  // namespace specwire::simulate
