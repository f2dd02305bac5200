// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/model/ops.h"

namespace specwire {

// How a matrix is kept, and where and in what type its products are computed.
struct AtenFormat {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;

  // Whether rows have to be converted or copied for a product.
  bool converts() const { return dtype != at::kFloat || !device.is_cpu(); }
  at::TensorOptions options() const {
    return at::TensorOptions(dtype).device(device);
  }
};

// A matrix whose products with rows do not depend on the rows' company. Rows go
// in and products come out in float32 on the CPU, whatever the format.
//
// A matrix product of ATen may give a row other bits when it has other rows or
// another number of them beside it. So all products have one shape, tiles of
// eight rows by a fixed piece of the outputs, at addresses that are alike; and
// at load each matrix is tried out: where a row's place in the tile shows, rows
// are computed alone.
//
// Thread safety: const methods from any thread, each with a Scratch of its own.
class AtenLinear final : public LinearWeight {
 public:
  // Where one thread computes.
  struct Scratch {
    // For matrices of up to `widest_input` columns.
    Scratch(int64_t widest_input, const AtenFormat& format);

    at::Tensor tile;  // [8, outputs of a piece] f32
    at::Tensor
        alone;  // [8 * widest_input] f32: a row, and what does not matter
    // The same in the matrix' format; undefined where that converts nothing.
    at::Tensor in;   // [8 * widest_input]
    at::Tensor out;  // [8 * outputs of a piece]
  };

  // Values of outputs first, first + 1, ... of a row.
  using Sink = absl::FunctionRef<void(
      int64_t row, int64_t first, absl::Span<const float> values)>;

  // `matrix` is [out, in] f32 on the CPU. With `one_row_a_tile` rows are
  // computed alone without a trial.
  AtenLinear(const at::Tensor& matrix,
             const AtenFormat& format,
             bool one_row_a_tile,
             Scratch* scratch);

  int64_t outputs() const { return matrix_.size(0); }
  // Writes a row of the matrix. REQUIRES: out.size() is the number of columns.
  void ReadRow(int64_t row, absl::Span<float> out) const;
  int num_pieces() const { return num_pieces_; }

  // Hands the products of the first `num_rows` rows of x with one piece of the
  // outputs to `sink`. x has room for whole tiles, [., in].
  // REQUIRES: 0 <= piece < num_pieces(); inference mode.
  void Multiply(int piece,
                const at::Tensor& x,
                int64_t num_rows,
                Scratch* scratch,
                Sink sink) const;

 private:
  // Outputs of `piece`: first and number.
  std::pair<int64_t, int64_t> Outputs(int piece) const;
  at::Tensor TileOf(const at::Tensor& x,
                    int64_t first_row,
                    Scratch* scratch) const;

  const at::Tensor matrix_;  // in the format
  int64_t piece_outputs_ = 0;
  int num_pieces_ = 0;
  int64_t tile_rows_ = 0;
};

// The first value of a row of a float32 matrix.
inline float* RowOf(const at::Tensor& matrix, int64_t row) {
  return matrix.data_ptr<float>() + row * matrix.stride(0);
}

}  // namespace specwire
