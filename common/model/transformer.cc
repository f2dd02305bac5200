// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/engine.h"

namespace specwire {

Transformer::Transformer(const ModelConfig& config, std::unique_ptr<Ops> ops)
    : config_(config), ops_(std::move(ops)) {
  const auto activations = [](int64_t columns) {
    return at::zeros({Engine::kMaxRows, columns}, at::kFloat);
  };
  hidden_ = activations(config.hidden_size);
  qkv_ = activations(config.q_size() + 2 * config.kv_size());
  attention_ = activations(config.q_size());
  gate_up_ = activations(int64_t{2} * config.intermediate_size);
  selected_ = activations(config.hidden_size);
  // Not zeroed: most passes need a few rows of what is by far the largest.
  logits_ = at::empty({Engine::kMaxRows, config.vocab_size}, at::kFloat);
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const ModelConfig& config,
    const GgufWeights& weights,
    std::unique_ptr<Ops> ops) {
  std::unique_ptr<Transformer> transformer(
      new Transformer(config, std::move(ops)));
  SPECWIRE_RETURN_IF_ERROR(transformer->LoadWeights(weights));
  return transformer;
}

absl::Status Transformer::LoadWeights(const GgufWeights& weights) {
  SPECWIRE_ASSIGN_OR_RETURN(at::Tensor embedding, weights.Embedding());
  embedding_ = ops_->PrepareLinear(std::move(embedding));
  for (int i = 0; i < config_.num_layers; ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(LayerWeights layer, weights.Layer(i));
    layers_.push_back(
        {.attention_norm = std::move(layer.attention_norm),
         .qkv = ops_->PrepareLinear(std::move(layer.qkv)),
         .attention_output =
             ops_->PrepareLinear(std::move(layer.attention_output)),
         .ffn_norm = std::move(layer.ffn_norm),
         .gate_up = ops_->PrepareLinear(std::move(layer.gate_up)),
         .ffn_down = ops_->PrepareLinear(std::move(layer.ffn_down))});
  }
  SPECWIRE_ASSIGN_OR_RETURN(final_norm_, weights.FinalNorm());
  SPECWIRE_ASSIGN_OR_RETURN(std::optional<at::Tensor> head, weights.Head());
  if (head.has_value()) {
    head_ = ops_->PrepareLinear(*std::move(head));
  }
  return absl::OkStatus();
}

absl::Span<const float> Transformer::Forward(const Pass& pass) {
  const int rows = pass.num_rows();
  // Hidden state of each row: its token's embedding.  [rows, D]
  ops_->Embed(*embedding_, pass.tokens, hidden_);
  for (int i = 0; i < config_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    // Queries, keys and values of the normed state.  [rows, (Hq + 2 Hkv) d]
    ops_->NormLinear(hidden_, layer.attention_norm, *layer.qkv, rows, qkv_);
    // Positions enter as rotations; keys and values join the cache.
    ops_->RotateAndStore(pass, i, qkv_);
    // Causal attention over each row's own sequence.  [rows, Hq d]
    ops_->Attend(pass, i, qkv_, attention_);
    // Its output is added to the state.  [rows, D]
    ops_->LinearAdd(attention_, *layer.attention_output, rows, hidden_);
    // Feed-forward: gate and up projections of the normed state.  [rows, 2 F]
    ops_->NormLinear(hidden_, layer.ffn_norm, *layer.gate_up, rows, gate_up_);
    // silu(gate) * up is projected down and added to the state.  [rows, D]
    ops_->GatedLinearAdd(gate_up_, *layer.ffn_down, rows, hidden_);
  }
  if (pass.logit_rows.empty()) {
    return {};
  }
  // Logits of the wanted rows: the head over the final norm.  [wanted, V]
  const int wanted = static_cast<int>(pass.logit_rows.size());
  SelectRows(pass.logit_rows);
  const LinearWeight& head = head_ != nullptr ? *head_ : *embedding_;
  ops_->NormLinear(selected_, final_norm_, head, wanted, logits_);
  return absl::MakeConstSpan(
      logits_.data_ptr<float>(),
      static_cast<size_t>(wanted) * static_cast<size_t>(config_.vocab_size));
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
