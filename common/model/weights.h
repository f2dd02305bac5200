// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/gguf.h"

namespace specwire {

// A matrix [rows, columns] of a model file: rows of one tensor or of several,
// in the order that the forward pass wants. Nothing is copied or expanded
// before a row is asked for.
//
// Thread safety: const methods from any thread.
// Lifetime: must not outlive the file.
class WeightMatrix {
 public:
  explicit WeightMatrix(int64_t columns) : columns_(columns) {}

  // Appends a row of a tensor.
  // REQUIRES: the tensor's last dimension is `columns`, and it has that row.
  void Append(const GgufTensor* tensor, int64_t row) {
    rows_.push_back({tensor, row});
  }

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t columns() const { return columns_; }

  // The type that all rows have; nullopt if they differ.
  std::optional<GgmlType> type() const;

  // A row in float32. Errors as those of ExpandToFloat.
  // REQUIRES: 0 <= row < rows(), out.size() == columns().
  absl::Status ExpandRow(int64_t row, absl::Span<float> out) const;

  // A row as it lies in the file, and its type.
  absl::Span<const uint8_t> RowBytes(int64_t row) const;
  GgmlType RowType(int64_t row) const {
    return rows_[static_cast<size_t>(row)].tensor->type;
  }

 private:
  struct Row {
    const GgufTensor* tensor;
    int64_t row;
  };

  const int64_t columns_;
  std::vector<Row> rows_;
};

// One layer's weights, matrices [out, in] in the order of the rotary form that
// pairs value i of a head with value i + head_dim / 2. D is the width, F the
// feed-forward width, Hq and Hkv the numbers of heads, d the head size.
struct LayerWeights {
  at::Tensor attention_norm;      // [D] f32
  WeightMatrix qkv;               // [(Hq + 2 Hkv) d, D]: query, key, value
  WeightMatrix attention_output;  // [D, Hq d]
  at::Tensor ffn_norm;            // [D] f32
  WeightMatrix gate_up;           // [2 F, D]: gate rows, then up rows
  WeightMatrix ffn_down;          // [D, F]
};

// The tensors of a GGUF file under the names of the forward pass.
//
// Thread safety: one thread.
// Lifetime: the file must outlive it and the matrices that it returns.
class GgufWeights {
 public:
  // Checks that the file has every tensor that the configuration needs, with
  // the right shape, and none whose meaning is unknown (a bias left out would
  // give wrong text).
  static absl::StatusOr<GgufWeights> Create(const GgufFile* file,
                                            const ModelConfig& config);

  // [V, D]. Rows beyond the tokenizer's vocabulary are left out here and in
  // Head; a trimmed head has its own.
  absl::StatusOr<WeightMatrix> Embedding() const;
  // REQUIRES: 0 <= layer < num_layers.
  absl::StatusOr<LayerWeights> Layer(int layer) const;
  // [D].
  absl::StatusOr<at::Tensor> FinalNorm() const;
  // [H, D], H the head's size; nullopt if the embedding serves as the head.
  absl::StatusOr<std::optional<WeightMatrix>> Head() const;
  // What each rotary frequency is divided by, head_dim / 2 numbers; empty
  // where the file has none.
  absl::StatusOr<std::vector<float>> RopeFactors() const;

 private:
  GgufWeights(const GgufFile* file, const ModelConfig& config)
      : file_(file), config_(config) {}

  absl::StatusOr<const GgufTensor*> FindVocabularyMatrix(
      absl::string_view name) const;
  // The file's own head, whole or trimmed.
  absl::StatusOr<const GgufTensor*> FindHead() const;
  absl::Status CheckLayerTensors() const;
  absl::Status CheckNoOthers() const;
  absl::StatusOr<at::Tensor> Vector(absl::string_view name) const;
  // The first `num_rows` rows of a tensor.
  WeightMatrix FirstRows(const GgufTensor* tensor, int num_rows) const;
  // Appends all rows of a layer's tensor to a matrix.
  absl::Status Append(absl::string_view name,
                      int64_t rows,
                      WeightMatrix* matrix) const;
  // The same for `num_heads` heads whose rows the file keeps in pairs.
  absl::Status AppendPaired(absl::string_view name,
                            int num_heads,
                            WeightMatrix* matrix) const;

  const GgufFile* file_;
  ModelConfig config_;
};

}  // namespace specwire
