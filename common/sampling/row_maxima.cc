// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_maxima.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>

#include "common/sampling/row_kernels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace specwire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kGroup = kGroupTokens;
// Groups under one coarse maximum.
constexpr size_t kCoarse = 4;

#if defined(__SSE2__)
// Lane i: the largest of the values i, i + 4, ... of 16. An operand that is not
// a number yields to the second one.
__m128 FoldGroup(const float* values) {
  __m128 largest = _mm_set1_ps(-kInfinity);
  for (size_t i = 0; i < kGroup; i += 4) {
    largest = _mm_max_ps(_mm_loadu_ps(values + i), largest);
  }
  return largest;
}

// Lane i: the largest lane of argument i.
__m128 FoldAcross(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128 ab = _mm_max_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  const __m128 cd = _mm_max_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_max_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}
#endif

}  // namespace

float Largest(const float* values, size_t n) {
  float largest = -kInfinity;
  for (size_t i = 0; i < n; ++i) {
    largest = values[i] > largest ? values[i] : largest;
  }
  return largest;
}

void MaximaOfGroups(const float* row, size_t n, float* maxima) {
  size_t g = 0;
#if defined(__SSE2__)
  for (; g + 4 <= n; g += 4) {
    const float* const values = row + g * kGroup;
    _mm_storeu_ps(maxima + g,
                  FoldAcross(FoldGroup(values),
                             FoldGroup(values + kGroup),
                             FoldGroup(values + 2 * kGroup),
                             FoldGroup(values + 3 * kGroup)));
  }
#endif
  for (; g < n; ++g) maxima[g] = Largest(row + g * kGroup, kGroup);
}

void RowMaxima::Compute(absl::Span<const float> row) {
  const size_t whole = row.size() / kGroup;
  const size_t rest = row.size() % kGroup;
  groups_.resize(whole + (rest > 0 ? 1 : 0));
  MaximaOfGroups(row.data(), whole, groups_.data());
  if (rest > 0) groups_[whole] = Largest(row.data() + whole * kGroup, rest);

  coarse_.resize((groups_.size() + kGroup - 1) / kGroup);
  const size_t coarse = groups_.size() / kGroup;
  MaximaOfGroups(groups_.data(), coarse, coarse_.data());
  if (coarse < coarse_.size()) {
    coarse_[coarse] = Largest(groups_.data() + coarse * kGroup,
                              groups_.size() - coarse * kGroup);
  }
  largest_ = Largest(coarse_.data(), coarse_.size());
}

float RowMaxima::LowerBoundOfKth(int k) {
  const size_t wanted = static_cast<size_t>(k);
  const size_t quarters = groups_.size() / kCoarse;
  // Fewer values are quicker to select from, more are nearer to the truth.
  if (wanted * 2 <= quarters) {
    coarse_.resize(quarters);
    for (size_t i = 0; i < quarters; ++i) {
      coarse_[i] = Largest(groups_.data() + i * kCoarse, kCoarse);
    }
  } else if (wanted * 2 <= groups_.size()) {
    coarse_ = groups_;
  } else {
    return -kInfinity;
  }
  const auto kth = coarse_.begin() + (k - 1);
  std::nth_element(coarse_.begin(), kth, coarse_.end(), std::greater<>());
  return *kth;
}

int32_t FindFirst(absl::Span<const float> row, float value, int32_t from) {
  for (size_t i = static_cast<size_t>(from); i < row.size(); ++i) {
    if (row[i] == value) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace specwire
