// SPDX-License-Identifier: Apache-2.0
#include "coordinator/routing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using Point = StepCosts::Point;

StepCosts Costs(int pass_ms, int row_ms) {
  const std::vector<Point> points = {
      {1, absl::Milliseconds(pass_ms + row_ms)},
      {64, absl::Milliseconds(pass_ms + 64 * row_ms)}};
  return StepCosts(points);
}

TEST(RoutingTest, OnlyASlowdownThatIsNoNoiseIsBelieved) {
  for (const double noise : {0.0, -1.0, std::nan(""), 0.85, 1.0, 1.2}) {
    EXPECT_EQ(TrustedSlowdown(noise), 1) << noise;
  }
  EXPECT_EQ(TrustedSlowdown(2), 2);
  EXPECT_EQ(TrustedSlowdown(0.5), 0.5);
  const double most = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isfinite(TrustedSlowdown(most)));
  EXPECT_GT(TrustedSlowdown(1e-300), 1e-3);
}

TEST(RoutingTest, FinishTimeIsReadingAndPassesOfAllThatRun) {
  const StepCosts costs = Costs(10, 1);
  const SequenceNeed need = {.num_tokens = 20, .max_tokens = 100};
  // 30 ms for the prompt, and a hundred passes of 11 ms.
  EXPECT_NEAR(ExpectedSeconds({.costs = &costs}, need), 1.13, 1e-9);
  // Passes have a row for each sequence.
  EXPECT_NEAR(
      ExpectedSeconds({.costs = &costs, .num_sequences = 3}, need), 1.43, 1e-9);
  // Prompts that are still to be read come first.
  EXPECT_NEAR(ExpectedSeconds({.costs = &costs, .unread_tokens = 100}, need),
              1.23,
              1e-9);
  // All of it takes longer on a machine that has become slower.
  EXPECT_NEAR(
      ExpectedSeconds({.costs = &costs, .slowdown = 2}, need), 2.26, 1e-9);
  // What is cached is not read.
  EXPECT_NEAR(ExpectedSeconds({.costs = &costs, .cached_tokens = 16}, need),
              1.114,
              1e-9);
  // Eight sequences on two places: four turns of 12 ms passes.
  EXPECT_NEAR(
      ExpectedSeconds({.costs = &costs, .num_sequences = 7, .max_running = 2},
                      need),
      0.03 + 100 * 0.012 * 4,
      1e-9);
}

TEST(RoutingTest, AnEnormousBudgetIsNotTakenForALongText) {
  // 1000 tokens to read against one sequence more: with a budget that nobody
  // uses up the prefix still decides.
  const StepCosts costs = Costs(10, 1);
  const SequenceNeed need = {.num_tokens = 1001, .max_tokens = 1 << 20};
  const std::vector<VerifierCandidate> verifiers = {
      {.costs = &costs},
      {.costs = &costs, .num_sequences = 1, .cached_tokens = 1000}};
  EXPECT_EQ(PickVerifier(verifiers, need), 1);
}

TEST(RoutingTest, AFastVerifierTakesMoreThanASlowOne) {
  const StepCosts fast = Costs(10, 1);
  const StepCosts slow = Costs(20, 2);
  std::vector<VerifierCandidate> verifiers = {{.costs = &slow},
                                              {.costs = &fast}};
  const SequenceNeed need = {.num_tokens = 10, .max_tokens = 100};
  EXPECT_EQ(PickVerifier(verifiers, need), 1);
  verifiers[1].num_sequences = 8;
  EXPECT_EQ(PickVerifier(verifiers, need), 1);
  verifiers[1].num_sequences = 16;
  EXPECT_EQ(PickVerifier(verifiers, need), 0);
}

TEST(RoutingTest, APrefixIsWorthWhatReadingItTakes) {
  const StepCosts costs = Costs(10, 1);
  const SequenceNeed need = {.num_tokens = 401, .max_tokens = 100};
  std::vector<VerifierCandidate> verifiers = {
      {.costs = &costs, .num_sequences = 2},
      {.costs = &costs, .num_sequences = 2, .cached_tokens = 400}};
  // Reading takes 400 ms; a sequence more takes 100 ms.
  for (const int more : {0, 1, 3}) {
    verifiers[1].num_sequences = 2 + more;
    EXPECT_EQ(PickVerifier(verifiers, need), 1) << more;
  }
  for (const int more : {6, 20}) {
    verifiers[1].num_sequences = 2 + more;
    EXPECT_EQ(PickVerifier(verifiers, need), 0) << more;
  }
  // A short one is worth nothing.
  verifiers[1].num_sequences = 3;
  verifiers[1].cached_tokens = 16;
  EXPECT_EQ(PickVerifier(verifiers, need), 0);
}

