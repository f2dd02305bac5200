// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/model/config.h"

namespace specwire {

// Who named a file's tensors: llama.cpp's converter, or Hugging Face
// transformers.
enum class TensorNaming { kGguf, kHuggingFace };

// What a file calls the tensors that the forward pass needs, and how it keeps
// them. A layer's are `layer_prefix`, the layer's number, "." and the part;
// those that the model has not are empty.
struct TensorNames {
  std::string embedding = {};
  std::string final_norm = {};
  std::string head = {};
  // What rotary frequencies are divided by, where the file has it.
  std::string rope_factors = {};

  std::string layer_prefix = {};
  std::string attention_norm = {};
  std::string query = {};
  std::string key = {};
  std::string value = {};
  std::string query_bias = {};
  std::string key_bias = {};
  std::string value_bias = {};
  std::string query_norm = {};
  std::string key_norm = {};
  std::string attention_output = {};
  std::string attention_post_norm = {};
  std::string ffn_norm = {};
  std::string ffn_gate = {};
  std::string ffn_up = {};
  std::string ffn_down = {};
  std::string ffn_post_norm = {};
  // A part that says nothing which the configuration does not say.
  std::string needless = {};

  // Whether row i of the first half of a query or key head and row i of the
  // second half stand next to each other, for a rotary form that pairs
  // neighbours.
  bool paired_rows = false;
  // What is added to the weights of norms.
  float norm_offset = 0;

  std::string Layer(int layer, const std::string& part) const;
};

TensorNames NamesFor(TensorNaming naming, const ModelConfig& config);

}  // namespace specwire
