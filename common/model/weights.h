// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/file_tensor.h"
#include "common/model/tensor_names.h"

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
  void Append(const FileTensor* tensor, int64_t row) {
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
    const FileTensor* tensor;
    int64_t row;
  };

  const int64_t columns_;
  std::vector<Row> rows_;
};

// One layer's weights, matrices [out, in] in the order of the rotary form that
// pairs value i of a head with value i + head_dim / 2. D is the width, F the
// feed-forward width, Hq and Hkv the numbers of heads, d the head size. Vectors
// that the model has not are empty.
struct LayerWeights {
  std::vector<float> attention_norm;  // [D]
  WeightMatrix qkv;                   // [(Hq + 2 Hkv) d, D]: query, key, value
  std::vector<float> qkv_bias;        // [(Hq + 2 Hkv) d]
  std::vector<float> query_norm;      // [d]
  std::vector<float> key_norm;        // [d]
  WeightMatrix attention_output;      // [D, Hq d]
  std::vector<float> attention_post_norm;  // [D]
  std::vector<float> ffn_norm;             // [D]
  WeightMatrix gate_up;                    // [2 F, D]: gate rows, then up rows
  WeightMatrix ffn_down;                   // [D, F]
  std::vector<float> ffn_post_norm;        // [D]
};

// The tensors of a model file, or of a folder of them, as the forward pass
// wants them.
//
// Thread safety: one thread.
// Lifetime: the tensors must outlive it and the matrices that it returns.
class ModelWeights {
 public:
  // Checks that every tensor that the configuration needs is there, with the
  // right shape, and none whose meaning is unknown (a bias left out would give
  // wrong text).
  static absl::StatusOr<ModelWeights> Create(const TensorTable* tensors,
                                             TensorNaming naming,
                                             const ModelConfig& config);

  // [V, D]. Rows beyond the tokenizer's vocabulary are left out here and in
  // Head; a trimmed head has its own.
  absl::StatusOr<WeightMatrix> Embedding() const;
  // REQUIRES: 0 <= layer < num_layers.
  absl::StatusOr<LayerWeights> Layer(int layer) const;
  // [D].
  absl::StatusOr<std::vector<float>> FinalNorm() const;
  // [H, D], H the head's size; nullopt if the embedding serves as the head.
  absl::StatusOr<std::optional<WeightMatrix>> Head() const;
  // What each rotary frequency is divided by, head_dim / 2 numbers; empty if
  // they stay.
  absl::StatusOr<std::vector<float>> RopeFactors() const;

 private:
  ModelWeights(const TensorTable* tensors,
               TensorNaming naming,
               const ModelConfig& config)
      : tensors_(tensors), names_(NamesFor(naming, config)), config_(config) {}

  // What a layer of the file has: each part and its shape.
  std::vector<std::pair<std::string, std::vector<int64_t>>> LayerParts() const;
  absl::StatusOr<const FileTensor*> FindVocabularyMatrix(
      const std::string& name) const;
  // The file's own head, whole or trimmed.
  absl::StatusOr<const FileTensor*> FindHead() const;
  absl::Status CheckLayerTensors() const;
  absl::Status CheckNoOthers() const;
  absl::StatusOr<std::vector<float>> Vector(const std::string& name,
                                            int64_t size) const;
  absl::StatusOr<std::vector<float>> Norm(const std::string& name,
                                          int64_t size) const;
  absl::StatusOr<std::vector<float>> QkvBias(int layer) const;
  absl::Status ReadNorms(int layer, LayerWeights* weights) const;
  absl::Status ReadMatrices(int layer, LayerWeights* weights) const;
  // The first `num_rows` rows of a tensor.
  WeightMatrix FirstRows(const FileTensor* tensor, int num_rows) const;
  // Appends all rows of a tensor to a matrix.
  absl::Status Append(const std::string& name,
                      int64_t rows,
                      WeightMatrix* matrix) const;
  // The same for the rows of `num_heads` query or key heads.
  absl::Status AppendHeads(const std::string& name,
                           int num_heads,
                           WeightMatrix* matrix) const;
  // Where the file has row `row` of all query or key heads.
  int64_t HeadRow(int64_t row) const;

  const TensorTable* tensors_;
  TensorNames names_;
  ModelConfig config_;
};

}  // namespace specwire
