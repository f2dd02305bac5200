// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/pass_cost.h"

#include <cmath>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

// Rows behind no context, all with logits.
PassShape Rows(int rows) {
  PassShape shape;
  shape.AddRows(rows, 0);
  shape.row_context = 0;
  shape.logit_rows = rows;
  return shape;
}

// A machine that a model of sums fits, in seconds.
double TrueTime(const PassShape& shape) {
  return 4e-3 + 3e-4 * static_cast<double>(shape.rows) +
         2e-4 * static_cast<double>(shape.logit_rows) +
         5e-7 * static_cast<double>(shape.row_context) +
         4e-7 * static_cast<double>(shape.run_context);
}

PassShape RandomShape(std::mt19937* random) {
  PassShape shape;
  const int steps = static_cast<int>((*random)() % 20);
  for (int i = 0; i < steps; ++i) {
    const int rows = 1 + static_cast<int>((*random)() % 4);
    shape.AddRun(rows, static_cast<int>((*random)() % 1000));
    shape.logit_rows += rows;
  }
  if (steps == 0 || (*random)() % 2 == 0) {
    shape.AddRun(1 + static_cast<int>((*random)() % 200),
                 static_cast<int>((*random)() % 4000));
  }
  return shape;
}

TEST(PassCostTest, AddsUpTheContextOfARun) {
  PassShape shape;
  shape.AddRun(3, 10);
  EXPECT_EQ(shape.rows, 3);
  EXPECT_EQ(shape.row_context, 10 + 11 + 12);
  EXPECT_EQ(shape.run_context, 10);
  shape.AddRows(1, 13);
  EXPECT_EQ(shape.row_context, 10 + 11 + 12 + 13);
  EXPECT_EQ(shape.run_context, 10);
}

TEST(PassCostTest, StartsFromMeasurements) {
  const StepCost costs[] = {{1, 16, absl::Microseconds(2470)},
                            {4, 16, absl::Microseconds(2900)},
                            {8, 16, absl::Microseconds(4820)},
                            {16, 16, absl::Microseconds(8980)},
                            {32, 16, absl::Microseconds(17690)}};
  const PassCost cost(costs);
  for (const StepCost& measured : costs) {
    EXPECT_NEAR(cost.Predict(Rows(measured.num_rows)),
                absl::ToDoubleSeconds(measured.duration),
                2e-4)
        << measured.num_rows;
  }
}

TEST(PassCostTest, FewMeasurementsTellOfAll) {
  const StepCost costs[] = {{1, 16, absl::Milliseconds(5)},
                            {4, 16, absl::Milliseconds(8)}};
  const PassCost cost(costs);
  EXPECT_NEAR(cost.Predict(Rows(1)), 5e-3, 5e-5);
  EXPECT_NEAR(cost.Predict(Rows(20)), 24e-3, 1e-3);
}

TEST(PassCostTest, GrowsWithEveryPart) {
  // Also from measurements that make no sense.
  const std::vector<std::vector<StepCost>> all = {
      {},
      {{1, 16, absl::Milliseconds(5)}},
      {{1, 16, absl::Milliseconds(5)}, {8, 16, absl::Milliseconds(2)}},
      {{1, 16, absl::ZeroDuration()}, {8, 16, absl::ZeroDuration()}}};
  for (const std::vector<StepCost>& costs : all) {
    const PassCost cost(costs);
    PassShape shape = Rows(4);
    const double before = cost.Predict(shape);
    EXPECT_GT(before, 0);
    shape.rows = 5;
    EXPECT_GT(cost.Predict(shape), before);
    shape = Rows(4);
    shape.logit_rows = 5;
    EXPECT_GT(cost.Predict(shape), before);
    shape = Rows(4);
    shape.run_context = 1000;
    EXPECT_GT(cost.Predict(shape), before);
    shape = Rows(4);
    shape.row_context = 1000;
    EXPECT_GT(cost.Predict(shape), before);
  }
}

TEST(PassCostTest, LearnsAMachineFromItsPasses) {
  PassCost cost;
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const PassShape shape = RandomShape(&random);
    cost.Observe(shape, TrueTime(shape));
  }
  double error = 0;
  for (int i = 0; i < 200; ++i) {
    const PassShape shape = RandomShape(&random);
    error += std::abs(std::log(cost.Predict(shape) / TrueTime(shape)));
  }
  EXPECT_LT(error / 200, 0.15);
}

TEST(PassCostTest, FollowsAChangeButNotAnOddPass) {
  PassCost cost;
  const PassShape shape = Rows(4);
  for (int i = 0; i < 200; ++i) cost.Observe(shape, 5e-3);
  EXPECT_NEAR(cost.Predict(shape), 5e-3, 1e-4);
  // Something else had the processor for a second.
  cost.Observe(shape, 1);
  EXPECT_LT(cost.Predict(shape), 5.3e-3);
  for (int i = 0; i < 200; ++i) cost.Observe(shape, 10e-3);
  EXPECT_NEAR(cost.Predict(shape), 10e-3, 2e-4);
}

TEST(PassCostTest, IgnoresTimesThatAreNone) {
  PassCost cost;
  const double before = cost.Predict(Rows(3));
  cost.Observe(Rows(3), 0);
  cost.Observe(Rows(3), -1);
  cost.Observe(Rows(3), std::nan(""));
  EXPECT_EQ(cost.Predict(Rows(3)), before);
}

}  // namespace
}  // namespace specwire::verifier
