// SPDX-License-Identifier: Apache-2.0
#include "common/kernels/packing.h"

#include <algorithm>
#include <cmath>

#include "common/kernels/half.h"

namespace specwire {
namespace {

constexpr int kBlockGroup = kBlockOutputs * kGroupSize;
constexpr float kLargestHalf = 65504.0f;

// To the nearest integer, ties to even; for |x| < 2^22.
float NearestEven(float x) { return (x + 0x1.8p+23f) - 0x1.8p+23f; }

int64_t Blocks(int64_t outputs) {
  return (outputs + kBlockOutputs - 1) / kBlockOutputs;
}

// Where value i of a group lies among a block's bytes for output `lane`, and in
// which half of the byte for kInt4.
int64_t ByteOf(int i, int64_t lane) {
  return (i / 4 * kBlockOutputs + lane) * 4 + i % 4;
}

}  // namespace

WeightGroup QuantizeWeights(absl::Span<const float> weights) {
  WeightGroup group = {};
  float abs_max = 0;
  for (const float w : weights) abs_max = std::max(abs_max, std::abs(w));
  group.scale = FloatToHalf(std::min(abs_max / 127.0f, kLargestHalf));
  const float scale = HalfToFloat(group.scale);
  if (scale == 0) return group;
  for (size_t i = 0; i < weights.size(); ++i) {
    // A scale that half precision rounded down leaves more than 127 steps; one
    // among its subnormals may leave far more.
    const float steps = std::clamp(weights[i] / scale, -127.0f, 127.0f);
    group.values[i] = static_cast<int8_t>(NearestEven(steps));
  }
  return group;
}

void ExpandWeights(const WeightGroup& group,
                   WeightForm form,
                   absl::Span<float> out) {
  const float scale = HalfToFloat(group.scale);
  const float minimum = HalfToFloat(group.minimum);
  for (size_t i = 0; i < out.size(); ++i) {
    const float product = scale * static_cast<float>(group.values[i]);
    out[i] = form == WeightForm::kInt8 ? product : product + minimum;
  }
}

int64_t PackedWeightBytes(WeightForm form, int64_t outputs, int64_t groups) {
  const int64_t bytes = Blocks(outputs) * groups * kBlockGroup;
  return form == WeightForm::kInt8 ? bytes : bytes / 2;
}

int64_t PackedScales(WeightForm form, int64_t outputs, int64_t groups) {
  const int64_t scales = Blocks(outputs) * groups * kBlockOutputs;
  return form == WeightForm::kInt8 ? scales : 2 * scales;
}

void PackOutput(WeightForm form,
                int64_t output,
                absl::Span<const WeightGroup> groups,
                uint8_t* weights,
                uint16_t* scales) {
  const int64_t block = output / kBlockOutputs;
  const int64_t lane = output % kBlockOutputs;
  const auto count = static_cast<int64_t>(groups.size());
  for (int64_t g = 0; g < count; ++g) {
    const WeightGroup& group = groups[static_cast<size_t>(g)];
    const int64_t at = block * count + g;
    if (form == WeightForm::kInt8) {
      uint8_t* const to = weights + at * kBlockGroup;
      for (int i = 0; i < kGroupSize; ++i) {
        to[ByteOf(i, lane)] = static_cast<uint8_t>(group.values[i] + 128);
      }
      scales[at * kBlockOutputs + lane] = group.scale;
    } else {
      uint8_t* const to = weights + at * kBlockGroup / 2;
      for (int i = 0; i < kGroupSize / 2; ++i) {
        to[ByteOf(i, lane)] = static_cast<uint8_t>(
            group.values[i] | group.values[i + kGroupSize / 2] << 4);
      }
      scales[at * 2 * kBlockOutputs + lane] = group.scale;
      scales[(at * 2 + 1) * kBlockOutputs + lane] = group.minimum;
    }
  }
}

void UnpackGroup(const PackedMatrix& matrix,
                 int64_t output,
                 int64_t index,
                 WeightGroup* group) {
  const int64_t lane = output % kBlockOutputs;
  const int64_t at = output / kBlockOutputs * matrix.groups + index;
  *group = {};
  if (matrix.form == WeightForm::kInt8) {
    const uint8_t* const from = matrix.weights + at * kBlockGroup;
    for (int i = 0; i < kGroupSize; ++i) {
      group->values[i] = static_cast<int8_t>(from[ByteOf(i, lane)] - 128);
    }
    group->scale = matrix.scales[at * kBlockOutputs + lane];
    return;
  }
  const uint8_t* const from = matrix.weights + at * kBlockGroup / 2;
  for (int i = 0; i < kGroupSize / 2; ++i) {
    const uint8_t byte = from[ByteOf(i, lane)];
    group->values[i] = static_cast<int8_t>(byte & 15);
    group->values[i + kGroupSize / 2] = static_cast<int8_t>(byte >> 4);
  }
  group->scale = matrix.scales[at * 2 * kBlockOutputs + lane];
  group->minimum = matrix.scales[(at * 2 + 1) * kBlockOutputs + lane];
}

}  // namespace specwire
