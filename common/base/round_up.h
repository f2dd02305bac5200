// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace specwire {

// How many of `size` it takes for `value`.
// REQUIRES: value >= 0, size > 0; value + size fits.
constexpr int64_t DivideUp(int64_t value, int64_t size) {
  return (value + size - 1) / size;
}

// The least multiple that is not below `value`.
// REQUIRES: value >= 0, multiple > 0; the result fits.
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return DivideUp(value, multiple) * multiple;
}

}  // namespace specwire
