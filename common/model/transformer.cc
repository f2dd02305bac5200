// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/model/attention_weights.h"
#include "common/model/engine.h"
#include "common/model/model_digest.h"

namespace specwire {
namespace {

// How often loading a large model says how far it is.
constexpr absl::Duration kProgressPeriod = absl::Seconds(1);

// Appends a norm or a bias to the digest and makes a tensor of it, undefined if
// the model has none.  [n] f32
at::Tensor LoadVector(const std::vector<float>& vector, Sha256* digest) {
  AddVector(vector, digest);
  if (vector.empty()) return at::Tensor();
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(vector.size())}, at::kFloat);
  std::copy(vector.begin(), vector.end(), tensor.data_ptr<float>());
  return tensor;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, std::unique_ptr<Ops> ops)
    : config_(config), ops_(std::move(ops)) {
  const auto activations = [](int64_t columns) {
    return at::zeros({Engine::kMaxRows, columns}, at::kFloat);
  };
  hidden_ = activations(config.hidden_size);
  qkv_ = activations(config.q_size() + 2 * config.kv_size());
  if (config.post_norms) branch_ = activations(config.hidden_size);
  attention_ = activations(config.q_size());
  gate_up_ = activations(int64_t{2} * config.intermediate_size);
  selected_ = activations(config.hidden_size);
  // Not zeroed: most passes need a few rows of what is by far the largest.
  logits_ = at::empty({Engine::kMaxRows, config.head_size}, at::kFloat);
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const ModelConfig& config,
    const ModelWeights& weights,
    std::unique_ptr<Ops> ops,
    Sha256* digest) {
  std::unique_ptr<Transformer> transformer(
      new Transformer(config, std::move(ops)));
  SPECWIRE_RETURN_IF_ERROR(transformer->LoadWeights(weights, digest));
  return transformer;
}

// The digest has the parts in this order; ModelDigest has the same one.
absl::Status Transformer::LoadWeights(const ModelWeights& weights,
                                      Sha256* digest) {
  SPECWIRE_ASSIGN_OR_RETURN(const WeightMatrix embedding, weights.Embedding());
  SPECWIRE_ASSIGN_OR_RETURN(embedding_, ops_->PrepareLinear(embedding, digest));
  SPECWIRE_RETURN_IF_ERROR(LoadLayers(weights, digest));
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<float> final_norm,
                            weights.FinalNorm());
  final_norm_ = LoadVector(final_norm, digest);
  SPECWIRE_ASSIGN_OR_RETURN(const std::optional<WeightMatrix> head,
                            weights.Head());
  if (head.has_value()) {
    SPECWIRE_ASSIGN_OR_RETURN(head_, ops_->PrepareLinear(*head, digest));
  }
  return absl::OkStatus();
}

absl::Status Transformer::LoadLayers(const ModelWeights& weights,
                                     Sha256* digest) {
  absl::Time last_told = absl::Now();
  for (int i = 0; i < config_.num_layers; ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(const LayerWeights from, weights.Layer(i));
    Layer layer;
    layer.attention_norm = LoadVector(from.attention_norm, digest);
    SPECWIRE_ASSIGN_OR_RETURN(layer.qkv, ops_->PrepareLinear(from.qkv, digest));
    layer.qkv_bias = LoadVector(from.qkv_bias, digest);
    layer.query_norm = LoadVector(from.query_norm, digest);
    layer.key_norm = LoadVector(from.key_norm, digest);
    SPECWIRE_ASSIGN_OR_RETURN(
        layer.attention_output,
        ops_->PrepareLinear(from.attention_output, digest));
    layer.attention_post_norm = LoadVector(from.attention_post_norm, digest);
    layer.ffn_norm = LoadVector(from.ffn_norm, digest);
    SPECWIRE_ASSIGN_OR_RETURN(layer.gate_up,
                              ops_->PrepareLinear(from.gate_up, digest));
    SPECWIRE_ASSIGN_OR_RETURN(layer.ffn_down,
                              ops_->PrepareLinear(from.ffn_down, digest));
    layer.ffn_post_norm = LoadVector(from.ffn_post_norm, digest);
    layers_.push_back(std::move(layer));
    if (absl::Now() - last_told > kProgressPeriod) {
      last_told = absl::Now();
      SPECWIRE_LOG(
          Info, "weights: ", i + 1, " of ", config_.num_layers, " layers");
    }
  }
  return absl::OkStatus();
}

