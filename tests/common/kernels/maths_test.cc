// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/maths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace specwire {
namespace {

// Distance of `got` from `want` in units of want's last place.
double UlpError(double got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  const double ulp = std::max(std::ldexp(1.0, exponent - 53),
                              std::numeric_limits<double>::denorm_min());
  return static_cast<double>(
      std::fabs((static_cast<long double>(got) - want) / ulp));
}

TEST(MathsTest, ExpIsWithinTwoUnitsOfTheLastPlace) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> wide(-708, 709);
  std::uniform_real_distribution<double> narrow(-1, 1);
  for (int i = 0; i < 1000000; ++i) {
    const double x = i % 2 == 0 ? wide(random) : narrow(random);
    ASSERT_LE(UlpError(Exp(x), std::exp(static_cast<long double>(x))), 2) << x;
  }
}

TEST(MathsTest, LogIsWithinTwoUnitsOfTheLastPlace) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-700, 700);
  std::uniform_real_distribution<double> near_one(0.3, 3);
  std::uniform_real_distribution<double> tiny(-1e-3, 1e-3);
  for (int i = 0; i < 1000000; ++i) {
    const double x = i % 3 == 0   ? std::exp(exponent(random))
                     : i % 3 == 1 ? near_one(random)
                                  : 1 + tiny(random);
    ASSERT_LE(UlpError(Log(x), std::log(static_cast<long double>(x))), 2) << x;
  }
}

TEST(MathsTest, EdgesAreWhatIeeeSays) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-infinity), 0);
  EXPECT_EQ(Exp(-800), 0);
  EXPECT_EQ(Exp(infinity), infinity);
  EXPECT_EQ(Exp(710), infinity);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_GT(Exp(-745), 0);
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -infinity);
  EXPECT_EQ(Log(infinity), infinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_LE(UlpError(Log(least), std::log(static_cast<long double>(least))), 2);
}

}  // namespace
}  // namespace specwire
