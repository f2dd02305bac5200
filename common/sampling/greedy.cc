// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/greedy.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/sampling/row_kernels.h"
#include "common/sampling/row_maxima.h"

namespace specwire {
namespace {

constexpr size_t kGroup = kGroupTokens;
constexpr size_t kBlock = kGroup * kGroup * kGroup;

// The largest of n <= kBlock values.
float BlockLargest(const float* values, size_t n) {
  float fine[kGroup * kGroup];
  float coarse[kGroup];
  const size_t groups = n / kGroup;
  MaximaOfGroups(values, groups, fine);
  MaximaOfGroups(fine, groups / kGroup, coarse);
  const size_t coarse_end = groups / kGroup * kGroup;
  return std::max({Largest(coarse, groups / kGroup),
                   Largest(fine + coarse_end, groups - coarse_end),
                   Largest(values + groups * kGroup, n - groups * kGroup)});
}

}  // namespace

int32_t ArgMax(absl::Span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  size_t best_block = 0;
  // Without a branch for each value: only a block that beats all before it is
  // looked at again.
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const float largest = BlockLargest(logits.data() + begin,
                                       std::min(kBlock, logits.size() - begin));
    if (largest > best) {
      best = largest;
      best_block = begin;
    }
  }
  return FindFirst(logits, best, static_cast<int32_t>(best_block));
}

}  // namespace specwire
