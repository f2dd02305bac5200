// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/acceptance_estimate.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace specwire {
namespace {

TEST(AcceptanceEstimateTest, IsTheProbabilityUntilSomethingIsSeen) {
  const AcceptanceEstimate estimate;
  for (const double p : {0.0, 0.03, 0.5, 0.97, 1.0}) {
    EXPECT_EQ(estimate.Chance(p), p);
  }
}

TEST(AcceptanceEstimateTest, LearnsHowMuchAModelOverratesItself) {
  AcceptanceEstimate estimate;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 20000; ++i) {
    const double p = uniform(random);
    estimate.Observe(p, uniform(random) < p * p);
  }
  for (double p = 0.05; p < 1; p += 0.1) {
    EXPECT_NEAR(estimate.Chance(p), p * p, 0.08) << p;
  }
}

TEST(AcceptanceEstimateTest, KeepsStepsApart) {
  AcceptanceEstimate estimate;
  for (int i = 0; i < 100; ++i) estimate.Observe(0.9, false);
  EXPECT_LT(estimate.Chance(0.9), 0.1);
  EXPECT_EQ(estimate.Chance(0.4), 0.4);
}

TEST(AcceptanceEstimateTest, ForgetsWhatWasLongAgo) {
  AcceptanceEstimate estimate;
  for (int i = 0; i < 100000; ++i) estimate.Observe(0.5, false);
  for (int i = 0; i < 1500; ++i) estimate.Observe(0.5, true);
  EXPECT_GT(estimate.Chance(0.5), 0.8);
}

TEST(AcceptanceEstimateTest, StaysAProbability) {
  AcceptanceEstimate estimate;
  for (int i = 0; i < 300; ++i) {
    estimate.Observe(0.94, true);
    estimate.Observe(0.02, false);
    estimate.Observe(1.0, true);
    estimate.Observe(0.0, false);
  }
  for (double p = 0; p <= 1; p += 1.0 / 64) {
    EXPECT_GE(estimate.Chance(p), 0);
    EXPECT_LE(estimate.Chance(p), 1);
  }
}

}  // namespace
}  // namespace specwire
