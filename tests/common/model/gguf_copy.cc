// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/gguf_copy.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/tensor_names.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

// Copies one folder.
class Copier {
 public:
  Copier(const ModelFiles& folder, TokenizerModel tokenizer)
      : folder_(folder),
        tokenizer_(std::move(tokenizer)),
        config_(folder.ReadConfig(static_cast<int>(tokenizer_.tokens.size()), 0)
                    .value()),
        from_(NamesFor(TensorNaming::kHuggingFace, config_)) {
    // llama.cpp has no architecture of this name.
    if (config_.architecture == "mistral") config_.architecture = "llama";
    to_ = NamesFor(TensorNaming::kGguf, config_);
  }

  std::string Build() {
    AddConfig();
    AddTokenizer();
    AddTensors();
    return writer_.Build();
  }

 private:
  void Int(const std::string& key, int64_t value) {
    writer_.AddInt(absl::StrCat(config_.architecture, ".", key),
                   GgufValueType::kUint32,
                   value);
  }
  void Float(const std::string& key, float value) {
    writer_.AddFloat32(absl::StrCat(config_.architecture, ".", key), value);
  }

  void AddConfig() {
    writer_.AddString("general.architecture", config_.architecture);
    Int("block_count", config_.num_layers_in_file);
    Int("context_length", config_.max_position_embeddings);
    Int("embedding_length", config_.hidden_size);
    Int("feed_forward_length", config_.intermediate_size);
    Int("attention.head_count", config_.num_heads);
    Int("attention.head_count_kv", config_.num_kv_heads);
    Int("attention.key_length", config_.head_dim);
    Int("attention.value_length", config_.head_dim);
    Float("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    Float("rope.freq_base", config_.rope_theta);
    Float("attention.scale", config_.attention_scale);
    if (config_.sliding_window == 0) return;
    if (config_.local_rope_theta > 0) {
      Float("rope.freq_base_swa", config_.local_rope_theta);
    }
    Int("attention.sliding_window", config_.sliding_window);
    std::vector<int64_t> local;
    for (const bool layer : config_.local_layers) local.push_back(layer);
    writer_.AddIntArray(
        absl::StrCat(config_.architecture, ".attention.sliding_window_pattern"),
        GgufValueType::kBool,
        local);
  }

  void AddTokenizer() {
    writer_.AddString("tokenizer.ggml.model", tokenizer_.kind);
    writer_.AddString("tokenizer.ggml.pre", tokenizer_.pre);
    writer_.AddStringArray("tokenizer.ggml.tokens", tokenizer_.tokens);
    writer_.AddIntArray(
        "tokenizer.ggml.token_type",
        GgufValueType::kInt32,
        std::vector<int64_t>(tokenizer_.types.begin(), tokenizer_.types.end()));
    writer_.AddStringArray("tokenizer.ggml.merges", tokenizer_.merges);
    writer_.AddInt("tokenizer.ggml.bos_token_id",
                   GgufValueType::kUint32,
                   tokenizer_.bos_id.value());
    writer_.AddInt("tokenizer.ggml.eos_token_id",
                   GgufValueType::kUint32,
                   tokenizer_.eos_id.value());
    writer_.AddBool("tokenizer.ggml.add_bos_token", tokenizer_.add_bos);
  }

  std::string Bytes(const std::string& name, const FileTensor** tensor) {
    *tensor = folder_.tensor_table().Find(name);
    if (*tensor == nullptr) return "";
    return std::string((*tensor)->data.begin(), (*tensor)->data.end());
  }

  void Matrix(const std::string& from, const std::string& to) {
    const FileTensor* tensor;
    const std::string bytes = Bytes(from, &tensor);
    if (tensor == nullptr) return;
    writer_.AddTensor(to, tensor->type, tensor->shape, bytes);
  }

  // Rows of query or key heads.
  void Heads(const std::string& from, const std::string& to) {
    const FileTensor* tensor;
    const std::string bytes = Bytes(from, &tensor);
    if (tensor == nullptr) return;
    const auto rows = static_cast<size_t>(tensor->shape[0]);
    const size_t row_bytes = bytes.size() / rows;
    const auto dim = static_cast<size_t>(config_.head_dim);
    std::string ordered = bytes;
    for (size_t row = 0; to_.paired_rows && row < rows; ++row) {
      const size_t i = row % dim;
      const size_t place = row - i + (i < dim / 2 ? 2 * i : 2 * i - dim + 1);
      ordered.replace(
          place * row_bytes, row_bytes, bytes, row * row_bytes, row_bytes);
    }
    writer_.AddTensor(to, tensor->type, tensor->shape, ordered);
  }

  // In float32, as the converter writes all vectors.
  void Vector(const std::string& from, const std::string& to, float add) {
    if (from.empty()) return;
    const FileTensor* const tensor = folder_.tensor_table().Find(from);
    ASSERT_NE(tensor, nullptr) << from;
    std::vector<float> values(static_cast<size_t>(tensor->num_elements()));
    ASSERT_TRUE(ExpandToFloat(*tensor, absl::MakeSpan(values)).ok());
    for (float& value : values) value += add;
    writer_.AddTensor(to, GgmlType::kF32, tensor->shape, PackFloats(values));
  }

  void AddLayer(int layer) {
    const auto from = [&](const std::string& part) {
      return part.empty() ? part : from_.Layer(layer, part);
    };
    const auto to = [&](const std::string& part) {
      return to_.Layer(layer, part);
    };
    const float one = from_.norm_offset;
    Vector(from(from_.attention_norm), to(to_.attention_norm), one);
    Heads(from(from_.query), to(to_.query));
    Heads(from(from_.key), to(to_.key));
    Matrix(from(from_.value), to(to_.value));
    Vector(from(from_.query_bias), to(to_.query_bias), 0);
    Vector(from(from_.key_bias), to(to_.key_bias), 0);
    Vector(from(from_.value_bias), to(to_.value_bias), 0);
    Vector(from(from_.query_norm), to(to_.query_norm), one);
    Vector(from(from_.key_norm), to(to_.key_norm), one);
    Matrix(from(from_.attention_output), to(to_.attention_output));
    Vector(from(from_.attention_post_norm), to(to_.attention_post_norm), one);
    Vector(from(from_.ffn_norm), to(to_.ffn_norm), one);
    Matrix(from(from_.ffn_gate), to(to_.ffn_gate));
    Matrix(from(from_.ffn_up), to(to_.ffn_up));
    Matrix(from(from_.ffn_down), to(to_.ffn_down));
    Vector(from(from_.ffn_post_norm), to(to_.ffn_post_norm), one);
  }

  void AddTensors() {
    Matrix(from_.embedding, to_.embedding);
    for (int i = 0; i < config_.num_layers; ++i) AddLayer(i);
    Vector(from_.final_norm, to_.final_norm, from_.norm_offset);
    if (!config_.tied_head) Matrix(from_.head, to_.head);
    const std::vector<float> factors = RopeFactors(config_);
    if (factors.empty()) return;
    writer_.AddTensor(to_.rope_factors,
                      GgmlType::kF32,
                      {config_.head_dim / 2},
                      PackFloats(factors));
  }

  const ModelFiles& folder_;
  const TokenizerModel tokenizer_;
  ModelConfig config_;
  const TensorNames from_;
  TensorNames to_;
  GgufWriter writer_;
};

}  // namespace

std::string GgufCopy(const ModelFiles& folder) {
  auto tokenizer = folder.ReadTokenizer();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return "";
  return Copier(folder, *std::move(tokenizer)).Build();
}

}  // namespace specwire
