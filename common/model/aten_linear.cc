// SPDX-License-Identifier: Apache-2.0
#include "common/model/aten_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace specwire {
namespace {

constexpr int64_t kTileRows = 8;
// Outputs of a piece, at most. A piece's weights fit the second-level cache, so
// that a long prefill reads them from memory once.
constexpr int64_t kPieceOutputs = 192;

// y = x * w^T. The address of y, and the distances of x and w from a cache
// line, are the same in every call for the same piece. Where w is of another
// type or on another device, x goes there and y comes back.
void MultiplyTile(const at::Tensor& x,
                  const at::Tensor& w,
                  const AtenLinear::Scratch& scratch,
                  at::Tensor& y) {
  if (!scratch.in.defined()) {
    at::mm_out(y, x, w.t());
    return;
  }
  const auto part = [](const at::Tensor& from, int64_t columns) {
    return from.narrow(0, 0, kTileRows * columns).view({kTileRows, columns});
  };
  at::Tensor in = part(scratch.in, x.size(1));
  at::Tensor out = part(scratch.out, w.size(0));
  in.copy_(x);
  at::mm_out(out, in, w.t());
  y.copy_(out);
}

// Numbers in [-1, 1), always the same.
at::Tensor TrialRows(int64_t columns) {
  at::Tensor rows = at::empty({kTileRows, columns}, at::kFloat);
  uint32_t state = 1;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    state = state * 1664525U + 1013904223U;
    rows.data_ptr<float>()[i] =
        static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
  return rows;
}

// Whether MultiplyTile gives a row the same bits at every place in the tile.
// Matrix products take rows in groups; on a processor where a group ends inside
// the tile, the places behind it are computed by other code.
bool PlacesAgree(const at::Tensor& w,
                 const AtenLinear::Scratch& scratch,
                 at::Tensor& y) {
  const at::Tensor x = TrialRows(w.size(1));
  MultiplyTile(x, w, scratch, y);
  const at::Tensor expected = y.clone();
  const at::Tensor shifted = at::empty({kTileRows, w.size(1)}, at::kFloat);
  const size_t row_bytes = static_cast<size_t>(y.size(1)) * sizeof(float);
  for (int64_t shift = 1; shift < kTileRows; ++shift) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      std::copy_n(
          RowOf(x, row), x.size(1), RowOf(shifted, (row + shift) % kTileRows));
    }
    MultiplyTile(shifted, w, scratch, y);
    for (int64_t row = 0; row < kTileRows; ++row) {
      if (std::memcmp(RowOf(expected, row),
                      RowOf(y, (row + shift) % kTileRows),
                      row_bytes) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

AtenLinear::Scratch::Scratch(int64_t widest_input, const AtenFormat& format)
    : tile(at::zeros({kTileRows, kPieceOutputs}, at::kFloat)),
      alone(at::zeros({kTileRows * widest_input}, at::kFloat)) {
  if (!format.converts()) return;
  in = at::zeros({kTileRows * widest_input}, format.options());
  out = at::zeros({kTileRows * kPieceOutputs}, format.options());
}

AtenLinear::AtenLinear(const at::Tensor& matrix,
                       const AtenFormat& format,
                       bool one_row_a_tile,
                       Scratch* scratch)
    : matrix_(matrix.to(format.options())) {
  // Pieces alike, of whole cache lines.
  const int64_t outputs = matrix_.size(0);
  const int64_t pieces = (outputs + kPieceOutputs - 1) / kPieceOutputs;
  piece_outputs_ = ((outputs + pieces - 1) / pieces + 15) / 16 * 16;
  num_pieces_ =
      static_cast<int>((outputs + piece_outputs_ - 1) / piece_outputs_);
  bool agree = !one_row_a_tile;
  // Of two sizes at most: the last may be smaller.
  for (const int piece : {0, num_pieces_ - 1}) {
    const auto [first, count] = Outputs(piece);
    at::Tensor y = scratch->tile.narrow(1, 0, count);
    agree = agree && PlacesAgree(matrix_.narrow(0, first, count), *scratch, y);
  }
  tile_rows_ = agree ? kTileRows : 1;
}

void AtenLinear::ReadRow(int64_t row, absl::Span<float> out) const {
  at::Tensor to =
      at::from_blob(out.data(), {static_cast<int64_t>(out.size())}, at::kFloat);
  to.copy_(matrix_.select(0, row));
}

std::pair<int64_t, int64_t> AtenLinear::Outputs(int piece) const {
  const int64_t first = piece * piece_outputs_;
  return {first, std::min(piece_outputs_, matrix_.size(0) - first)};
}

at::Tensor AtenLinear::TileOf(const at::Tensor& x,
                              int64_t first_row,
                              Scratch* scratch) const {
  if (tile_rows_ == kTileRows) {
    return x.narrow(0, first_row, kTileRows);
  }
  at::Tensor tile = scratch->alone.narrow(0, 0, kTileRows * x.size(1))
                        .view({kTileRows, x.size(1)});
  // Rows behind the first may hold parts of wider inputs; they do not matter.
  std::copy_n(RowOf(x, first_row), x.size(1), tile.data_ptr<float>());
  return tile;
}

void AtenLinear::Multiply(int piece,
                          const at::Tensor& x,
                          int64_t num_rows,
                          Scratch* scratch,
                          Sink sink) const {
  const auto [first, count] = Outputs(piece);
  const at::Tensor w = matrix_.narrow(0, first, count);
  at::Tensor y = scratch->tile.narrow(1, 0, count);
  for (int64_t row = 0; row < num_rows; row += tile_rows_) {
    MultiplyTile(TileOf(x, row, scratch), w, *scratch, y);
    const int64_t used = std::min(tile_rows_, num_rows - row);
    for (int64_t i = 0; i < used; ++i) {
      sink(row + i,
           first,
           absl::MakeConstSpan(RowOf(y, i), static_cast<size_t>(count)));
    }
  }
}

}  // namespace specwire
