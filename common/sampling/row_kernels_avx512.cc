// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace specwire {
namespace {

using Words = __m512i;
constexpr int kWordLanes = 8;
constexpr int kVectors = 4;

inline Words Same(uint32_t word) { return _mm512_set1_epi64(word); }
inline Words Multiply(Words a, Words b) { return _mm512_mul_epu32(a, b); }
inline Words HighHalf(Words a) { return _mm512_srli_epi64(a, 32); }
inline Words Xor(Words a, Words b) { return _mm512_xor_si512(a, b); }
// `low` in the lower four lanes, `high` in the upper ones.
inline Words Pair(uint32_t low, uint32_t high) {
  return _mm512_mask_blend_epi64(0xf0, Same(low), Same(high));
}
inline Words LoadBlocks(const uint32_t* groups, int v) {
  return _mm512_add_epi64(Pair(4 * groups[2 * v], 4 * groups[2 * v + 1]),
                          _mm512_set_epi64(3, 2, 1, 0, 3, 2, 1, 0));
}
inline Words LoadLimits(const uint32_t* thresholds, int v) {
  return Pair(thresholds[2 * v], thresholds[2 * v + 1]);
}
inline Words Low(Words a) { return _mm512_and_si512(a, Same(0xffffffffu)); }
inline uint64_t BelowMask(Words a, Words b, Words c, Words d, Words limit) {
  const Words largest = _mm512_max_epu64(_mm512_max_epu64(Low(a), Low(b)),
                                         _mm512_max_epu64(Low(c), Low(d)));
  return _mm512_cmplt_epu64_mask(largest, limit);
}

#include "common/sampling/row_kernels.inc.h"

}  // namespace

const RowKernels kAvx512RowKernels = {.sieve = Sieve, .weights = Weights};

}  // namespace specwire
#endif
