// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace specwire::cli::bench {
namespace {

TEST(StatisticsTest, PercentilesInterpolateBetweenNeighbours) {
  const std::vector<double> sorted = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0.5), 25);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0.9), 37);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 1), 40);
  EXPECT_DOUBLE_EQ(Percentile({7}, 0.99), 7);
}

TEST(StatisticsTest, SummaryDoesNotDependOnTheOrder) {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0.0);
  const Summary summary = Summarize(values);
  EXPECT_EQ(summary.count, 101);
  EXPECT_DOUBLE_EQ(summary.mean, 50);
  EXPECT_DOUBLE_EQ(summary.p50, 50);
  EXPECT_DOUBLE_EQ(summary.p90, 90);
  EXPECT_DOUBLE_EQ(summary.p99, 99);
  EXPECT_EQ(Summarize({}).count, 0);
  EXPECT_EQ(Summarize({}).p99, 0);
}

TEST(StatisticsTest, MedianOfEvenlyManyIsBetweenTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(Median({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(Median({9, 1, 5, 6}), 5.5);
}

// Values of published tables of Student's distribution.
TEST(StatisticsTest, StudentsQuantileIsThatOfTheTables) {
  for (const auto& [degrees, expected] :
       std::vector<std::pair<int, double>>{{1, 12.706},
                                           {2, 4.303},
                                           {7, 2.365},
                                           {30, 2.042},
                                           {31, 2.0395},
                                           {40, 2.0211},
                                           {60, 2.0003},
                                           {120, 1.9799},
                                           {1000000, 1.95996}}) {
    EXPECT_NEAR(StudentT95(degrees), expected, 6e-4) << degrees;
  }
}

TEST(StatisticsTest, RatioIsAGeometricMeanWithAStudentInterval) {
  // Logarithms -1, 0, 1, 2 times log 2: mean 0.5, standard deviation
  // sqrt(5/3), standard error sqrt(5/12), t of 3 degrees 3.1824.
  const auto ratio = EstimateRatio({0.5, 1, 2, 4});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_EQ(ratio->pairs, 4);
  EXPECT_NEAR(ratio->geometric_mean, std::sqrt(2), 1e-12);
  ASSERT_TRUE(ratio->interval.has_value());
  const double half = 3.1824 * std::sqrt(5.0 / 12);
  EXPECT_NEAR(ratio->interval->low, std::exp2(0.5 - half), 1e-9);
  EXPECT_NEAR(ratio->interval->high, std::exp2(0.5 + half), 1e-9);
}

TEST(StatisticsTest, OnePairHasNoIntervalAndNoneNoRatio) {
  const auto one = EstimateRatio({1.5});
  ASSERT_TRUE(one.has_value());
  EXPECT_DOUBLE_EQ(one->geometric_mean, 1.5);
  EXPECT_FALSE(one->interval.has_value());
  EXPECT_FALSE(EstimateRatio({}).has_value());
}

TEST(PoolPairsTest, LongPairsCountForMore) {
  // 4 and 1 times as fast, over equal texts: 1.6, not 2.
  const auto ratio = PoolPairs({{100, 25, 100, 100}, {100, 100, 100, 100}});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_EQ(ratio->pairs, 2);
  EXPECT_DOUBLE_EQ(ratio->ratio, 1.6);
  ASSERT_TRUE(ratio->interval.has_value());
  EXPECT_DOUBLE_EQ(ratio->interval->low, 1);
  EXPECT_DOUBLE_EQ(ratio->interval->high, 4);
  // Texts of different lengths are compared by their rates.
  EXPECT_DOUBLE_EQ(PoolPairs({{50, 25, 100, 100}})->ratio, 2);
}

TEST(PoolPairsTest, TheIntervalShrinksWithPairsAndIsAlwaysTheSame) {
  std::vector<PairedWork> pairs;
  for (int i = 0; i < 10; ++i) {
    pairs.push_back({10, 8 + i % 3 * 1.0, 10, 12});
  }
  const auto few = PoolPairs(pairs);
  EXPECT_LT(few->interval->low, few->ratio);
  EXPECT_GT(few->interval->high, few->ratio);
  EXPECT_EQ(PoolPairs(pairs)->interval->low, few->interval->low);
  for (int i = 0; i < 4; ++i) {
    const std::vector<PairedWork> copy = pairs;
    pairs.insert(pairs.end(), copy.begin(), copy.end());
  }
  const auto many = PoolPairs(pairs);
  EXPECT_NEAR(many->ratio, few->ratio, 1e-12);
  const double width = many->interval->high - many->interval->low;
  EXPECT_NEAR(width * 4, few->interval->high - few->interval->low, 0.1);
}

TEST(PoolPairsTest, PairsWithoutWorkAreLeftOut) {
  EXPECT_FALSE(PoolPairs({}).has_value());
  EXPECT_FALSE(
      PoolPairs({{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}}).has_value());
  const auto one = PoolPairs({{1, 1, 1, 0}, {3, 1, 2, 1}});
  EXPECT_DOUBLE_EQ(one->ratio, 1.5);
  EXPECT_FALSE(one->interval.has_value());
}

TEST(MedianOfPairsTest, AFewDisturbedPairsDoNotCount) {
  EXPECT_FALSE(MedianOfPairs({}).has_value());
  EXPECT_FALSE(MedianOfPairs({2}).value().interval.has_value());
  std::vector<double> ratios = {1.02, 0.98, 1, 1.01, 0.99, 1, 1, 1.02, 0.97, 9};
  const std::optional<PooledRatio> median = MedianOfPairs(ratios);
  ASSERT_TRUE(median.has_value());
  EXPECT_EQ(median->pairs, 10);
  EXPECT_DOUBLE_EQ(median->ratio, 1);
  EXPECT_GE(median->interval->low, 0.97);
  EXPECT_LT(median->interval->low, 1);
  EXPECT_GT(median->interval->high, 1);
  EXPECT_LE(median->interval->high, 1.02);
}

}  // namespace
}  // namespace specwire::cli::bench
