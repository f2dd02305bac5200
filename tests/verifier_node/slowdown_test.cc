// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/slowdown.h"

#include <cstdint>
#include <random>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

TEST(SlowdownTest, IsThatOfPassesOfAsManyRows) {
  const StepCost costs[] = {{1, 16, absl::Milliseconds(5)},
                            {4, 16, absl::Milliseconds(8)},
                            {64, 16, absl::Milliseconds(68)}};
  Slowdown slowdown(costs);
  EXPECT_DOUBLE_EQ(slowdown.value(), 1);
  std::mt19937 random(5);
  const auto observe = [&](double factor) {
    for (int i = 0; i < 100; ++i) {
      const auto rows = static_cast<int64_t>(1 + random() % 200);
      slowdown.Observe(rows,
                       factor * (4e-3 + 1e-3 * static_cast<double>(rows)));
    }
  };
  observe(1);
  EXPECT_NEAR(slowdown.value(), 1, 1e-6);
  observe(3);
  EXPECT_NEAR(slowdown.value(), 3, 0.01);
  observe(0.5);
  EXPECT_NEAR(slowdown.value(), 0.5, 0.01);
}

// Many rows that are free: whoever has many is not fast for it.
TEST(SlowdownTest, DoesNotDependOnHowMuchThereIsToDo) {
  const StepCost costs[] = {{1, 16, absl::Seconds(2)},
                            {64, 16, absl::Seconds(2)}};
  for (const int64_t rows : {1, 20, 100, 400}) {
    Slowdown slowdown(costs);
    for (int i = 0; i < 100; ++i) slowdown.Observe(rows, 2);
    EXPECT_NEAR(slowdown.value(), 1, 1e-6) << rows;
  }
}

TEST(SlowdownTest, OneOddPassMovesItLittle) {
  const StepCost costs[] = {{1, 16, absl::Milliseconds(5)}};
  Slowdown slowdown(costs);
  slowdown.Observe(1, 3600);
  EXPECT_LT(slowdown.value(), 1.15);
  slowdown.Observe(1, 0);
  slowdown.Observe(1, -1);
  EXPECT_GE(slowdown.value(), 1);
  slowdown.Observe(1, 1e-9);
  EXPECT_NEAR(slowdown.value(), 1, 0.05);
}

}  // namespace
}  // namespace specwire::verifier
