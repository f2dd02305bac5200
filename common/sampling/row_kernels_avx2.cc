// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace specwire {
namespace {

using Words = __m256i;
constexpr int kWordLanes = 4;
constexpr int kVectors = 2;

inline Words Same(uint32_t word) { return _mm256_set1_epi64x(word); }
inline Words Multiply(Words a, Words b) { return _mm256_mul_epu32(a, b); }
inline Words HighHalf(Words a) { return _mm256_srli_epi64(a, 32); }
inline Words Xor(Words a, Words b) { return _mm256_xor_si256(a, b); }
inline Words LoadBlocks(const uint32_t* groups, int v) {
  return _mm256_add_epi64(Same(4 * groups[v]), _mm256_set_epi64x(3, 2, 1, 0));
}
inline Words LoadLimits(const uint32_t* thresholds, int v) {
  return Same(thresholds[v]);
}
// A difference is negative, its top bit set, where the word is below.
inline Words Minus(Words word, Words limit) {
  return _mm256_sub_epi64(_mm256_and_si256(word, Same(0xffffffffu)), limit);
}
inline uint64_t BelowMask(Words a, Words b, Words c, Words d, Words limit) {
  const Words all =
      _mm256_and_si256(_mm256_and_si256(Minus(a, limit), Minus(b, limit)),
                       _mm256_and_si256(Minus(c, limit), Minus(d, limit)));
  return static_cast<uint64_t>(_mm256_movemask_pd(_mm256_castsi256_pd(all)));
}

#include "common/sampling/row_kernels.inc.h"

}  // namespace

const RowKernels kAvx2RowKernels = {.sieve = Sieve, .weights = Weights};

}  // namespace specwire
#endif
