// SPDX-License-Identifier: Apache-2.0
#include "common/model/tensor_names.h"

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

TensorNames GgufNames(const ModelConfig& config) {
  TensorNames names = {.embedding = "token_embd.weight",
                       .final_norm = "output_norm.weight",
                       .head = "output.weight",
                       .rope_factors = "rope_freqs.weight",
                       .layer_prefix = "blk.",
                       .attention_norm = "attn_norm.weight",
                       .query = "attn_q.weight",
                       .key = "attn_k.weight",
                       .value = "attn_v.weight",
                       .attention_output = "attn_output.weight",
                       .ffn_norm = "ffn_norm.weight",
                       .ffn_gate = "ffn_gate.weight",
                       .ffn_up = "ffn_up.weight",
                       .ffn_down = "ffn_down.weight"};
  if (config.qkv_bias) {
    names.query_bias = "attn_q.bias";
    names.key_bias = "attn_k.bias";
    names.value_bias = "attn_v.bias";
  }
  if (config.qk_norm) {
    names.query_norm = "attn_q_norm.weight";
    names.key_norm = "attn_k_norm.weight";
  }
  if (config.post_norms) {
    names.attention_post_norm = "post_attention_norm.weight";
    names.ffn_post_norm = "post_ffw_norm.weight";
  }
  // The converter reorders the rows of this architecture alone.
  names.paired_rows = config.architecture == "llama";
  return names;
}

TensorNames HuggingFaceNames(const ModelConfig& config) {
  TensorNames names = {.embedding = "model.embed_tokens.weight",
                       .final_norm = "model.norm.weight",
                       .head = "lm_head.weight",
                       .layer_prefix = "model.layers.",
                       .attention_norm = "input_layernorm.weight",
                       .query = "self_attn.q_proj.weight",
                       .key = "self_attn.k_proj.weight",
                       .value = "self_attn.v_proj.weight",
                       .attention_output = "self_attn.o_proj.weight",
                       .ffn_norm = "post_attention_layernorm.weight",
                       .ffn_gate = "mlp.gate_proj.weight",
                       .ffn_up = "mlp.up_proj.weight",
                       .ffn_down = "mlp.down_proj.weight",
                       // Files of old releases have it.
                       .needless = "self_attn.rotary_emb.inv_freq"};
  if (config.qkv_bias) {
    names.query_bias = "self_attn.q_proj.bias";
    names.key_bias = "self_attn.k_proj.bias";
    names.value_bias = "self_attn.v_proj.bias";
  }
  if (config.qk_norm) {
    names.query_norm = "self_attn.q_norm.weight";
    names.key_norm = "self_attn.k_norm.weight";
  }
  if (config.post_norms) {
    // The norm behind attention has the name that others give to the one
    // before the feed-forward.
    names.attention_post_norm = "post_attention_layernorm.weight";
    names.ffn_norm = "pre_feedforward_layernorm.weight";
    names.ffn_post_norm = "post_feedforward_layernorm.weight";
  }
  // Gemma's norms multiply by 1 + weight; its GGUF files hold the sum.
  if (config.architecture == "gemma3") names.norm_offset = 1;
  return names;
}

}  // namespace

std::string TensorNames::Layer(int layer, const std::string& part) const {
  return absl::StrCat(layer_prefix, layer, ".", part);
}

TensorNames NamesFor(TensorNaming naming, const ModelConfig& config) {
  return naming == TensorNaming::kGguf ? GgufNames(config)
                                       : HuggingFaceNames(config);
}

}  // namespace specwire
