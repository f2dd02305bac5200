// SPDX-License-Identifier: Apache-2.0
#include "common/model/int8_linear.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/kernels/half.h"
#include "common/kernels/packing.h"
#include "common/model/ggml_types.h"
#include "common/model/large_pages.h"

namespace specwire {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 25;
constexpr int64_t kAlignment = 64;

// The groups of one row of a matrix.
using Groups = std::vector<WeightGroup>;

// A row of Q4_0 or Q4_1 blocks, whose nibbles, scales and minima are kept.
void ReadInt4Row(absl::Span<const uint8_t> bytes,
                 GgmlType type,
                 Groups* groups) {
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  for (size_t g = 0; g < groups->size(); ++g) {
    const uint8_t* const block = bytes.data() + g * block_bytes;
    WeightGroup& group = (*groups)[g];
    std::memcpy(&group.scale, block, sizeof(group.scale));
    const uint8_t* nibbles = block + 2;
    if (type == GgmlType::kQ4_1) {
      std::memcpy(&group.minimum, block + 2, sizeof(group.minimum));
      nibbles = block + 4;
    } else {
      // d (q - 8) = d q + m.
      group.minimum = FloatToHalf(-8.0f * HalfToFloat(group.scale));
    }
    for (size_t i = 0; i < kGroupSize / 2; ++i) {
      group.values[i] = static_cast<int8_t>(nibbles[i] & 15);
      group.values[i + kGroupSize / 2] = static_cast<int8_t>(nibbles[i] >> 4);
    }
  }
}

void QuantizeRow(absl::Span<const float> row, Groups* groups) {
  for (size_t g = 0; g < groups->size(); ++g) {
    (*groups)[g] = QuantizeWeights(row.subspan(g * kGroupSize, kGroupSize));
  }
}

// -8 d of every Q4_0 block must be a finite half-precision number.
bool FitsInt4(const WeightMatrix& matrix) {
  const std::optional<GgmlType> type = matrix.type();
  if (matrix.columns() % kGroupSize != 0) return false;
  if (type == GgmlType::kQ4_1) return true;
  if (type != GgmlType::kQ4_0) return false;
  const auto block_bytes = static_cast<size_t>(InfoOf(*type).block_bytes);
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    const absl::Span<const uint8_t> bytes = matrix.RowBytes(row);
    for (size_t at = 0; at < bytes.size(); at += block_bytes) {
      uint16_t scale;
      std::memcpy(&scale, bytes.data() + at, sizeof(scale));
      constexpr float kLargest = 8188.0f;  // 65504 / 8
      const float value = HalfToFloat(scale);
      if (value > kLargest || value < -kLargest) return false;
    }
  }
  return true;
}

}  // namespace

at::Tensor WeightArena::Allocate(int64_t bytes) {
  const int64_t size = RoundUp(bytes, kAlignment);
  // What needs most of a piece gets its own, and the open one stays open.
  if (size > kPieceBytes / 2) return LargePages(size).narrow(0, 0, bytes);
  if (!piece_.defined() || used_ + size > piece_.size(0)) {
    piece_ = LargePages(kPieceBytes);
    used_ = 0;
  }
  at::Tensor part = piece_.narrow(0, used_, bytes);
  used_ += size;
  return part;
}

std::unique_ptr<Int8Linear> Int8Linear::CreateZeros(WeightForm form,
                                                    int64_t outputs,
                                                    int64_t groups,
                                                    WeightArena* arena) {
  auto linear = std::unique_ptr<Int8Linear>(new Int8Linear);
  linear->weights_ = arena->Allocate(PackedWeightBytes(form, outputs, groups));
  linear->scales_ = arena->Allocate(PackedScales(form, outputs, groups) *
                                    static_cast<int64_t>(sizeof(uint16_t)));
  linear->packed_ = {form,
                     outputs,
                     groups,
                     linear->mutable_weights(),
                     linear->mutable_scales()};
  return linear;
}

absl::StatusOr<std::unique_ptr<Int8Linear>> Int8Linear::Create(
    const WeightMatrix& matrix, WeightArena* arena, Sha256* digest) {
  const WeightForm form =
      FitsInt4(matrix) ? WeightForm::kInt4 : WeightForm::kInt8;
  const int64_t num_groups = DivideUp(matrix.columns(), kGroupSize);
  auto linear = CreateZeros(form, matrix.rows(), num_groups, arena);

  digest->UpdateInt(static_cast<int64_t>(form));
  digest->UpdateInt(matrix.rows());
  digest->UpdateInt(matrix.columns());
  Groups groups(static_cast<size_t>(num_groups));
  // Filled up with zeros to whole groups.
  std::vector<float> row(groups.size() * kGroupSize);
  const auto columns = static_cast<size_t>(matrix.columns());
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    // In either form: a scale in the file that is not finite shows here.
    SPECWIRE_RETURN_IF_ERROR(
        matrix.ExpandRow(i, absl::MakeSpan(row).first(columns)));
    if (form == WeightForm::kInt4) {
      ReadInt4Row(matrix.RowBytes(i), matrix.RowType(i), &groups);
    } else {
      QuantizeRow(row, &groups);
    }
    digest->Update(
        absl::string_view(reinterpret_cast<const char*>(groups.data()),
                          groups.size() * sizeof(WeightGroup)));
    PackOutput(
        form, i, groups, linear->mutable_weights(), linear->mutable_scales());
  }
  return linear;
}

void Int8Linear::ExpandOutput(int64_t output, absl::Span<float> out) const {
  WeightGroup group;
  for (int64_t g = 0; g < packed_.groups; ++g) {
    const auto at = static_cast<size_t>(g) * kGroupSize;
    UnpackGroup(packed_, output, g, &group);
    ExpandWeights(group, packed_.form, out.subspan(at, kGroupSize));
  }
}

}  // namespace specwire
