// SPDX-License-Identifier: Apache-2.0
#include "common/model/matrix_rows.h"

#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/kernels/half.h"
#include "common/model/ggml_types.h"

namespace specwire {
namespace {

// A row of Q4_0 or Q4_1 blocks, whose nibbles, scales and minima are kept.
void ReadInt4Row(absl::Span<const uint8_t> bytes,
                 GgmlType type,
                 absl::Span<WeightGroup> groups) {
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint8_t* const block = bytes.data() + g * block_bytes;
    WeightGroup& group = groups[g];
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

void QuantizeRow(absl::Span<const float> row, absl::Span<WeightGroup> groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g] = QuantizeWeights(row.subspan(g * kGroupSize, kGroupSize));
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

Int8Rows::Int8Rows(const WeightMatrix* matrix, Sha256* digest)
    : matrix_(*matrix),
      digest_(digest),
      form_(FitsInt4(*matrix) ? WeightForm::kInt4 : WeightForm::kInt8),
      groups_(static_cast<size_t>(DivideUp(matrix->columns(), kGroupSize))),
      values_(groups_.size() * kGroupSize) {
  digest_->UpdateInt(static_cast<int64_t>(form_));
  digest_->UpdateInt(matrix_.rows());
  digest_->UpdateInt(matrix_.columns());
}

absl::StatusOr<absl::Span<const WeightGroup>> Int8Rows::Next() {
  const int64_t row = next_row_++;
  // In either form: a scale in the file that is not finite shows here.
  SPECWIRE_RETURN_IF_ERROR(matrix_.ExpandRow(
      row,
      absl::MakeSpan(values_).first(static_cast<size_t>(matrix_.columns()))));
  if (form_ == WeightForm::kInt4) {
    ReadInt4Row(
        matrix_.RowBytes(row), matrix_.RowType(row), absl::MakeSpan(groups_));
  } else {
    QuantizeRow(values_, absl::MakeSpan(groups_));
  }
  digest_->Update(
      absl::string_view(reinterpret_cast<const char*>(groups_.data()),
                        groups_.size() * sizeof(WeightGroup)));
  return absl::MakeConstSpan(groups_);
}

absl::Status ReadFloatRow(const WeightMatrix& matrix,
                          int64_t row,
                          absl::Span<float> out,
                          Sha256* digest) {
  SPECWIRE_RETURN_IF_ERROR(matrix.ExpandRow(row, out));
  const absl::Span<const uint8_t> bytes = matrix.RowBytes(row);
  digest->UpdateInt(static_cast<int64_t>(matrix.RowType(row)));
  digest->UpdateSized(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return absl::OkStatus();
}

}  // namespace specwire
