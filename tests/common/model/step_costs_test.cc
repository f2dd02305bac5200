// SPDX-License-Identifier: Apache-2.0
#include "common/model/step_costs.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using Point = StepCosts::Point;

TEST(StepCostsTest, LinesRunThroughThePoints) {
  const std::vector<Point> points = {{16, absl::Milliseconds(40)},
                                     {1, absl::Milliseconds(10)},
                                     {4, absl::Milliseconds(10)}};
  const StepCosts costs(points);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(0), 0.010);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(1), 0.010);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(2.5), 0.010);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(10), 0.025);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(28), 0.070);
}

TEST(StepCostsTest, WhatANodeTellsNeedNotMakeSense) {
  const std::vector<Point> points = {
      {-4, absl::Milliseconds(1)},
      {0, absl::Milliseconds(1)},
      {2, absl::ZeroDuration()},
      {3, -absl::Milliseconds(1)},
      {4, absl::Milliseconds(20)},
      {4, absl::Milliseconds(10)},
      {8, absl::Milliseconds(5)},
      {std::numeric_limits<int>::max(), absl::InfiniteDuration()}};
  const StepCosts costs(points);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(4), 0.020);
  EXPECT_DOUBLE_EQ(costs.PassSeconds(8), 0.020);
  EXPECT_TRUE(std::isfinite(costs.PassSeconds(1e9)));
  const std::vector<Point> none = {{0, absl::Seconds(1)}};
  EXPECT_DOUBLE_EQ(StepCosts(none).PassSeconds(3), StepCosts().PassSeconds(3));
  EXPECT_GT(StepCosts().PassSeconds(0), 0);
  EXPECT_GT(StepCosts().PassSeconds(64), StepCosts().PassSeconds(1));
  const std::vector<Point> many(100000, {7, absl::Milliseconds(7)});
  EXPECT_DOUBLE_EQ(StepCosts(many).PassSeconds(7), 0.007);
}

}  // namespace
}  // namespace specwire
