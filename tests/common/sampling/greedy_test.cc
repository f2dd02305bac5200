// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/greedy.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace specwire {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ArgMaxTest, FindsTheLargest) {
  EXPECT_EQ(ArgMax(std::vector<float>{-3, -1, -2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{1, kInf, 2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, -kInf, -1e38f}), 2);
}

TEST(ArgMaxTest, TakesTheLowestIndexAmongEquals) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 2, 2, 2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{0.0f, -0.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, -kInf}), 0);
}

TEST(ArgMaxTest, NeverTakesNan) {
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, 1, kNan, 2, kNan}), 3);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -kInf}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, kNan}), -1);
  EXPECT_EQ(ArgMax({}), -1);
}

}  // namespace
}  // namespace specwire
