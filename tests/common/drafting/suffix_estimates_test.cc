// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix_estimates.h"

#include <gtest/gtest.h>

#include <random>

namespace specwire {
namespace {

SuffixMatch Match(int length, int count, int total, bool from_store = false) {
  return {.from_store = from_store,
          .length = length,
          .next = {.token = 1, .count = count, .total = total}};
}

TEST(SuffixEstimatesTest, BeginsWithWhatIsUsual) {
  const SuffixEstimates estimates;
  const SuffixEstimates::Sequence sequence;
  const auto chance = [&](const SuffixMatch& match) {
    return estimates.Chance(match, sequence);
  };
  // Longer, more frequent, with less dissent, nearer.
  EXPECT_LT(chance(Match(1, 1, 1)), chance(Match(2, 1, 1)));
  EXPECT_LT(chance(Match(8, 1, 1)), chance(Match(30, 1, 1)));
  EXPECT_LT(chance(Match(2, 1, 1)), chance(Match(2, 5, 5)));
  EXPECT_LT(chance(Match(2, 1, 4)), chance(Match(2, 1, 2)));
  EXPECT_LT(chance(Match(4, 1, 1, true)), chance(Match(4, 1, 1)));
  // By hand: 1 / (1 + exp(3.9 - 0.93 - 2.5)).
  EXPECT_NEAR(chance(Match(1, 1, 1)), .3846, 1e-3);
  EXPECT_LT(chance(Match(0, 1, 100)), .02);
  EXPECT_GT(chance(Match(100, 10, 10)), .98);
  EXPECT_LT(chance(Match(1000000, 1000000, 1000000)), 1.0001);
}

// Such matches are right with a probability of their own.
TEST(SuffixEstimatesTest, FollowsWhatIsSeen) {
  std::mt19937 random(1);
  for (const double truth : {.05, .5, .95}) {
    SuffixEstimates estimates;
    for (int sequences = 0; sequences < 60; ++sequences) {
      SuffixEstimates::Sequence sequence;
      for (int i = 0; i < 50; ++i) {
        estimates.Learn(Match(3, 1, 1),
                        std::bernoulli_distribution(truth)(random),
                        &sequence);
      }
    }
    // A new sequence starts with it.
    EXPECT_NEAR(estimates.Chance(Match(3, 1, 1), {}), truth, .12);
  }
}

TEST(SuffixEstimatesTest, ASequenceShowsSoonWhatItIsLike) {
  SuffixEstimates estimates;
  SuffixEstimates::Sequence good;
  SuffixEstimates::Sequence bad;
  for (int i = 0; i < 60; ++i) {
    estimates.Learn(Match(3, 1, 1), true, &good);
    estimates.Learn(Match(3, 1, 1), false, &bad);
  }
  const float usual = estimates.Chance(Match(3, 1, 1), {});
  EXPECT_GT(estimates.Chance(Match(3, 1, 1), good), usual + .15f);
  EXPECT_LT(estimates.Chance(Match(3, 1, 1), bad), usual - .15f);
  // Of its other matches too; but not of other output.
  EXPECT_GT(estimates.Chance(Match(9, 2, 2), good),
            estimates.Chance(Match(9, 2, 2), bad));
  EXPECT_EQ(estimates.Chance(Match(9, 2, 2, true), good),
            estimates.Chance(Match(9, 2, 2, true), bad));
}

TEST(SuffixEstimatesTest, KeepsWhatIsDrawnApart) {
  SuffixEstimates estimates;
  const SuffixEstimates::Sequence greedy;
  const float before = estimates.Chance(Match(2, 1, 1), greedy);
  for (int i = 0; i < 1000; ++i) {
    SuffixEstimates::Sequence sampled = {.sampled = true};
    estimates.Learn(Match(2, 1, 1), false, &sampled);
  }
  EXPECT_EQ(estimates.Chance(Match(2, 1, 1), greedy), before);
  EXPECT_LT(estimates.Chance(Match(2, 1, 1), {.sampled = true}), before / 2);
}

TEST(SuffixEstimatesTest, ComesBackFromAnyExtreme) {
  SuffixEstimates estimates;
  SuffixEstimates::Sequence sequence;
  for (int i = 0; i < 100000; ++i) {
    estimates.Learn(Match(4, 2, 2), false, &sequence);
  }
  EXPECT_GT(estimates.Chance(Match(4, 2, 2), sequence), 0);
  for (int i = 0; i < 300; ++i) {
    estimates.Learn(Match(4, 2, 2), true, &sequence);
  }
  EXPECT_GT(estimates.Chance(Match(4, 2, 2), sequence), .8);
}

}  // namespace
}  // namespace specwire
