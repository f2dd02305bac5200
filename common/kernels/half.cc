// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/half.h"

#include <bit>

namespace specwire {

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t mantissa = half & 1023;
  uint32_t magnitude;
  if (exponent == 31) {
    magnitude = 0x7f800000u | (mantissa << 13);
  } else if (exponent == 0) {
    // A subnormal half is a whole multiple of 2^-24: normal as a float32.
    magnitude =
        std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  } else {
    magnitude = ((exponent + 112) << 23) | (mantissa << 13);
  }
  return std::bit_cast<float>(sign | magnitude);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  uint32_t half;
  if (magnitude >= 0x47800000u) {  // 65536 and above
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    // Adding 0.5 makes the last place of the float 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  } else {
    // Round the 13 bits that go, ties to even; a carry into the exponent, or
    // from there to infinity, comes out right by itself.
    const uint32_t odd = magnitude >> 13 & 1u;
    half = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace specwire
