// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/kernels/kernels.h"
#include "common/kernels/packing.h"
#include "common/model/weights.h"

// How each engine reads a matrix of a model file, row by row, and what of it a
// model digest covers: one place for loading a model and for telling its digest
// without loading it. No torch here.

namespace specwire {

// The rows of a matrix as the int8 engine has them. A file's 4-bit blocks
// (Q4_0, Q4_1) are kept as they are, since quantising them anew would take more
// memory and lose accuracy; all other types become int8.
//
// Thread safety: one thread.
// Lifetime: the matrix and the digest must outlive it.
class Int8Rows {
 public:
  // Appends the form and the shape to `digest`.
  Int8Rows(const WeightMatrix* matrix, Sha256* digest);

  WeightForm form() const { return form_; }
  // Of each row; the last one is filled up with zeros.
  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }

  // The groups of the next row, from row 0 on, which it appends to the digest.
  // Valid until the next call. INVALID_ARGUMENT naming the tensor if a number
  // is not finite.
  // REQUIRES: called at most once for each row.
  absl::StatusOr<absl::Span<const WeightGroup>> Next();

 private:
  const WeightMatrix& matrix_;
  Sha256* const digest_;
  const WeightForm form_;
  int64_t next_row_ = 0;
  std::vector<WeightGroup> groups_;
  std::vector<float> values_;  // of a row, with zeros up to whole groups
};

// A row as the reference engine has it, in float32. Appends to `digest` the
// row's type and the file's bytes. Errors and requirements are those of
// WeightMatrix::ExpandRow.
absl::Status ReadFloatRow(const WeightMatrix& matrix,
                          int64_t row,
                          absl::Span<float> out,
                          Sha256* digest);

}  // namespace specwire
