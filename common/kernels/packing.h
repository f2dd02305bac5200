// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/kernels/kernels.h"

namespace specwire {

// How the int8 engine stores a group of 32 weights before packing: what the
// model digest covers. Pinned arithmetic, the same bits on every machine.
struct WeightGroup {
  // kInt8: [-127, 127]. kInt4: [0, 15].
  int8_t values[kGroupSize];
  // Half precision. The minimum is zero for kInt8.
  uint16_t scale;
  uint16_t minimum;
};

// Quantises up to 32 finite weights to int8: scale = the half-precision number
// nearest to absmax / 127, value = nearest-even(w / scale), at most 127 in
// size; what is missing at the end is zero. Weights too large for a
// half-precision scale (above 8.3 million) are cut to what it can express.
WeightGroup QuantizeWeights(absl::Span<const float> weights);

// The weights that a group stands for, in float32.
// REQUIRES: out.size() <= 32.
void ExpandWeights(const WeightGroup& group,
                   WeightForm form,
                   absl::Span<float> out);

// Bytes of weights and half-precision numbers of scales in a packed matrix.
int64_t PackedWeightBytes(WeightForm form, int64_t outputs, int64_t groups);
int64_t PackedScales(WeightForm form, int64_t outputs, int64_t groups);

// Writes one output's groups to a packed matrix, whose memory starts as zeros.
// REQUIRES: 0 <= output < outputs, groups.size() is the matrix's `groups`.
void PackOutput(WeightForm form,
                int64_t output,
                absl::Span<const WeightGroup> groups,
                uint8_t* weights,
                uint16_t* scales);

// Reads one of an output's groups back.
void UnpackGroup(const PackedMatrix& matrix,
                 int64_t output,
                 int64_t index,
                 WeightGroup* group);

}  // namespace specwire
