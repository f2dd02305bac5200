// SPDX-License-Identifier: Apache-2.0
#include "common/model/memory.h"

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/kernels/packing.h"
#include "common/model/engine_names.h"
#include "common/model/kv_cache.h"

namespace specwire {
namespace {

constexpr auto kHalfBytes = static_cast<int64_t>(sizeof(uint16_t));
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// A matrix of the forward pass: all rows of some tensors, or the first ones of
// a single tensor.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  // Whether all rows come as 4-bit blocks of one type.
  bool four_bits = true;
};

bool IsFourBits(GgmlType type) {
  return type == GgmlType::kQ4_0 || type == GgmlType::kQ4_1;
}

// In values of so many bytes, or if that is 0 in the int8 engine's forms.
int64_t BytesOf(const Matrix& matrix, int64_t value_bytes) {
  if (value_bytes > 0) return matrix.rows * matrix.columns * value_bytes;
  // As Int8Linear chooses.
  const WeightForm form = matrix.four_bits && matrix.columns % kGroupSize == 0
                              ? WeightForm::kInt4
                              : WeightForm::kInt8;
  const int64_t groups = DivideUp(matrix.columns, kGroupSize);
  return PackedWeightBytes(form, matrix.rows, groups) +
         PackedScales(form, matrix.rows, groups) * kHalfBytes;
}

// Reads what the matrices of a model are made of; value_bytes as in BytesOf.
class Matrices {
 public:
  Matrices(const TensorTable& tensors,
           TensorNaming naming,
           const ModelConfig& config)
      : tensors_(tensors), names_(NamesFor(naming, config)), config_(config) {}

  absl::StatusOr<int64_t> Bytes(int64_t value_bytes) const {
    SPECWIRE_ASSIGN_OR_RETURN(
        const Matrix embedding,
        OfVocabulary(names_.embedding, config_.vocab_size));
    int64_t bytes = BytesOf(embedding, value_bytes);
    if (!config_.tied_head && tensors_.Find(names_.head) != nullptr) {
      SPECWIRE_ASSIGN_OR_RETURN(const Matrix head,
                                OfVocabulary(names_.head, config_.head_size));
      bytes += BytesOf(head, value_bytes);
    }
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      SPECWIRE_ASSIGN_OR_RETURN(const int64_t of_layer,
                                OfLayer(layer, value_bytes));
      bytes += of_layer;
    }
    return bytes;
  }

 private:
  struct Part {
    const std::string& name;
    int64_t rows;
  };

  // The first `rows` rows of a tensor that may have more.
  absl::StatusOr<Matrix> OfVocabulary(const std::string& name,
                                      int64_t rows) const {
    const FileTensor* const tensor = tensors_.Find(name);
    if (tensor == nullptr || tensor->shape.size() != 2 ||
        tensor->shape[0] < rows || tensor->shape[1] != config_.hidden_size) {
      return tensors_.Error(absl::StrCat("tensor ", name),
                            tensor == nullptr
                                ? "is absent"
                                : absl::StrCat("must have the shape [",
                                               rows,
                                               " or more, ",
                                               config_.hidden_size,
                                               "]"));
    }
    return Matrix{.rows = rows,
                  .columns = config_.hidden_size,
                  .four_bits = IsFourBits(tensor->type)};
  }

  absl::StatusOr<Matrix> OfParts(int layer,
                                 int64_t columns,
                                 std::initializer_list<Part> parts) const {
    Matrix matrix{.rows = 0, .columns = columns};
    const FileTensor* first = nullptr;
    for (const Part& part : parts) {
      SPECWIRE_ASSIGN_OR_RETURN(
          const FileTensor* const tensor,
          tensors_.FindTensor(names_.Layer(layer, part.name),
                              {part.rows, columns}));
      if (first == nullptr) first = tensor;
      matrix.rows += part.rows;
      matrix.four_bits = matrix.four_bits && IsFourBits(tensor->type) &&
                         tensor->type == first->type;
    }
    return matrix;
  }

  absl::StatusOr<int64_t> OfLayer(int layer, int64_t value_bytes) const {
    const int64_t width = config_.hidden_size;
    const int64_t ffn = config_.intermediate_size;
    const int64_t kv_size = config_.kv_size();
    int64_t bytes = 0;
    for (const auto& matrix :
         {OfParts(layer,
                  width,
                  {{names_.query, config_.q_size()},
                   {names_.key, kv_size},
                   {names_.value, kv_size}}),
          OfParts(layer, config_.q_size(), {{names_.attention_output, width}}),
          OfParts(layer, width, {{names_.ffn_gate, ffn}, {names_.ffn_up, ffn}}),
          OfParts(layer, ffn, {{names_.ffn_down, width}})}) {
      SPECWIRE_RETURN_IF_ERROR(matrix.status());
      bytes += BytesOf(*matrix, value_bytes);
    }
    return bytes;
  }

  const TensorTable& tensors_;
  const TensorNames names_;
  const ModelConfig& config_;
};

}  // namespace

int64_t Int8KvHeadValues(const ModelConfig& config) {
  return kKvBlockSize * (config.head_dim + RoundUp(config.head_dim, 16));
}

int64_t Int8KvBlockBytes(const ModelConfig& config) {
  return Int8KvHeadValues(config) * config.num_layers * config.num_kv_heads *
         kHalfBytes;
}

int64_t AtenKvBlockBytes(const ModelConfig& config) {
  return config.kv_values_per_token() * kKvBlockSize * kFloatBytes;
}

int64_t KvBytes(absl::string_view engine,
                const ModelConfig& config,
                int64_t num_tokens) {
  const int64_t block_bytes = engine == kInt8Engine ? Int8KvBlockBytes(config)
                                                    : AtenKvBlockBytes(config);
  return DivideUp(num_tokens, kKvBlockSize) * block_bytes;
}

absl::StatusOr<int64_t> WeightBytes(absl::string_view engine,
                                    absl::string_view dtype,
                                    const TensorTable& tensors,
                                    TensorNaming naming,
                                    const ModelConfig& config) {
  int64_t value_bytes = dtype == kBfloat16Dtype ? kHalfBytes : kFloatBytes;
  if (engine == kInt8Engine) value_bytes = 0;
  return Matrices(tensors, naming, config).Bytes(value_bytes);
}

}  // namespace specwire
