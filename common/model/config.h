// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/sha256.h"

namespace specwire {

// What the feed-forward gate goes through: silu(g) = g / (1 + exp(-g)), or the
// form of gelu with tanh.
enum class Activation { kSilu, kGeluTanh };

// How the rotary frequencies were changed for contexts longer than those of the
// training. Names are those of config.json.
struct RopeScaling {
  enum class Kind {
    kNone,
    // All are divided by `factor`.
    kLinear,
    // Those of long waves are divided by `factor`, those of short waves stay,
    // and between they go over smoothly: Llama 3.1's.
    kLlama3,
  };
  Kind kind = Kind::kNone;
  float factor = 1;
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  int original_max_position_embeddings = 0;
};

// The shape of a llama-like model: all that the forward pass, written once, has
// to know of a family. Names are those of config.json.
struct ModelConfig {
  // "llama", "mistral", "qwen2", "qwen3" or "gemma3".
  std::string architecture;
  // Layers in the file, and those of them, from the first, that are computed.
  int num_layers_in_file = 0;
  int num_layers = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float rms_norm_eps = 0;
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  // Longest sequence that the model was made for.
  int max_position_embeddings = 0;
  // Number of the tokenizer's tokens; the file's matrices may have more rows.
  int vocab_size = 0;
  // Rows of the head: vocab_size, or fewer if it is trimmed.
  int head_size = 0;
  // Ids that end a sequence, ascending.
  std::vector<int32_t> eos_ids;

  // What query-key products are multiplied by; usually 1 / sqrt(head_dim).
  float attention_scale = 0;
  // Whether queries, keys and values have a bias added (Qwen2).
  bool qkv_bias = false;
  // Whether each query and key head goes through an RMS norm before it is
  // rotated (Qwen3, Gemma 3).
  bool qk_norm = false;
  // Whether what attention and feed-forward add to the hidden state goes
  // through an RMS norm first (Gemma 3).
  bool post_norms = false;
  Activation activation = Activation::kSilu;
  // What embeddings are multiplied by.
  float embedding_scale = 1;
  // Positions that a row of a local layer sees, its own included; 0: no layer
  // is local.
  int sliding_window = 0;
  // Which layers of the file are local; empty if none is.
  std::vector<bool> local_layers;
  // The rope_theta of local layers, to which no scaling applies; 0: theirs is
  // that of all others, scaling included.
  float local_rope_theta = 0;
  // Whether the embedding serves as the head even where the file has a head;
  // else it serves where the file has none.
  bool tied_head = false;

  // Columns of the query projection and of the key (or value) projection.
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  // Keys and values of one position in all computed layers, as numbers.
  int64_t kv_values_per_token() const {
    return int64_t{2} * num_layers * kv_size();
  }
  bool is_local(int layer) const {
    return !local_layers.empty() && local_layers[static_cast<size_t>(layer)];
  }
  // Positions that a row of the layer sees; 0: all up to its own.
  int window(int layer) const { return is_local(layer) ? sliding_window : 0; }

  // Appends all of it that decides the model's tokens.
  void AddTo(Sha256* digest) const;
};

// Bounds on what a file may claim: far above any model that fits on one
// machine, low enough that no product of two of them overflows.
struct ModelLimits {
  static constexpr int kMaxLayers = 512;
  static constexpr int kMinWidth = 8;
  static constexpr int kMaxHidden = 1 << 16;
  static constexpr int kMaxIntermediate = 1 << 18;
  static constexpr int kMaxHeads = 512;
  static constexpr int kMaxHeadDim = 512;
  static constexpr int kMaxContext = 1 << 20;
  static constexpr int kMaxVocabulary = 1 << 20;
};

// Whether sizes, each in its own range already, go together. `error` makes the
// reader's error of a field, named as in config.json, and what is wrong with
// it.
absl::Status CheckSizes(
    const ModelConfig& config,
    absl::FunctionRef<absl::Status(absl::string_view field,
                                   absl::string_view problem)> error);

// Sets num_layers to `num_layers`, or to all if that is 0. INVALID_ARGUMENT
// naming --draft_layers if there are not so many in the file at `path`.
absl::Status TakeLayers(absl::string_view path,
                        int num_layers,
                        ModelConfig* config);

// What each rotary frequency is divided by, head_dim / 2 numbers; empty for
// RopeScaling::Kind::kNone.
std::vector<float> RopeFactors(const ModelConfig& config);

}  // namespace specwire
