// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The loops of sampling that touch every token of the vocabulary, one set for
// each instruction set; all give the same bits.
//
// Declarations only, for the reason that common/kernels/kernels.h gives: files
// that are compiled for other processors include this.
//
// Thread safety: all functions are pure.
namespace specwire {

// Tokens with consecutive ids are looked at in groups of this many, group g
// beginning at id g * kGroupTokens. Four blocks of noise words.
inline constexpr int kGroupTokens = 16;

// Names the noise of one decision; see common/sampling/philox.h.
struct NoiseKey {
  uint64_t seed;
  uint32_t position;
  uint32_t stream;
  uint32_t choice;
};

struct RowKernels {
  // Of groups[0, n), writes to `hits` those in which at least one token's noise
  // word is >= the group's threshold, in the same order. Returns how many.
  int64_t (*sieve)(const NoiseKey& key,
                   const uint32_t* groups,
                   const uint32_t* thresholds,
                   int64_t n,
                   uint32_t* hits);
  // weights[i] = e^(logits[i] / temperature - best), with the bits of Exp() of
  // common/kernels/maths.h; 0 where the exponent is below -700 or not a number.
  // REQUIRES: no exponent is above 700.
  void (*weights)(const float* logits,
                  int64_t n,
                  double temperature,
                  double best,
                  double* weights);
};

extern const RowKernels kScalarRowKernels;
extern const RowKernels kAvx2RowKernels;
extern const RowKernels kAvx512RowKernels;

// The functions for the best instruction set that this processor has.
const RowKernels& BestRowKernels();

}  // namespace specwire