TEST(RoutingTest, WhereRowsCostNothingCountsDecide) {
  const StepCosts flat = Costs(10, 0);
  std::vector<VerifierCandidate> verifiers(3, {.costs = &flat});
  const SequenceNeed need = {.num_tokens = 10, .max_tokens = 100};
  verifiers[0].num_sequences = 2;
  verifiers[1].num_sequences = 1;
  verifiers[2].num_sequences = 1;
  EXPECT_EQ(PickVerifier(verifiers, need), 1);
  verifiers[2].rank = 1;
  EXPECT_EQ(PickVerifier(verifiers, need), 2);
  verifiers[1].cached_tokens = 8;
  EXPECT_EQ(PickVerifier(verifiers, need), 1);
}

TEST(RoutingTest, ADraftNodeIsNearByMeasureOrByMachine) {
  std::vector<DrafterCandidate> drafters(3);
  EXPECT_EQ(PickDrafter(drafters), 0);
  drafters[2].beside_verifier = true;
  EXPECT_EQ(PickDrafter(drafters), 2);
  drafters[2].num_sequences = 1;
  EXPECT_EQ(PickDrafter(drafters), 2);
  drafters[2].num_sequences = 2;
  EXPECT_EQ(PickDrafter(drafters), 0);
  // Ten milliseconds are too far, until the near ones are busy.
  drafters[0].round_trip = absl::Milliseconds(10);
  drafters[1].round_trip = absl::Microseconds(300);
  EXPECT_EQ(PickDrafter(drafters), 1);
  drafters[1].num_sequences = 9;
  drafters[2].num_sequences = 12;
  EXPECT_EQ(PickDrafter(drafters), 1);
  drafters[1].num_sequences = 12;
  EXPECT_EQ(PickDrafter(drafters), 0);
  // Parts of a millisecond are noise.
  std::vector<DrafterCandidate> equal(2);
  equal[0].round_trip = absl::Microseconds(900);
  equal[1].round_trip = absl::Microseconds(100);
  EXPECT_EQ(PickDrafter(equal), 0);
}

TEST(PrefixHomesTest, RemembersWhoHasReadWhat) {
  PrefixHomes homes;
  const SequenceNeed need = {.num_tokens = 100, .affinity = 7};
  EXPECT_EQ(homes.CachedTokens(need, "a"), 0);
  homes.Note(need, "a");
  // The last token is read in any case.
  EXPECT_EQ(homes.CachedTokens(need, "a"), 96);
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 97, .affinity = 7}, "a"), 96);
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 96, .affinity = 7}, "a"), 80);
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 1000, .affinity = 7}, "a"), 96);
  EXPECT_EQ(homes.CachedTokens(need, "b"), 0);
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 100, .affinity = 8}, "a"), 0);
  // Nothing to share.
  homes.Note({.num_tokens = 100, .affinity = 0}, "a");
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 100, .affinity = 0}, "a"), 0);
  // Several may have it, the oldest is forgotten.
  for (const char* node : {"b", "c", "a", "d", "e"}) homes.Note(need, node);
  EXPECT_EQ(homes.CachedTokens(need, "b"), 0);
  for (const char* node : {"a", "c", "d", "e"}) {
    EXPECT_EQ(homes.CachedTokens(need, node), 96) << node;
  }
  // Another beginning in the same place.
  homes.Note({.num_tokens = 50, .affinity = 7 + 4096}, "x");
  EXPECT_EQ(homes.CachedTokens(need, "a"), 0);
  EXPECT_EQ(homes.CachedTokens({.num_tokens = 50, .affinity = 7 + 4096}, "x"),
            48);
}

TEST(RoundTripTest, TheShortestOfTheLatestCounts) {
  RoundTrip round_trip;
  EXPECT_EQ(round_trip.shortest(), absl::ZeroDuration());
  round_trip.Observe(absl::Milliseconds(5));
  EXPECT_EQ(round_trip.shortest(), absl::Milliseconds(5));
  round_trip.Observe(absl::Milliseconds(2));
  round_trip.Observe(absl::Milliseconds(9));
  EXPECT_EQ(round_trip.shortest(), absl::Milliseconds(2));
  // A way that has become longer is noticed.
  for (int i = 0; i < 8; ++i) round_trip.Observe(absl::Milliseconds(30));
  EXPECT_EQ(round_trip.shortest(), absl::Milliseconds(30));
}

// A steady load of sequences that come one by one and stay for as long as the
// nodes that they are on take.
struct Load {
  std::vector<StepCosts> costs;
  // Sequences at once.
  int num_sequences = 640;
  int max_running = 0;
};

