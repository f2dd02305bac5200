// SPDX-License-Identifier: Apache-2.0
#include "common/model/int8_linear.h"

#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/kernels/packing.h"
#include "common/model/large_pages.h"
#include "common/model/matrix_rows.h"

namespace specwire {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 25;
constexpr int64_t kAlignment = 64;

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
  Int8Rows rows(&matrix, digest);
  auto linear =
      CreateZeros(rows.form(), matrix.rows(), rows.num_groups(), arena);
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const WeightGroup> groups,
                              rows.Next());
    PackOutput(rows.form(),
               i,
               groups,
               linear->mutable_weights(),
               linear->mutable_scales());
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
