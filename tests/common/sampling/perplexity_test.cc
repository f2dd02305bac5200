// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/perplexity.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/sampling/softmax.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double PerplexityOf(const std::vector<std::vector<float>>& rows,
                    const std::vector<int32_t>& tokens) {
  PerplexityMeter meter;
  for (size_t i = 0; i < rows.size(); ++i) {
    meter.Add(LogProbability(rows[i], tokens[i]));
  }
  EXPECT_EQ(meter.num_scored(), static_cast<int>(rows.size()));
  return meter.perplexity();
}

TEST(PerplexityTest, OfACertainModelIsOne) {
  EXPECT_EQ(
      PerplexityOf({{-kInfinity, 3, -kInfinity}, {9, -kInfinity}}, {1, 0}), 1);
  // As certain as finite logits can be.
  EXPECT_EQ(PerplexityOf({{0, 1000, 0}, {1000, 0}}, {1, 0}), 1);
}

TEST(PerplexityTest, OfAUniformModelOverTenTokensIsTen) {
  const std::vector<float> row(10, -2.5f);
  EXPECT_NEAR(PerplexityOf({row, row, row}, {0, 4, 9}), 10, 1e-13);
  EXPECT_NEAR(PerplexityOf({row}, {7}), 10, 1e-13);
}

TEST(PerplexityTest, IsTheInverseOfTheGeometricMean) {
  // Probabilities 1/2, 1/4 and 1/8.
  const float two = std::log(2.0f);
  EXPECT_NEAR(
      PerplexityOf({{two, two}, {0, std::log(3.0f)}, {0, 7 * two}}, {0, 0, 0}),
      std::cbrt(2.0 * 4.0 * 129.0),
      1e-4);
}

TEST(PerplexityTest, IsInfiniteIfATokenCannotBe) {
  EXPECT_EQ(PerplexityOf({{0, 0}, {0, -kInfinity}}, {0, 1}), kInfinity);
}

TEST(ScoreWindowsTest, OneWindowOverAll) {
  EXPECT_THAT(PlanScoreWindows(7, 7, 7), ElementsAre(ScoreWindow{0, 7, 1}));
  EXPECT_THAT(PlanScoreWindows(7, 100, 50), ElementsAre(ScoreWindow{0, 7, 1}));
  EXPECT_THAT(PlanScoreWindows(1, 4, 2), IsEmpty());
  EXPECT_THAT(PlanScoreWindows(0, 4, 2), IsEmpty());
}

TEST(ScoreWindowsTest, SlidingWindowsScoreWhatNoneBeforeHas) {
  EXPECT_THAT(PlanScoreWindows(11, 4, 2),
              ElementsAre(ScoreWindow{0, 4, 1},
                          ScoreWindow{2, 6, 4},
                          ScoreWindow{4, 8, 6},
                          ScoreWindow{6, 10, 8},
                          ScoreWindow{8, 11, 10}));
  // Side by side: nothing precedes a window's first token.
  EXPECT_THAT(PlanScoreWindows(9, 4, 4),
              ElementsAre(ScoreWindow{0, 4, 1}, ScoreWindow{4, 8, 5}));
}

TEST(ScoreWindowsTest, EveryTokenIsScoredOnce) {
  for (int num_tokens = 0; num_tokens < 30; ++num_tokens) {
    for (int window = 1; window <= 12; ++window) {
      for (int stride = 1; stride <= window; ++stride) {
        std::vector<int> scored(static_cast<size_t>(num_tokens), 0);
        int64_t computed = 0;
        for (const ScoreWindow& one :
             PlanScoreWindows(num_tokens, window, stride)) {
          EXPECT_EQ(one.begin % stride, 0);
          EXPECT_LE(one.end - one.begin, window);
          EXPECT_GT(one.first_target, one.begin);
          computed += one.end - one.begin;
          for (int i = one.first_target; i < one.end; ++i) {
            ++scored[static_cast<size_t>(i)];
          }
        }
        for (int i = 0; i < num_tokens; ++i) {
          const bool first = i == 0 || (stride == window && i % stride == 0);
          EXPECT_EQ(scored[static_cast<size_t>(i)], first ? 0 : 1)
              << num_tokens << " " << window << " " << stride << " " << i;
        }
        EXPECT_LE(computed, CountWindowTokens(num_tokens, window, stride));
      }
    }
  }
}

}  // namespace
}  // namespace specwire
