// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/pacer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace specwire::cli::bench {
namespace {

constexpr int kMany = 20000;

// Gaps of many arrivals in seconds.
std::vector<double> Gaps(double rate, double burstiness) {
  Arrivals arrivals(rate, burstiness, 7);
  std::vector<double> gaps;
  absl::Duration last;
  for (int i = 0; i < kMany; ++i) {
    const absl::Duration next = arrivals.Next();
    gaps.push_back(absl::ToDoubleSeconds(next - last));
    last = next;
  }
  return gaps;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Variance(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size());
}

TEST(ArrivalsTest, PoissonGapsAreExponential) {
  const std::vector<double> gaps = Gaps(50, 1);
  // Of 20,000 the standard errors are 0.7 % of the mean and 2 % of the
  // variance.
  EXPECT_NEAR(Mean(gaps), 0.02, 0.02 * 0.03);
  EXPECT_NEAR(Variance(gaps), 0.02 * 0.02, 0.02 * 0.02 * 0.09);
  int num_long = 0;
  for (double gap : gaps) {
    EXPECT_GE(gap, 0);
    if (gap > 0.02) ++num_long;
  }
  EXPECT_NEAR(num_long / static_cast<double>(kMany), std::exp(-1), 0.015);
}

TEST(ArrivalsTest, BurstinessIsTheShapeOfTheGaps) {
  // The variance of a gamma distribution is the squared mean by its shape.
  for (double burstiness : {0.25, 4.0, 100.0}) {
    const std::vector<double> gaps = Gaps(10, burstiness);
    EXPECT_NEAR(Mean(gaps), 0.1, 0.1 * 0.06) << burstiness;
    EXPECT_NEAR(Variance(gaps) * burstiness / 0.01, 1, 0.15) << burstiness;
  }
}

TEST(ArrivalsTest, TheSameSeedGivesTheSamePoints) {
  Arrivals a(3, 1, 5);
  Arrivals b(3, 1, 5);
  Arrivals other(3, 1, 6);
  int num_equal = 0;
  for (int i = 0; i < 100; ++i) {
    const absl::Duration point = a.Next();
    EXPECT_EQ(point, b.Next());
    if (point == other.Next()) ++num_equal;
  }
  EXPECT_LT(num_equal, 2);
}

TEST(ClosedLoopTest, AWorkerStartsWhenItsRequestHasEnded) {
  const auto pacer = MakeClosedLoop(2, absl::Milliseconds(100));
  EXPECT_EQ(pacer->NextStart(), absl::ZeroDuration());
  EXPECT_EQ(pacer->Start(absl::Milliseconds(1)), absl::Milliseconds(1));
  EXPECT_EQ(pacer->NextStart(), absl::ZeroDuration());
  pacer->Start(absl::Milliseconds(2));
  EXPECT_FALSE(pacer->NextStart().has_value());
  pacer->End(absl::Milliseconds(50), /*failed=*/false);
  EXPECT_EQ(pacer->NextStart(), absl::Milliseconds(50));
}

TEST(ClosedLoopTest, OnlyAWorkerThatFailedPauses) {
  const auto pacer = MakeClosedLoop(2, absl::Milliseconds(100));
  pacer->Start(absl::ZeroDuration());
  pacer->Start(absl::ZeroDuration());
  pacer->End(absl::Milliseconds(10), /*failed=*/true);
  EXPECT_EQ(pacer->NextStart(), absl::Milliseconds(110));
  pacer->End(absl::Milliseconds(20), /*failed=*/false);
  EXPECT_EQ(pacer->NextStart(), absl::Milliseconds(20));
  pacer->Start(absl::Milliseconds(20));
  EXPECT_EQ(pacer->NextStart(), absl::Milliseconds(110));
}

TEST(OpenLoopTest, RequestsComeWhenTheyComeHoweverManyAreInFlight) {
  Arrivals expected(100, 1, 1);
  const auto pacer = MakeOpenLoop(Arrivals(100, 1, 1), 1000);
  for (int i = 0; i < 100; ++i) {
    const absl::Duration due = expected.Next();
    EXPECT_EQ(pacer->NextStart(), due);
    // A start that is late does not change what it was meant to be.
    EXPECT_EQ(pacer->Start(due + absl::Seconds(1)), due);
  }
}

TEST(OpenLoopTest, BeyondTheMostInFlightTheyWait) {
  Arrivals expected(100, 1, 1);
  const auto pacer = MakeOpenLoop(Arrivals(100, 1, 1), 2);
  pacer->Start(absl::Seconds(1));
  pacer->Start(absl::Seconds(1));
  EXPECT_FALSE(pacer->NextStart().has_value());
  pacer->End(absl::Seconds(5), /*failed=*/true);
  expected.Next();
  expected.Next();
  const absl::Duration third = expected.Next();
  EXPECT_EQ(pacer->NextStart(), third);
  EXPECT_EQ(pacer->Start(absl::Seconds(5)), third);
}

}  // namespace
}  // namespace specwire::cli::bench
