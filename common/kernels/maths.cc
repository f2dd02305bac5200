// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/maths.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace specwire {
namespace {

// ln 2 in two parts: the first has 21 trailing zero bits, so that its product
// with any exponent is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;
// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to
// even.
constexpr double kRounder = 0x1.8p+52;

// 2^n for -1022 <= n <= 1023.
double PowerOfTwo(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

}  // namespace

double Exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0.0;
  // x = n ln 2 + r with |r| <= ln 2 / 2, r held as high - low.
  const double n = (x * kLog2E + kRounder) - kRounder;
  const double high = x - n * kLn2High;
  const double low = n * kLn2Low;
  const double r = high - low;
  // What rounding took from r.
  const double lost = (high - r) - low;
  // Taylor series of e^r - 1 - r; the first omitted term is below 2^-58.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double e = 1.0 + (r + (p * r * r + lost));
  // In two steps, so that neither power leaves the range of doubles.
  const int64_t exponent = static_cast<int64_t>(n);
  const int64_t half = exponent / 2;
  return e * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

double Log(double x) {
  if (!(x > 0.0)) {
    return x == 0.0 ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (x == std::numeric_limits<double>::infinity()) return x;
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m = std::bit_cast<double>(bits);
  if (m > 0x1.6a09e667f3bcdp+0) {  // sqrt 2
    m *= 0.5;
    ++exponent;
  }
  // log(1 + f) = f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), where
  // R = 2 (s^2/3 + s^4/5 + ...) is the tail of 2 artanh(s).
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double tail = 2.0 / 25.0;
  tail = tail * z + 2.0 / 23.0;
  tail = tail * z + 2.0 / 21.0;
  tail = tail * z + 2.0 / 19.0;
  tail = tail * z + 2.0 / 17.0;
  tail = tail * z + 2.0 / 15.0;
  tail = tail * z + 2.0 / 13.0;
  tail = tail * z + 2.0 / 11.0;
  tail = tail * z + 2.0 / 9.0;
  tail = tail * z + 2.0 / 7.0;
  tail = tail * z + 2.0 / 5.0;
  tail = tail * z + 2.0 / 3.0;
  const double r = z * tail;
  const double half_square = 0.5 * f * f;
  const double n = static_cast<double>(exponent);
  return n * kLn2High -
         ((half_square - (s * (half_square + r) + n * kLn2Low)) - f);
}

void SinCos(double x, double* sin, double* cos) {
  // pi / 2 in three parts; the first two have 33 bits, so that their products
  // with n < 2^20 are exact.
  constexpr double kHalfPi1 = 0x1.921fb544p+0;
  constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
  constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  // x = n pi / 2 + r with |r| <= pi / 4.
  const double n = (x * kTwoOverPi + kRounder) - kRounder;
  const double high = x - n * kHalfPi1;
  const double middle = n * kHalfPi2;
  const double rest = high - middle;
  // What rounding took from the rest.
  const double lost = ((high - rest) - middle) - n * kHalfPi3;
  const double r = rest + lost;
  const double tail = (rest - r) + lost;
  const double z = r * r;
  // Taylor series; the first omitted terms are below 2^-56.
  double s = 1.0 / 355687428096000.0;
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  const double sine = r + (s * z * r + tail * (1.0 - 0.5 * z));
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  // 1 - z / 2, and what rounding took from it.
  const double half = 0.5 * z;
  const double near_one = 1.0 - half;
  const double cosine =
      near_one + (((1.0 - near_one) - half) + (c * z * z - r * tail));
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sin = sine;
      *cos = cosine;
      break;
    case 1:
      *sin = cosine;
      *cos = -sine;
      break;
    case 2:
      *sin = -sine;
      *cos = -cosine;
      break;
    default:
      *sin = -cosine;
      *cos = sine;
      break;
  }
}

}  // namespace specwire
