// SPDX-License-Identifier: Apache-2.0
#include "common/model/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr char kEmbedding[] = "token_embd.weight";
constexpr char kFinalNorm[] = "output_norm.weight";
constexpr char kHead[] = "output.weight";
constexpr char kRopeFactors[] = "rope_freqs.weight";
constexpr absl::string_view kLayerTensors[] = {"attn_norm.weight",
                                               "attn_q.weight",
                                               "attn_k.weight",
                                               "attn_v.weight",
                                               "attn_output.weight",
                                               "ffn_norm.weight",
                                               "ffn_gate.weight",
                                               "ffn_up.weight",
                                               "ffn_down.weight"};

std::string LayerName(int layer, absl::string_view part) {
  return absl::StrCat("blk.", layer, ".", part);
}

const GgufTensor* FindByName(const GgufFile& file, absl::string_view name) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

absl::Span<float> Values(const at::Tensor& tensor) {
  return absl::MakeSpan(tensor.data_ptr<float>(),
                        static_cast<size_t>(tensor.numel()));
}

// The layer number in "blk.<number>.<part>" and the part.
std::optional<std::pair<int, absl::string_view>> ParseLayerName(
    absl::string_view name) {
  const std::vector<absl::string_view> pieces =
      absl::StrSplit(name, absl::MaxSplits('.', 2));
  int layer = 0;
  if (pieces.size() != 3 || pieces[0] != "blk" ||
      !absl::SimpleAtoi(pieces[1], &layer) ||
      pieces[1] != absl::StrCat(layer)) {
    return std::nullopt;
  }
  return std::make_pair(layer, pieces[2]);
}

}  // namespace

std::optional<GgmlType> WeightMatrix::type() const {
  if (rows_.empty()) return std::nullopt;
  const GgmlType type = rows_.front().tensor->type;
  for (const Row& row : rows_) {
    if (row.tensor->type != type) return std::nullopt;
  }
  return type;
}

absl::Status WeightMatrix::ExpandRow(int64_t row, absl::Span<float> out) const {
  const Row& at = rows_[static_cast<size_t>(row)];
  return ExpandRows(*at.tensor, at.row, 1, out);
}

absl::Span<const uint8_t> WeightMatrix::RowBytes(int64_t row) const {
  const Row& at = rows_[static_cast<size_t>(row)];
  const size_t bytes =
      at.tensor->data.size() / static_cast<size_t>(at.tensor->num_rows());
  return at.tensor->data.subspan(static_cast<size_t>(at.row) * bytes, bytes);
}

absl::StatusOr<GgufWeights> GgufWeights::Create(const GgufFile* file,
                                                const ModelConfig& config) {
  GgufWeights weights(file, config);
  SPECWIRE_RETURN_IF_ERROR(weights.FindVocabularyMatrix(kEmbedding).status());
  SPECWIRE_RETURN_IF_ERROR(
      file->FindTensor(kFinalNorm, {config.hidden_size}).status());
  if (config.head_size != config.vocab_size) {
    SPECWIRE_RETURN_IF_ERROR(weights.FindHead().status());
  }
  SPECWIRE_RETURN_IF_ERROR(weights.CheckLayerTensors());
  SPECWIRE_RETURN_IF_ERROR(weights.CheckNoOthers());
  return weights;
}

absl::StatusOr<const GgufTensor*> GgufWeights::FindVocabularyMatrix(
    absl::string_view name) const {
  const std::string field = absl::StrCat("tensor ", name);
  const GgufTensor* tensor = FindByName(*file_, name);
  if (tensor == nullptr) {
    return file_->Error(field, "is absent");
  }
  if (tensor->shape.size() != 2 || tensor->shape[0] < config_.vocab_size ||
      tensor->shape[1] != config_.hidden_size) {
    return file_->Error(field,
                        absl::StrCat("must have the shape [",
                                     config_.vocab_size,
                                     " or more, ",
                                     config_.hidden_size,
                                     "]"));
  }
  return tensor;
}

absl::StatusOr<const GgufTensor*> GgufWeights::FindHead() const {
  if (config_.head_size == config_.vocab_size) {
    return FindVocabularyMatrix(kHead);
  }
  const GgufTensor* tensor = FindByName(*file_, kHead);
  const std::vector<int64_t> shape = {config_.head_size, config_.hidden_size};
  if (tensor == nullptr || tensor->shape != shape) {
    return file_->Error(
        absl::StrCat("tensor ", kHead),
        absl::StrCat(tensor == nullptr ? "is absent; it must" : "must",
                     " have the shape [",
                     shape[0],
                     ", ",
                     shape[1],
                     "], a row for each of specwire.draft.head_token_ids"));
  }
  return tensor;
}

absl::Status GgufWeights::CheckLayerTensors() const {
  const int64_t width = config_.hidden_size;
  const int64_t ffn = config_.intermediate_size;
  const std::vector<std::pair<absl::string_view, std::vector<int64_t>>> needed =
      {{"attn_norm.weight", {width}},
       {"attn_q.weight", {config_.q_size(), width}},
       {"attn_k.weight", {config_.kv_size(), width}},
       {"attn_v.weight", {config_.kv_size(), width}},
       {"attn_output.weight", {width, config_.q_size()}},
       {"ffn_norm.weight", {width}},
       {"ffn_gate.weight", {ffn, width}},
       {"ffn_up.weight", {ffn, width}},
       {"ffn_down.weight", {width, ffn}}};
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    for (const auto& [part, shape] : needed) {
      SPECWIRE_RETURN_IF_ERROR(
          file_->FindTensor(LayerName(layer, part), shape).status());
    }
  }
  return absl::OkStatus();
}

