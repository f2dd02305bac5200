// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mf16c.
#include <immintrin.h>

#include "common/kernels/kernels.h"
#include "common/kernels/kernels_isa.h"

namespace specwire {
namespace {

using Lanes = __m512;

inline Lanes Set(float x) { return _mm512_set1_ps(x); }
inline Lanes Load(const float* from) { return _mm512_loadu_ps(from); }
inline void Store(float* to, Lanes x) { _mm512_storeu_ps(to, x); }
inline Lanes Add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes Sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes Mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes Div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes Max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes Min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
inline float SquareRoot(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}
inline Lanes RoundEven(Lanes x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
}
inline Lanes PowerOfTwo(Lanes n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline Lanes ZeroWhereLess(Lanes value, Lanes x, Lanes bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value);
}
inline float MaxLane(Lanes x) { return _mm512_reduce_max_ps(x); }
inline uint32_t MaxAbsBits(Lanes a, Lanes b) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  return _mm512_reduce_max_epu32(
      _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                       _mm512_and_si512(_mm512_castps_si512(b), mask)));
}
inline int32_t StoreInt8(int8_t* to, Lanes x) {
  const __m512i values = _mm512_cvtps_epi32(x);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtepi32_epi8(values));
  return _mm512_reduce_add_epi32(values);
}
inline Lanes LoadHalf(const uint16_t* from) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void StoreHalf(uint16_t* to, Lanes x) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Four queries need 16 sums and 4 values in registers.
constexpr int kQueriesTogether = 4;

#include "common/kernels/lanes.inc.h"
// Behind the lanes.
#include "common/kernels/attend.inc.h"

// How far ahead of the multiplications weights are fetched. The processor's own
// prefetcher stops at the end of each page.
constexpr int kPrefetchBytes = 8192;

inline void Prefetch(const uint8_t* from) {
  _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes,
               _MM_HINT_T0);
}

// The next four values of a row, for all outputs.
inline __m512i Broadcast4(const int8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

// One block of outputs for R rows. One block at a time, because a second one
// would be a second stream through memory, which measured a third slower.
template <int R, bool kFetch>
inline void BlockInt8(const uint8_t* w,
                      const uint16_t* scales,
                      int64_t groups,
                      const QuantizedGroup* x,
                      Lanes* out) {
  for (int r = 0; r < R; ++r) out[r] = Set(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    __m512i sums[R];
    for (int r = 0; r < R; ++r) {
      sums[r] = _mm512_set1_epi32(x[r * groups + g].offset);
    }
    for (int i = 0; i < 8; ++i) {
      if (kFetch) Prefetch(w);
      const __m512i weights = _mm512_loadu_si512(w);
      w += 64;
      for (int r = 0; r < R; ++r) {
        sums[r] = _mm512_dpbusd_epi32(
            sums[r], weights, Broadcast4(x[r * groups + g].values + 4 * i));
      }
    }
    const Lanes scale = LoadHalf(scales + g * kBlockOutputs);
    for (int r = 0; r < R; ++r) {
      out[r] = Fma(_mm512_cvtepi32_ps(sums[r]),
                   Mul(scale, Set(x[r * groups + g].scale)),
                   out[r]);
    }
  }
}

template <int R, bool kFetch>
inline void BlockInt4(const uint8_t* w,
                      const uint16_t* scales,
                      int64_t groups,
                      const QuantizedGroup* x,
                      Lanes* out) {
  const __m512i low_half = _mm512_set1_epi8(15);
  for (int r = 0; r < R; ++r) out[r] = Set(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    __m512i sums[R];
    for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) {
      if (kFetch) Prefetch(w);
      const __m512i bytes = _mm512_loadu_si512(w);
      w += 64;
      const __m512i low = _mm512_and_si512(bytes, low_half);
      const __m512i high =
          _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_half);
      for (int r = 0; r < R; ++r) {
        const int8_t* const values = x[r * groups + g].values + 4 * i;
        sums[r] = _mm512_dpbusd_epi32(sums[r], low, Broadcast4(values));
        sums[r] = _mm512_dpbusd_epi32(sums[r], high, Broadcast4(values + 16));
      }
    }
    const uint16_t* const pair = scales + g * 2 * kBlockOutputs;
    const Lanes scale = LoadHalf(pair);
    const Lanes minimum = LoadHalf(pair + kBlockOutputs);
    for (int r = 0; r < R; ++r) {
      const QuantizedGroup& from = x[r * groups + g];
      out[r] =
          Fma(_mm512_cvtepi32_ps(sums[r]), Mul(scale, Set(from.scale)), out[r]);
      out[r] = Fma(minimum, Set(from.scaled_sum), out[r]);
    }
  }
}

template <int R, bool kFetch>
void BlockRows(const LinearArgs& args, int64_t block, int first_row) {
  const int64_t groups = args.x.groups;
  const QuantizedGroup* const x = args.x.rows + first_row * groups;
  const int64_t weights_in_block = groups * kBlockOutputs * kGroupSize;
  const int64_t scales_in_block = groups * kBlockOutputs;
  Lanes out[R];
  if (args.matrix.form == WeightForm::kInt8) {
    BlockInt8<R, kFetch>(args.matrix.weights + block * weights_in_block,
                         args.matrix.scales + block * scales_in_block,
                         groups,
                         x,
                         out);
  } else {
    BlockInt4<R, kFetch>(args.matrix.weights + block * weights_in_block / 2,
                         args.matrix.scales + block * scales_in_block * 2,
                         groups,
                         x,
                         out);
  }
  const int64_t first = block * kBlockOutputs;
  const int64_t left = args.matrix.outputs - first;
  for (int r = 0; r < R; ++r) {
    float* const y = args.y + (first_row + r) * args.y_stride + first;
    StoreFirst(y, args.add ? Add(LoadFirst(y, left), out[r]) : out[r], left);
  }
}

// Rows whose sums fit the registers.
constexpr int kRowsTogether = 8;

#include "common/kernels/linear.inc.h"

}  // namespace

const Kernels kAvx512VnniKernels = {Isa::kAvx512Vnni,
                                    Quantize,
                                    RmsNormQuantize,
                                    GateQuantize,
                                    GeluGateQuantize,
                                    RmsNorm,
                                    Linear,
                                    Rotate,
                                    StoreKv,
                                    Attend,
                                    AttendChunk,
                                    AttendFold,
                                    MaxOf,
                                    ArgMax,
                                    ExpAll};

}  // namespace specwire
