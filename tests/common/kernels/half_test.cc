// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace specwire {
namespace {

constexpr uint16_t kSign = 0x8000;
constexpr uint16_t kInfiniteHalf = 0x7c00;

// The value of a finite half, by the definition of the format.
double ValueOf(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25);
  return half & kSign ? -magnitude : magnitude;
}

// The finite halves from 0 up; their bits ascend with their values.
std::vector<double> Magnitudes() {
  std::vector<double> magnitudes;
  for (uint16_t half = 0; half < kInfiniteHalf; ++half) {
    magnitudes.push_back(ValueOf(half));
  }
  return magnitudes;
}

// The nearest half to a number, by search: what is halfway goes to the even
// mantissa, and infinity stands where 65536 would.
uint16_t Nearest(const std::vector<double>& magnitudes, float value) {
  const uint16_t sign = std::signbit(value) ? kSign : uint16_t{0};
  const double x = std::fabs(static_cast<double>(value));
  const auto above = static_cast<size_t>(
      std::lower_bound(magnitudes.begin(), magnitudes.end(), x) -
      magnitudes.begin());
  if (above == 0) return sign;
  const double low = magnitudes[above - 1];
  const double high = above < magnitudes.size() ? magnitudes[above] : 65536.0;
  const bool up = x - low > high - x || (x - low == high - x && above % 2 == 0);
  return static_cast<uint16_t>(sign | (up ? above : above - 1));
}

TEST(HalfTest, EveryHalfHasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float got = HalfToFloat(half);
    const int mantissa = half & 1023;
    if ((half & kInfiniteHalf) != kInfiniteHalf) {
      ASSERT_EQ(static_cast<double>(got), ValueOf(half)) << bits;
    } else if (mantissa == 0) {
      ASSERT_TRUE(std::isinf(got)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(got)) << bits;
    }
    ASSERT_EQ(std::signbit(got), (half & kSign) != 0) << bits;
  }
}

TEST(HalfTest, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t back = FloatToHalf(HalfToFloat(half));
    if (std::isnan(HalfToFloat(half))) {
      // Still none, and quiet.
      ASSERT_EQ(back, half | 0x0200) << bits;
    } else {
      ASSERT_EQ(back, half) << bits;
    }
  }
}

TEST(HalfTest, BetweenTwoHalvesTheNearerWinsAndTiesGoToEven) {
  const std::vector<double> magnitudes = Magnitudes();
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    const double high = i + 1 < magnitudes.size() ? magnitudes[i + 1] : 65536.0;
    const auto middle = static_cast<float>((magnitudes[i] + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (magnitudes[i] + high) / 2);
    const auto low = static_cast<uint16_t>(i);
    const auto up = static_cast<uint16_t>(i + 1);
    const uint16_t even = i % 2 == 0 ? low : up;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low) << middle;
    ASSERT_EQ(FloatToHalf(middle), even) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), up) << middle;
    ASSERT_EQ(FloatToHalf(-middle), even | kSign) << middle;
  }
}

TEST(HalfTest, AllKindsOfFloatsGoToTheNearest) {
  const std::vector<double> magnitudes = Magnitudes();
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1009) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
    } else {
      ASSERT_EQ(FloatToHalf(value), Nearest(magnitudes, value)) << value;
    }
  }
}

TEST(HalfTest, EdgesAreWhatIeeeSays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FloatToHalf(0.0f), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), kSign);
  EXPECT_EQ(FloatToHalf(kInfinity), kInfiniteHalf);
  EXPECT_EQ(FloatToHalf(-kInfinity), kInfiniteHalf | kSign);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), kInfiniteHalf);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::max()), kInfiniteHalf);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(
      HalfToFloat(FloatToHalf(std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose payload lies in the bits that go.
  EXPECT_TRUE(
      std::isnan(HalfToFloat(FloatToHalf(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace specwire