absl::Status GgufWeights::CheckNoOthers() const {
  for (const GgufTensor& tensor : file_->tensors()) {
    const absl::string_view name = tensor.name;
    if (name == kEmbedding || name == kFinalNorm || name == kRopeFactors) {
      continue;
    }
    if (name == kHead) {
      SPECWIRE_RETURN_IF_ERROR(FindHead().status());
      continue;
    }
    const auto parsed = ParseLayerName(name);
    if (!parsed.has_value() || parsed->first < 0 ||
        parsed->first >= config_.num_layers_in_file ||
        std::find(std::begin(kLayerTensors),
                  std::end(kLayerTensors),
                  parsed->second) == std::end(kLayerTensors)) {
      return file_->Error(absl::StrCat("tensor ", name),
                          "the forward pass of this architecture has no use "
                          "for it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> GgufWeights::Vector(absl::string_view name) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufTensor* tensor,
                            file_->FindTensor(name, {config_.hidden_size}));
  at::Tensor vector = at::empty({config_.hidden_size}, at::kFloat);
  SPECWIRE_RETURN_IF_ERROR(ExpandToFloat(*tensor, Values(vector)));
  return vector;
}

WeightMatrix GgufWeights::FirstRows(const GgufTensor* tensor,
                                    int num_rows) const {
  WeightMatrix matrix(config_.hidden_size);
  for (int64_t row = 0; row < num_rows; ++row) matrix.Append(tensor, row);
  return matrix;
}

absl::StatusOr<WeightMatrix> GgufWeights::Embedding() const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufTensor* tensor,
                            FindVocabularyMatrix(kEmbedding));
  // The tokenizer's rows are the first ones.
  return FirstRows(tensor, config_.vocab_size);
}

absl::StatusOr<at::Tensor> GgufWeights::FinalNorm() const {
  return Vector(kFinalNorm);
}

absl::StatusOr<std::optional<WeightMatrix>> GgufWeights::Head() const {
  if (FindByName(*file_, kHead) == nullptr) {
    return std::optional<WeightMatrix>();
  }
  SPECWIRE_ASSIGN_OR_RETURN(const GgufTensor* tensor, FindHead());
  return std::optional<WeightMatrix>(FirstRows(tensor, config_.head_size));
}

absl::Status GgufWeights::Append(absl::string_view name,
                                 int64_t rows,
                                 WeightMatrix* matrix) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufTensor* tensor,
                            file_->FindTensor(name, {rows, matrix->columns()}));
  for (int64_t row = 0; row < rows; ++row) matrix->Append(tensor, row);
  return absl::OkStatus();
}

absl::Status GgufWeights::AppendPaired(absl::string_view name,
                                       int num_heads,
                                       WeightMatrix* matrix) const {
  const int64_t dim = config_.head_dim;
  SPECWIRE_ASSIGN_OR_RETURN(
      const GgufTensor* tensor,
      file_->FindTensor(name, {num_heads * dim, matrix->columns()}));
  // llama.cpp's converter stores row i of a head's first half and row i of the
  // second half next to each other, for a rotary form that pairs neighbours.
  for (int64_t head = 0; head < num_heads; ++head) {
    for (int64_t i = 0; i < dim; ++i) {
      const int64_t half = i / (dim / 2);
      matrix->Append(tensor, head * dim + 2 * (i % (dim / 2)) + half);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerWeights> GgufWeights::Layer(int layer) const {
  const int64_t width = config_.hidden_size;
  const int64_t ffn = config_.intermediate_size;
  const auto name = [layer](absl::string_view part) {
    return LayerName(layer, part);
  };
  LayerWeights weights = {.attention_norm = {},
                          .qkv = WeightMatrix(width),
                          .attention_output = WeightMatrix(config_.q_size()),
                          .ffn_norm = {},
                          .gate_up = WeightMatrix(width),
                          .ffn_down = WeightMatrix(ffn)};
  SPECWIRE_ASSIGN_OR_RETURN(weights.attention_norm,
                            Vector(name("attn_norm.weight")));
  SPECWIRE_ASSIGN_OR_RETURN(weights.ffn_norm, Vector(name("ffn_norm.weight")));
  SPECWIRE_RETURN_IF_ERROR(
      AppendPaired(name("attn_q.weight"), config_.num_heads, &weights.qkv));
  SPECWIRE_RETURN_IF_ERROR(
      AppendPaired(name("attn_k.weight"), config_.num_kv_heads, &weights.qkv));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name("attn_v.weight"), config_.kv_size(), &weights.qkv));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name("attn_output.weight"), width, &weights.attention_output));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name("ffn_gate.weight"), ffn, &weights.gate_up));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name("ffn_up.weight"), ffn, &weights.gate_up));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name("ffn_down.weight"), width, &weights.ffn_down));
  return weights;
}

absl::StatusOr<std::vector<float>> GgufWeights::RopeFactors() const {
  std::vector<float> factors;
  if (FindByName(*file_, kRopeFactors) == nullptr) {
    return factors;
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const GgufTensor* tensor,
      file_->FindTensor(kRopeFactors, {config_.head_dim / 2}));
  factors.resize(static_cast<size_t>(config_.head_dim) / 2);
  SPECWIRE_RETURN_IF_ERROR(ExpandToFloat(*tensor, absl::MakeSpan(factors)));
  for (const float factor : factors) {
    if (!(factor > 0)) {
      return file_->Error(absl::StrCat("tensor ", kRopeFactors),
                          "a factor is not positive");
    }
  }
  return factors;
}

}  // namespace specwire
