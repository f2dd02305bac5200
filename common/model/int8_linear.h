// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/kernels/kernels.h"
#include "common/model/ops.h"
#include "common/model/weights.h"

namespace specwire {

// Memory for packed weights: large pieces on large pages, handed out bit by
// bit. A pass streams through all of it, and every page costs an address
// translation.
//
// Thread safety: one thread.
class WeightArena {
 public:
  // `bytes` zeros at a multiple of 64, [bytes] u8; the tensor keeps its piece
  // of the arena alive.
  at::Tensor Allocate(int64_t bytes);

 private:
  at::Tensor piece_;  // [.] u8
  int64_t used_ = 0;
};

// A matrix in the int8 engine's form: what Int8Rows gives, packed.
//
// Thread safety: const methods from any thread.
class Int8Linear final : public LinearWeight {
 public:
  // Appends to `digest` what Int8Rows does.
  static absl::StatusOr<std::unique_ptr<Int8Linear>> Create(
      const WeightMatrix& matrix, WeightArena* arena, Sha256* digest);

  // A matrix whose packed form is all zero, to be filled through what
  // mutable_weights and mutable_scales give before it is used. Beside Create
  // this serves benchmarks, which need shapes but no model file.
  static std::unique_ptr<Int8Linear> CreateZeros(WeightForm form,
                                                 int64_t outputs,
                                                 int64_t groups,
                                                 WeightArena* arena);
  uint8_t* mutable_weights() { return weights_.data_ptr<uint8_t>(); }
  uint16_t* mutable_scales() {
    return reinterpret_cast<uint16_t*>(scales_.data_ptr<uint8_t>());
  }

  // Pointers into memory that this owns.
  const PackedMatrix& packed() const { return packed_; }
  int64_t num_blocks() const {
    return (packed_.outputs + kBlockOutputs - 1) / kBlockOutputs;
  }

  // The weights of one output in float32: a token's embedding.
  // REQUIRES: out.size() is the number of columns.
  void ExpandOutput(int64_t output, absl::Span<float> out) const;

 private:
  Int8Linear() = default;

  at::Tensor weights_;  // u8, as PackedMatrix::weights
  at::Tensor scales_;   // u8, as PackedMatrix::scales
  PackedMatrix packed_ = {};
};

}  // namespace specwire
