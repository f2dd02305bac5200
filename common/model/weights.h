// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/model/config.h"
#include "common/model/gguf.h"

namespace specwire {

// One layer's weights in float32, [out, in], in the order of the rotary form
// that pairs value i of a head with value i + head_dim / 2. D is the width, F
// the feed-forward width, Hq and Hkv the numbers of heads, d the head size.
struct LayerWeights {
  at::Tensor attention_norm;    // [D]
  at::Tensor qkv;               // [(Hq + 2 Hkv) d, D]: query, key, value rows
  at::Tensor attention_output;  // [D, Hq d]
  at::Tensor ffn_norm;          // [D]
  at::Tensor gate_up;           // [2 F, D]: gate rows, then up rows
  at::Tensor ffn_down;          // [D, F]
};

// A GGUF file's tensors, expanded to float32 one layer at a time, so that an
// engine with weights of its own kind never holds the whole model twice.
//
// Thread safety: one thread.
// Lifetime: the file must outlive it; what it returns is independent of both.
class GgufWeights {
 public:
  // Checks that the file has every tensor that the configuration needs, with
  // the right shape, and none whose meaning is unknown (a bias left out would
  // give wrong text).
  static absl::StatusOr<GgufWeights> Create(const GgufFile* file,
                                            const ModelConfig& config);

  // [V, D]. Rows beyond the tokenizer's vocabulary are left out here and in
  // Head.
  absl::StatusOr<at::Tensor> Embedding() const;
  // REQUIRES: 0 <= layer < num_layers.
  absl::StatusOr<LayerWeights> Layer(int layer) const;
  // [D].
  absl::StatusOr<at::Tensor> FinalNorm() const;
  // [V, D]; nullopt if the embedding serves as the head.
  absl::StatusOr<std::optional<at::Tensor>> Head() const;
  // What each rotary frequency is divided by, head_dim / 2 numbers; empty
  // where the file has none.
  absl::StatusOr<std::vector<float>> RopeFactors() const;

  // Appends name, type, shape and bytes of all tensors in the file, by name.
  void AddTo(Sha256* digest) const;

 private:
  GgufWeights(const GgufFile* file, const ModelConfig& config)
      : file_(file), config_(config) {}

  absl::StatusOr<const GgufTensor*> FindVocabularyMatrix(
      absl::string_view name) const;
  absl::Status CheckLayerTensors() const;
  absl::Status CheckNoOthers() const;
  absl::StatusOr<at::Tensor> Vector(absl::string_view name) const;
  absl::StatusOr<at::Tensor> VocabularyMatrix(absl::string_view name) const;

  const GgufFile* file_;
  ModelConfig config_;
};

}  // namespace specwire