// Sequences on each node once the load is steady, as a mean over time.
std::vector<double> RunSteadily(const Load& load) {
  std::vector<VerifierCandidate> nodes;
  for (const StepCosts& costs : load.costs) {
    nodes.push_back({.costs = &costs, .max_running = load.max_running});
  }
  struct Sequence {
    size_t node = 0;
    double tokens_left = 0;
  };
  std::vector<Sequence> sequences;
  uint64_t state = 9;
  const auto next = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int>((state >> 33) % 1000);
  };
  std::vector<double> sums(nodes.size());
  int num_looks = 0;
  // In steps of a tenth of a second; the first half is the way to a steady
  // state.
  for (int step = 0; step < 2000; ++step) {
    while (sequences.size() < static_cast<size_t>(load.num_sequences)) {
      const SequenceNeed need = {.num_tokens = 1 + next() / 10,
                                 .max_tokens = 50 + next() / 5};
      const size_t node = PickVerifier(nodes, need);
      ++nodes[node].num_sequences;
      sequences.push_back({node, static_cast<double>(need.max_tokens)});
    }
    for (Sequence& sequence : sequences) {
      const VerifierCandidate& node = nodes[sequence.node];
      sequence.tokens_left -= 0.1 / node.costs->PassSeconds(node.num_sequences);
    }
    std::erase_if(sequences, [&nodes](const Sequence& sequence) {
      if (sequence.tokens_left > 0) return false;
      --nodes[sequence.node].num_sequences;
      return true;
    });
    if (step < 1000) continue;
    ++num_looks;
    for (size_t i = 0; i < nodes.size(); ++i) {
      sums[i] += nodes[i].num_sequences;
    }
  }
  for (double& sum : sums) sum /= num_looks;
  return sums;
}

void ExpectNearMean(const std::vector<double>& values, double part) {
  double mean = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  std::printf(
      "of the mean: least %.3f, most %.3f\n", *least / mean, *most / mean);
  EXPECT_GE(*least, (1 - part) * mean);
  EXPECT_LE(*most, (1 + part) * mean);
}

TEST(RoutingBalanceTest, SixtyFourEqualVerifiersHaveEquallyManySequences) {
  for (const int row_ms : {0, 1, 5}) {
    SCOPED_TRACE(row_ms);
    ExpectNearMean(
        RunSteadily({.costs = std::vector<StepCosts>(64, Costs(20, row_ms))}),
        0.1);
  }
}

TEST(RoutingBalanceTest, MeasurementNoiseUnbalancesNothing) {
  std::vector<StepCosts> costs;
  for (int i = 0; i < 64; ++i) {
    const auto percent = 98 + i % 5;
    const std::vector<Point> points = {{1, absl::Microseconds(210) * percent},
                                       {64, absl::Microseconds(840) * percent}};
    costs.emplace_back(points);
  }
  ExpectNearMean(RunSteadily({.costs = std::move(costs)}), 0.1);
}

TEST(RoutingBalanceTest, UnequalVerifiersTakeEquallyLong) {
  Load load;
  for (int i = 0; i < 64; ++i)
    load.costs.push_back(Costs(5 + i % 8, 1 + i % 3));
  load.num_sequences = 1280;
  const std::vector<double> counts = RunSteadily(load);
  std::vector<double> seconds;
  for (size_t i = 0; i < counts.size(); ++i) {
    seconds.push_back(load.costs[i].PassSeconds(counts[i]));
  }
  ExpectNearMean(seconds, 0.1);
  // By counts they are far from it.
  EXPECT_GT(counts[0], 1.5 * counts[63 - 63 % 8 - 1]);
}

TEST(RoutingBalanceTest, SixtyFourDraftNodesHaveEquallyManySequences) {
  std::vector<DrafterCandidate> drafters(64);
  for (size_t i = 0; i < drafters.size(); ++i) {
    drafters[i].round_trip = absl::Microseconds(100 + 10 * i);
  }
  for (int i = 0; i < 64 * 20; ++i) {
    // Eight machines: a verifier's own has eight of them.
    for (size_t k = 0; k < drafters.size(); ++k) {
      drafters[k].beside_verifier = k % 8 == static_cast<size_t>(i) % 8;
    }
    ++drafters[PickDrafter(drafters)].num_sequences;
  }
  std::vector<double> counts;
  for (const auto& drafter : drafters) counts.push_back(drafter.num_sequences);
  ExpectNearMean(counts, 0.1);
}

}  // namespace
}  // namespace specwire::coordinator
