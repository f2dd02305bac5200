// SPDX-License-Identifier: Apache-2.0
#include "common/model/weights.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

// The layer number in "<prefix><number>.<part>" and the part.
std::optional<std::pair<int, absl::string_view>> ParseLayerName(
    absl::string_view name, absl::string_view prefix) {
  if (!absl::StartsWith(name, prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  int layer = 0;
  if (dot == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(0, dot), &layer) ||
      name.substr(0, dot) != absl::StrCat(layer)) {
    return std::nullopt;
  }
  return std::make_pair(layer, name.substr(dot + 1));
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

absl::StatusOr<ModelWeights> ModelWeights::Create(const TensorTable* tensors,
                                                  TensorNaming naming,
                                                  const ModelConfig& config) {
  ModelWeights weights(tensors, naming, config);
  const TensorNames& names = weights.names_;
  SPECWIRE_RETURN_IF_ERROR(
      weights.FindVocabularyMatrix(names.embedding).status());
  SPECWIRE_RETURN_IF_ERROR(
      tensors->FindTensor(names.final_norm, {config.hidden_size}).status());
  if (config.head_size != config.vocab_size) {
    SPECWIRE_RETURN_IF_ERROR(weights.FindHead().status());
  }
  SPECWIRE_RETURN_IF_ERROR(weights.CheckLayerTensors());
  SPECWIRE_RETURN_IF_ERROR(weights.CheckNoOthers());
  return weights;
}

absl::StatusOr<const FileTensor*> ModelWeights::FindVocabularyMatrix(
    const std::string& name) const {
  const std::string field = absl::StrCat("tensor ", name);
  const FileTensor* tensor = tensors_->Find(name);
  if (tensor == nullptr) {
    return tensors_->Error(field, "is absent");
  }
  if (tensor->shape.size() != 2 || tensor->shape[0] < config_.vocab_size ||
      tensor->shape[1] != config_.hidden_size) {
    return tensors_->Error(field,
                           absl::StrCat("must have the shape [",
                                        config_.vocab_size,
                                        " or more, ",
                                        config_.hidden_size,
                                        "]"));
  }
  return tensor;
}

absl::StatusOr<const FileTensor*> ModelWeights::FindHead() const {
  if (config_.head_size == config_.vocab_size) {
    return FindVocabularyMatrix(names_.head);
  }
  const FileTensor* tensor = tensors_->Find(names_.head);
  const std::vector<int64_t> shape = {config_.head_size, config_.hidden_size};
  if (tensor == nullptr || tensor->shape != shape) {
    return tensors_->Error(
        absl::StrCat("tensor ", names_.head),
        absl::StrCat(tensor == nullptr ? "is absent; it must" : "must",
                     " have the shape [",
                     shape[0],
                     ", ",
                     shape[1],
                     "], a row for each of specwire.draft.head_token_ids"));
  }
  return tensor;
}

std::vector<std::pair<std::string, std::vector<int64_t>>>
ModelWeights::LayerParts() const {
  const int64_t width = config_.hidden_size;
  const int64_t ffn = config_.intermediate_size;
  const int64_t q_size = config_.q_size();
  const int64_t kv_size = config_.kv_size();
  const int64_t head = config_.head_dim;
  std::vector<std::pair<std::string, std::vector<int64_t>>> parts = {
      {names_.attention_norm, {width}},
      {names_.query, {q_size, width}},
      {names_.key, {kv_size, width}},
      {names_.value, {kv_size, width}},
      {names_.query_bias, {q_size}},
      {names_.key_bias, {kv_size}},
      {names_.value_bias, {kv_size}},
      {names_.query_norm, {head}},
      {names_.key_norm, {head}},
      {names_.attention_output, {width, q_size}},
      {names_.attention_post_norm, {width}},
      {names_.ffn_norm, {width}},
      {names_.ffn_gate, {ffn, width}},
      {names_.ffn_up, {ffn, width}},
      {names_.ffn_down, {width, ffn}},
      {names_.ffn_post_norm, {width}}};
  std::erase_if(parts, [](const auto& part) { return part.first.empty(); });
  return parts;
}

absl::Status ModelWeights::CheckLayerTensors() const {
  const auto parts = LayerParts();
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    for (const auto& [part, shape] : parts) {
      SPECWIRE_RETURN_IF_ERROR(
          tensors_->FindTensor(names_.Layer(layer, part), shape).status());
    }
  }
  return absl::OkStatus();
}

absl::Status ModelWeights::CheckNoOthers() const {
  const auto parts = LayerParts();
  for (const FileTensor& tensor : tensors_->tensors()) {
    const absl::string_view name = tensor.name;
    if (name == names_.embedding || name == names_.final_norm ||
        (!names_.rope_factors.empty() && name == names_.rope_factors)) {
      continue;
    }
    if (name == names_.head) {
      if (!config_.tied_head) {
        SPECWIRE_RETURN_IF_ERROR(FindHead().status());
      }
      continue;
    }
    const auto parsed = ParseLayerName(name, names_.layer_prefix);
    const bool known =
        parsed.has_value() && parsed->first >= 0 &&
        parsed->first < config_.num_layers_in_file &&
        (parsed->second == names_.needless ||
         std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
           return part.first == parsed->second;
         }));
    if (!known) {
      return tensors_->Error(absl::StrCat("tensor ", name),
                             "the forward pass of this architecture has no use "
                             "for it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ModelWeights::Vector(const std::string& name,
                                                        int64_t size) const {
  SPECWIRE_ASSIGN_OR_RETURN(const FileTensor* tensor,
                            tensors_->FindTensor(name, {size}));
  std::vector<float> vector(static_cast<size_t>(size));
  SPECWIRE_RETURN_IF_ERROR(ExpandToFloat(*tensor, absl::MakeSpan(vector)));
  return vector;
}

absl::StatusOr<std::vector<float>> ModelWeights::Norm(const std::string& name,
                                                      int64_t size) const {
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<float> norm, Vector(name, size));
  for (float& weight : norm) weight += names_.norm_offset;
  return norm;
}

WeightMatrix ModelWeights::FirstRows(const FileTensor* tensor,
                                     int num_rows) const {
  WeightMatrix matrix(config_.hidden_size);
  for (int64_t row = 0; row < num_rows; ++row) matrix.Append(tensor, row);
  return matrix;
}

absl::StatusOr<WeightMatrix> ModelWeights::Embedding() const {
  SPECWIRE_ASSIGN_OR_RETURN(const FileTensor* tensor,
                            FindVocabularyMatrix(names_.embedding));
  // The tokenizer's rows are the first ones.
  return FirstRows(tensor, config_.vocab_size);
}

absl::StatusOr<std::vector<float>> ModelWeights::FinalNorm() const {
  return Norm(names_.final_norm, config_.hidden_size);
}

absl::StatusOr<std::optional<WeightMatrix>> ModelWeights::Head() const {
  if (config_.tied_head || tensors_->Find(names_.head) == nullptr) {
    return std::optional<WeightMatrix>();
  }
  SPECWIRE_ASSIGN_OR_RETURN(const FileTensor* tensor, FindHead());
  return std::optional<WeightMatrix>(FirstRows(tensor, config_.head_size));
}

absl::Status ModelWeights::Append(const std::string& name,
                                  int64_t rows,
                                  WeightMatrix* matrix) const {
  SPECWIRE_ASSIGN_OR_RETURN(
      const FileTensor* tensor,
      tensors_->FindTensor(name, {rows, matrix->columns()}));
  for (int64_t row = 0; row < rows; ++row) matrix->Append(tensor, row);
  return absl::OkStatus();
}

int64_t ModelWeights::HeadRow(int64_t row) const {
  if (!names_.paired_rows) return row;
  const int64_t dim = config_.head_dim;
  const int64_t in_head = row % dim;
  return row - in_head + 2 * (in_head % (dim / 2)) + in_head / (dim / 2);
}

absl::Status ModelWeights::AppendHeads(const std::string& name,
                                       int num_heads,
                                       WeightMatrix* matrix) const {
  const int64_t rows = int64_t{num_heads} * config_.head_dim;
  SPECWIRE_ASSIGN_OR_RETURN(
      const FileTensor* tensor,
      tensors_->FindTensor(name, {rows, matrix->columns()}));
  for (int64_t row = 0; row < rows; ++row) {
    matrix->Append(tensor, HeadRow(row));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ModelWeights::QkvBias(int layer) const {
  std::vector<float> bias;
  if (!config_.qkv_bias) return bias;
  const int64_t q_size = config_.q_size();
  const int64_t kv_size = config_.kv_size();
  bias.reserve(static_cast<size_t>(q_size + 2 * kv_size));
  for (const auto& [part, size] : {std::pair(&names_.query_bias, q_size),
                                   std::pair(&names_.key_bias, kv_size),
                                   std::pair(&names_.value_bias, kv_size)}) {
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<float> from,
                              Vector(names_.Layer(layer, *part), size));
    const bool rotated = part != &names_.value_bias;
    for (int64_t row = 0; row < size; ++row) {
      bias.push_back(from[static_cast<size_t>(rotated ? HeadRow(row) : row)]);
    }
  }
  return bias;
}

absl::Status ModelWeights::ReadNorms(int layer, LayerWeights* weights) const {
  const int64_t width = config_.hidden_size;
  const int64_t head = config_.head_dim;
  const struct {
    const std::string& part;
    int64_t size;
    std::vector<float>& norm;
  } norms[] = {
      {names_.attention_norm, width, weights->attention_norm},
      {names_.query_norm, head, weights->query_norm},
      {names_.key_norm, head, weights->key_norm},
      {names_.attention_post_norm, width, weights->attention_post_norm},
      {names_.ffn_norm, width, weights->ffn_norm},
      {names_.ffn_post_norm, width, weights->ffn_post_norm}};
  for (const auto& [part, size, norm] : norms) {
    if (part.empty()) continue;
    SPECWIRE_ASSIGN_OR_RETURN(norm, Norm(names_.Layer(layer, part), size));
  }
  return absl::OkStatus();
}

absl::Status ModelWeights::ReadMatrices(int layer,
                                        LayerWeights* weights) const {
  const auto name = [&](const std::string& part) {
    return names_.Layer(layer, part);
  };
  const int64_t width = config_.hidden_size;
  const int64_t ffn = config_.intermediate_size;
  SPECWIRE_RETURN_IF_ERROR(
      AppendHeads(name(names_.query), config_.num_heads, &weights->qkv));
  SPECWIRE_RETURN_IF_ERROR(
      AppendHeads(name(names_.key), config_.num_kv_heads, &weights->qkv));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name(names_.value), config_.kv_size(), &weights->qkv));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name(names_.attention_output), width, &weights->attention_output));
  SPECWIRE_RETURN_IF_ERROR(
      Append(name(names_.ffn_gate), ffn, &weights->gate_up));
  SPECWIRE_RETURN_IF_ERROR(Append(name(names_.ffn_up), ffn, &weights->gate_up));
  return Append(name(names_.ffn_down), width, &weights->ffn_down);
}