void Transformer::Embed(const Pass& pass) {
  ops_->Embed(*embedding_, pass.tokens, hidden_);
  if (config_.embedding_scale == 1) return;
  float* const states = hidden_.data_ptr<float>();
  const int64_t count = pass.num_rows() * hidden_.stride(0);
  for (int64_t i = 0; i < count; ++i) states[i] *= config_.embedding_scale;
}

void Transformer::Project(const Layer& layer, int rows) {
  ops_->NormLinear(hidden_, layer.attention_norm, *layer.qkv, rows, qkv_);
  if (layer.qkv_bias.defined()) {
    const float* const bias = layer.qkv_bias.data_ptr<float>();
    const int64_t columns = qkv_.size(1);
    for (int64_t row = 0; row < rows; ++row) {
      float* const to = qkv_.data_ptr<float>() + row * qkv_.stride(0);
      for (int64_t i = 0; i < columns; ++i) to[i] += bias[i];
    }
  }
  if (layer.query_norm.defined()) {
    ops_->NormHeads(qkv_, 0, config_.num_heads, layer.query_norm, rows);
    ops_->NormHeads(
        qkv_, config_.q_size(), config_.num_kv_heads, layer.key_norm, rows);
  }
}

const at::Tensor& Transformer::Branch(int rows) {
  if (!config_.post_norms) return hidden_;
  std::fill_n(branch_.data_ptr<float>(), rows * branch_.stride(0), 0.0F);
  return branch_;
}

void Transformer::AddBranch(const at::Tensor& norm, int rows) {
  if (config_.post_norms) ops_->NormAdd(branch_, norm, rows, hidden_);
}

absl::Span<const float> Transformer::Forward(const Pass& pass,
                                             absl::Span<int32_t> best) {
  const int rows = pass.num_rows();
  // Hidden state of each row: its token's embedding.  [rows, D]
  Embed(pass);
  for (int i = 0; i < config_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    // Queries, keys and values of the normed state.  [rows, (Hq + 2 Hkv) d]
    Project(layer, rows);
    // Positions enter as rotations; keys and values join the cache.
    ops_->RotateAndStore(pass, i, qkv_);
    kv_rows_projected_ += rows;
    for (const PassRun& run : pass.runs) {
      if (run.attention != nullptr && run.attention->layer == i) {
        ReadAttention(config_, *ops_, run, qkv_);
      }
    }
    // Causal attention over each row's own sequence.  [rows, Hq d]
    ops_->Attend(pass, i, qkv_, attention_);
    // Its output is added to the state.  [rows, D]
    ops_->LinearAdd(attention_, *layer.attention_output, rows, Branch(rows));
    AddBranch(layer.attention_post_norm, rows);
    // Feed-forward: gate and up projections of the normed state.  [rows, 2 F]
    ops_->NormLinear(hidden_, layer.ffn_norm, *layer.gate_up, rows, gate_up_);
    // activation(gate) * up is projected down and added to the state.  [rows,
    // D]
    ops_->GatedLinearAdd(gate_up_, *layer.ffn_down, rows, Branch(rows));
    AddBranch(layer.ffn_post_norm, rows);
    ++layers_computed_;
  }
  // The head over the final norm, for the wanted rows.  [wanted, H]
  const LinearWeight& head = head_ != nullptr ? *head_ : *embedding_;
  if (!pass.best_rows.empty()) {
    SelectRows(pass.best_rows);
    ops_->NormLinearArgMax(selected_, final_norm_, head, logits_, best);
  }
  if (pass.logit_rows.empty()) {
    return {};
  }
  const int wanted = static_cast<int>(pass.logit_rows.size());
  SelectRows(pass.logit_rows);
  ops_->NormLinear(selected_, final_norm_, head, wanted, logits_);
  return absl::MakeConstSpan(
      logits_.data_ptr<float>(),
      static_cast<size_t>(wanted) * static_cast<size_t>(config_.head_size));
}

void Transformer::SelectRows(absl::Span<const int> rows) {
  const size_t width = static_cast<size_t>(config_.hidden_size);
  const float* const from = hidden_.data_ptr<float>();
  float* to = selected_.data_ptr<float>();
  for (const int row : rows) {
    std::copy_n(from + static_cast<size_t>(row) * width, width, to);
    to += width;
  }
}

}  // namespace specwire
