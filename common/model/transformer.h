// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/config.h"
#include "common/model/ops.h"
#include "common/model/weights.h"

namespace specwire {

// The forward pass of llama and its kin, written once for every Ops: what the
// configuration does not ask for is left out.
//
// Thread safety: one thread.
class Transformer {
 public:
  // Reads and prepares all weights, and appends to `digest` what decides their
  // products.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      const ModelConfig& config,
      const ModelWeights& weights,
      std::unique_ptr<Ops> ops,
      Sha256* digest);

  // Computes a pass: writes its rows' keys and values to the cache, sets `best`
  // to the arg-max of its best_rows' logits (-1: none is a number) and returns
  // the logits of its logit_rows, [logit_rows, H], valid until the next call. H
  // is the head's size.
  // REQUIRES: best.size() == best_rows.size(); 1 to Engine::kMaxRows rows;
  // tokens, positions and blocks are in range; earlier positions of each
  // sequence are in the cache.
  absl::Span<const float> Forward(const Pass& pass, absl::Span<int32_t> best);

  Ops& ops() { return *ops_; }

  // Layers computed so far, of all passes. Any thread.
  int64_t layers_computed() const { return layers_computed_; }
  // See Engine. Any thread.
  int64_t kv_rows_projected() const { return kv_rows_projected_; }

 private:
  struct Layer {
    // Tensors are undefined where the model has none.
    at::Tensor attention_norm;  // [D]
    std::unique_ptr<LinearWeight> qkv;
    at::Tensor qkv_bias;    // [(Hq + 2 Hkv) d]
    at::Tensor query_norm;  // [d]
    at::Tensor key_norm;    // [d]
    std::unique_ptr<LinearWeight> attention_output;
    at::Tensor attention_post_norm;  // [D]
    at::Tensor ffn_norm;             // [D]
    std::unique_ptr<LinearWeight> gate_up;
    std::unique_ptr<LinearWeight> ffn_down;
    at::Tensor ffn_post_norm;  // [D]
  };

  Transformer(const ModelConfig& config, std::unique_ptr<Ops> ops);

  absl::Status LoadWeights(const ModelWeights& weights, Sha256* digest);
  absl::Status LoadLayers(const ModelWeights& weights, Sha256* digest);
  void Embed(const Pass& pass);
  // Queries, keys and values of the hidden state, ready to be rotated.
  void Project(const Layer& layer, int rows);
  // Where an operation adds to the hidden state, or, for a model with
  // `post_norms`, to zeros.
  const at::Tensor& Branch(int rows);
  // Adds the branch to the hidden state if it is apart from it.
  void AddBranch(const at::Tensor& norm, int rows);
  // Packs the hidden states of `rows` to the front of selected_.
  void SelectRows(absl::Span<const int> rows);

  const ModelConfig config_;
  const std::unique_ptr<Ops> ops_;
  std::unique_ptr<LinearWeight> embedding_;
  std::vector<Layer> layers_;
  at::Tensor final_norm_;  // [D]
  // Null if the embedding serves as the head.
  std::unique_ptr<LinearWeight> head_;
  std::atomic<int64_t> layers_computed_{0};
  std::atomic<int64_t> kv_rows_projected_{0};

  // Activations, [kMaxRows, columns] f32.
  at::Tensor hidden_;     // D
  at::Tensor branch_;     // D; undefined without post_norms
  at::Tensor qkv_;        // (Hq + 2 Hkv) d
  at::Tensor attention_;  // Hq d
  at::Tensor gate_up_;    // 2 F
  at::Tensor selected_;   // D
  at::Tensor logits_;     // H
};

}  // namespace specwire
