// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace specwire {

// How many tokens two texts begin with in common.
inline size_t CommonLength(absl::Span<const int32_t> a,
                           absl::Span<const int32_t> b) {
  const size_t size = std::min(a.size(), b.size());
  // The usual case, and far quicker than to look for a difference.
  if (std::equal(a.begin(), a.begin() + size, b.begin())) return size;
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + size, b.begin()).first - a.begin());
}

}  // namespace specwire
