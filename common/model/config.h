// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/model/gguf.h"

namespace specwire {

// The shape of a llama-family model. Names are those of config.json.
struct ModelConfig {
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
  float rope_theta = 0;
  // Longest sequence the model was made for.
  int max_position_embeddings = 0;
  // Number of the tokenizer's tokens; the file's matrices may have more rows.
  int vocab_size = 0;
  // Rows of the head: vocab_size, or fewer if it is trimmed.
  int head_size = 0;
  // Ids that end a sequence, ascending.
  std::vector<int32_t> eos_ids;

  // Columns of the query projection and of the key (or value) projection.
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  // Keys and values of one position in all computed layers, as numbers.
  int64_t kv_values_per_token() const {
    return int64_t{2} * num_layers * kv_size();
  }

  // Appends all of it that decides the model's tokens.
  void AddTo(Sha256* digest) const;
};

// Reads and checks the configuration of a GGUF file. Every number has a range,
// sizes divide as the model needs them to, and a feature that the forward pass
// lacks (experts, scaled rotary positions, a sliding window) is an error, since
// leaving it out would give wrong text. `vocab_size` is the tokenizer's, and
// that of the head; `num_layers` 0 means all.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file,
                                            int vocab_size,
                                            int num_layers);

}  // namespace specwire
