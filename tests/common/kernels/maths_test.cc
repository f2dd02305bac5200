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

// Zero has no last place of its own.
void ExpectSinCos(double x) {
  double sin;
  double cos;
  SinCos(x, &sin, &cos);
  const auto exact = static_cast<long double>(x);
  ASSERT_LE(UlpError(sin, std::sin(exact)), 2) << x;
  ASSERT_LE(UlpError(cos, std::cos(exact)), 2) << x;
}

TEST(MathsTest, SinCosIsWithinTwoUnitsOfTheLastPlace) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> wide(-1.6e6, 1.6e6);
  std::uniform_real_distribution<double> narrow(-10, 10);
  std::uniform_real_distribution<double> exponent(-60, 14);
  for (int i = 0; i < 600000; ++i) {
    const double x = i % 3 == 0   ? wide(random)
                     : i % 3 == 1 ? narrow(random)
                                  : std::exp(exponent(random));
    ASSERT_NO_FATAL_FAILURE(ExpectSinCos(x));
  }
}

// What the rotary tables ask for: a position times a float32 frequency.
TEST(MathsTest, SinCosIsWithinTwoUnitsForRotaryAngles) {
  for (int position = 0; position < 131072; position += 37) {
    for (int i = 0; i < 32; ++i) {
      const float frequency = std::pow(10000.0f, -static_cast<float>(i) / 32);
      const float angle = static_cast<float>(position) * frequency;
      ASSERT_NO_FATAL_FAILURE(ExpectSinCos(static_cast<double>(angle)));
    }
  }
}

// Where sine or cosine nearly vanishes and the reduction must keep its bits.
// Within 1e-6 of the largest multiples the long double's own sine is still
// good: its reduction is that of a far longer pi.
TEST(MathsTest, SinCosIsWithinTwoUnitsNearMultiplesOfHalfPi) {
  const long double half_pi = std::acos(0.0L);
  std::mt19937_64 random(4);
  for (int64_t i = 0; i < 200000; ++i) {
    // All of the first ones, then some of the rest.
    const int64_t n = i < 50000 ? i : static_cast<int64_t>(random() % 1018000);
    auto x = static_cast<double>(static_cast<long double>(n) * half_pi);
    // Some doubles away from it, or the nearest.
    for (auto steps = static_cast<int>(random() % 4); steps > 0; --steps) {
      x = std::nextafter(x, random() % 2 == 0 ? 0.0 : 2e6);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSinCos(i % 2 == 0 ? x : -x));
  }
}

TEST(MathsTest, SinCosOfZero) {
  double sin;
  double cos;
  SinCos(0, &sin, &cos);
  EXPECT_EQ(sin, 0);
  EXPECT_EQ(cos, 1);
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