absl::StatusOr<LayerWeights> ModelWeights::Layer(int layer) const {
  LayerWeights weights = {.attention_norm = {},
                          .qkv = WeightMatrix(config_.hidden_size),
                          .qkv_bias = {},
                          .query_norm = {},
                          .key_norm = {},
                          .attention_output = WeightMatrix(config_.q_size()),
                          .attention_post_norm = {},
                          .ffn_norm = {},
                          .gate_up = WeightMatrix(config_.hidden_size),
                          .ffn_down = WeightMatrix(config_.intermediate_size),
                          .ffn_post_norm = {}};
  SPECWIRE_RETURN_IF_ERROR(ReadNorms(layer, &weights));
  SPECWIRE_RETURN_IF_ERROR(ReadMatrices(layer, &weights));
  SPECWIRE_ASSIGN_OR_RETURN(weights.qkv_bias, QkvBias(layer));
  return weights;
}

absl::StatusOr<std::vector<float>> ModelWeights::RopeFactors() const {
  if (names_.rope_factors.empty() ||
      tensors_->Find(names_.rope_factors) == nullptr) {
    return specwire::RopeFactors(config_);
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const FileTensor* tensor,
      tensors_->FindTensor(names_.rope_factors, {config_.head_dim / 2}));
  std::vector<float> factors(static_cast<size_t>(config_.head_dim) / 2);
  SPECWIRE_RETURN_IF_ERROR(ExpandToFloat(*tensor, absl::MakeSpan(factors)));
  for (const float factor : factors) {
    if (!(factor > 0)) {
      return tensors_->Error(absl::StrCat("tensor ", names_.rope_factors),
                             "a factor is not positive");
    }
  }
  return factors;
}

}  // namespace specwire
