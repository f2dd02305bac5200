// SPDX-License-Identifier: Apache-2.0
#include "common/model/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
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

// Rows [first_row, first_row + the tensor's rows) of `out`, [rows, in], are set
// to the tensor's values.
absl::Status ExpandRows(const GgufFile& file,
                        const GgufTensor& tensor,
                        int64_t first_row,
                        const at::Tensor& out) {
  const absl::Status status = ExpandToFloat(
      tensor,
      Values(out).subspan(static_cast<size_t>(first_row * out.size(1)),
                          static_cast<size_t>(tensor.num_elements())));
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(file.path(), ": ", status.message()));
  }
  return absl::OkStatus();
}

// Undoes llama.cpp's order of query and key rows. Its converter stores row i of
// a head's first half and row i of the second half next to each other, for a
// rotary form that pairs neighbours.
void SplitPairs(const at::Tensor& matrix,
                int64_t first_row,
                int num_heads,
                int head_dim) {
  const size_t in = static_cast<size_t>(matrix.size(1));
  const size_t half = static_cast<size_t>(head_dim) / 2;
  std::vector<float> paired(2 * half * in);
  for (int head = 0; head < num_heads; ++head) {
    float* const rows =
        matrix.data_ptr<float>() +
        static_cast<size_t>(first_row + int64_t{head} * head_dim) * in;
    std::copy_n(rows, paired.size(), paired.data());
    for (size_t i = 0; i < half; ++i) {
      std::copy_n(&paired[2 * i * in], in, rows + i * in);
      std::copy_n(&paired[(2 * i + 1) * in], in, rows + (half + i) * in);
    }
  }
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

absl::StatusOr<GgufWeights> GgufWeights::Create(const GgufFile* file,
                                                const ModelConfig& config) {
  GgufWeights weights(file, config);
  SPECWIRE_RETURN_IF_ERROR(weights.FindVocabularyMatrix(kEmbedding).status());
  SPECWIRE_RETURN_IF_ERROR(
      file->FindTensor(kFinalNorm, {config.hidden_size}).status());
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
      SPECWIRE_RETURN_IF_ERROR(FindVocabularyMatrix(kHead).status());
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
  at::Tensor row = at::empty({1, config_.hidden_size}, at::kFloat);
  SPECWIRE_RETURN_IF_ERROR(ExpandRows(*file_, *tensor, 0, row));
  return row.view({config_.hidden_size});
}

absl::StatusOr<at::Tensor> GgufWeights::VocabularyMatrix(
    absl::string_view name) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufTensor* tensor,
                            FindVocabularyMatrix(name));
  // The tokenizer's rows are the first ones.
  const size_t row_bytes =
      tensor->data.size() / static_cast<size_t>(tensor->shape[0]);
  const size_t num_rows = static_cast<size_t>(config_.vocab_size);
  const GgufTensor rows{tensor->name,
                        tensor->type,
                        {config_.vocab_size, config_.hidden_size},
                        tensor->data.subspan(0, num_rows * row_bytes)};
  at::Tensor matrix =
      at::empty({config_.vocab_size, config_.hidden_size}, at::kFloat);
  SPECWIRE_RETURN_IF_ERROR(ExpandRows(*file_, rows, 0, matrix));
  return matrix;
}

absl::StatusOr<at::Tensor> GgufWeights::Embedding() const {
  return VocabularyMatrix(kEmbedding);
}

absl::StatusOr<at::Tensor> GgufWeights::FinalNorm() const {
  return Vector(kFinalNorm);
}

absl::StatusOr<std::optional<at::Tensor>> GgufWeights::Head() const {
  if (FindByName(*file_, kHead) == nullptr) {
    return std::optional<at::Tensor>();
  }
  SPECWIRE_ASSIGN_OR_RETURN(at::Tensor head, VocabularyMatrix(kHead));
  return std::optional<at::Tensor>(std::move(head));
}

absl::StatusOr<LayerWeights> GgufWeights::Layer(int layer) const {
  const int64_t width = config_.hidden_size;
  const int64_t ffn = config_.intermediate_size;
  const int64_t q_size = config_.q_size();
  const int64_t kv_size = config_.kv_size();
  LayerWeights weights;
  SPECWIRE_ASSIGN_OR_RETURN(weights.attention_norm,
                            Vector(LayerName(layer, "attn_norm.weight")));
  SPECWIRE_ASSIGN_OR_RETURN(weights.ffn_norm,
                            Vector(LayerName(layer, "ffn_norm.weight")));
  weights.qkv = at::empty({q_size + 2 * kv_size, width}, at::kFloat);
  weights.attention_output = at::empty({width, q_size}, at::kFloat);
  weights.gate_up = at::empty({2 * ffn, width}, at::kFloat);
  weights.ffn_down = at::empty({width, ffn}, at::kFloat);

  struct Part {
    absl::string_view name;
    int64_t rows;
    at::Tensor* into;
    int64_t first_row;
  };
  for (const Part& part :
       {Part{"attn_q.weight", q_size, &weights.qkv, 0},
        Part{"attn_k.weight", kv_size, &weights.qkv, q_size},
        Part{"attn_v.weight", kv_size, &weights.qkv, q_size + kv_size},
        Part{"attn_output.weight", width, &weights.attention_output, 0},
        Part{"ffn_gate.weight", ffn, &weights.gate_up, 0},
        Part{"ffn_up.weight", ffn, &weights.gate_up, ffn},
        Part{"ffn_down.weight", width, &weights.ffn_down, 0}}) {
    SPECWIRE_ASSIGN_OR_RETURN(
        const GgufTensor* tensor,
        file_->FindTensor(LayerName(layer, part.name),
                          {part.rows, part.into->size(1)}));
    SPECWIRE_RETURN_IF_ERROR(
        ExpandRows(*file_, *tensor, part.first_row, *part.into));
  }
  SplitPairs(weights.qkv, 0, config_.num_heads, config_.head_dim);
  SplitPairs(weights.qkv, q_size, config_.num_kv_heads, config_.head_dim);
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

void GgufWeights::AddTo(Sha256* digest) const {
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor& tensor : file_->tensors()) {
    tensors.push_back(&tensor);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return a->name < b->name;
  });
  digest->UpdateInt(static_cast<int64_t>(tensors.size()));
  for (const GgufTensor* tensor : tensors) {
    digest->UpdateSized(tensor->name);
    digest->UpdateInt(static_cast<int64_t>(tensor->type));
    digest->UpdateInt(static_cast<int64_t>(tensor->shape.size()));
    for (const int64_t size : tensor->shape) {
      digest->UpdateInt(size);
    }
    digest->UpdateSized(
        absl::string_view(reinterpret_cast<const char*>(tensor->data.data()),
                          tensor->data.size()));
  }
}

}  // namespace specwire
