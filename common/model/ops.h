// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/model/engine.h"
#include "common/model/model_digest.h"
#include "common/model/weights.h"

namespace specwire {

// One sequence's rows in a pass.
struct PassRun {
  int first_row = 0;
  int num_rows = 0;
  // Position of the first row in its sequence.
  int start = 0;
  // The sequence's blocks; they hold positions [0, start + num_rows).
  absl::Span<const int32_t> blocks;
  // See ForwardRun.
  AttentionProbe* attention = nullptr;
};

// The rows of one forward pass, run by run.
struct Pass {
  // One token for each row.
  std::vector<int32_t> tokens;
  std::vector<PassRun> runs;
  // Rows whose logits are wanted, ascending.
  std::vector<int> logit_rows;
  // Rows of which only the arg-max of the logits is wanted, ascending.
  std::vector<int> best_rows;

  int num_rows() const { return static_cast<int>(tokens.size()); }
};

// A weight matrix [out, in] in the form that an Ops computes with. Only the Ops
// that made it may use it.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
};

// The operations of which the forward pass consists. An implementation decides
// how weights, activations between two roundings, and the cache are stored.
// Operations are as large as they are so that one with 8-bit activations can
// quantise a row right after its norm or gate.
//
// Activations are float32 tensors [Engine::kMaxRows, columns] with contiguous
// rows, of which the first `num_rows` count; an operation may overwrite the
// rest of its output. A row's result depends on that row (and its sequence's
// cache) alone, bit for bit: not on the other rows or their number, its own
// place among them, or the number of threads.
//
// Thread safety: one thread, the engine's.
// Errors: an operation throws what libtorch throws.
class Ops {
 public:
  virtual ~Ops() = default;

  // What of the arithmetic a model digest covers.
  virtual EngineNumerics numerics() const = 0;

  // Reads a matrix [out, in], and appends to `digest` what products with it are
  // computed from. Errors are the matrix's.
  virtual absl::StatusOr<std::unique_ptr<LinearWeight>> PrepareLinear(
      const WeightMatrix& matrix, Sha256* digest) = 0;

  // Makes room for blocks numbered from 0. Memory that no row has been written
  // to costs little. REQUIRES: called once, before any pass.
  virtual void AllocateKvCache(int num_blocks) = 0;
  // Overwrites the block's positions from `slot` on with NaN, in all layers.
  virtual void PoisonKvBlock(int32_t block, int slot) = 0;

  // x = rows `tokens` of the table.
  virtual void Embed(const LinearWeight& table,
                     absl::Span<const int32_t> tokens,
                     const at::Tensor& x) = 0;

  // y = W (x / sqrt(mean(x^2) + eps) * norm); norm [in].
  virtual void NormLinear(const at::Tensor& x,
                          const at::Tensor& norm,
                          const LinearWeight& weight,
                          int num_rows,
                          const at::Tensor& y) = 0;

  // best[row] = the index of the largest of the products of NormLinear, the
  // lowest among equals, -1 if none is a number. For n rows, y has room for
  // what NormLinear writes; what it holds afterwards does not count.
  virtual void NormLinearArgMax(const at::Tensor& x,
                                const at::Tensor& norm,
                                const LinearWeight& weight,
                                const at::Tensor& y,
                                absl::Span<int32_t> best) = 0;

  // x = x / sqrt(mean(x^2) + eps) * norm for each of `heads` heads of a row,
  // which stand at `first`, `first` + d, ...; norm [d].
  virtual void NormHeads(const at::Tensor& x,
                         int64_t first,
                         int heads,
                         const at::Tensor& norm,
                         int num_rows) = 0;

  // residual += x / sqrt(mean(x^2) + eps) * norm; norm [in]. Overwrites x.
  virtual void NormAdd(const at::Tensor& x,
                       const at::Tensor& norm,
                       int num_rows,
                       const at::Tensor& residual) = 0;

  // Rotates the queries and keys in qkv, [., (Hq + 2 Hkv) d], by their
  // positions, and stores keys and values in the layer's cache. A pass comes
  // through the layers in order, from 0.
  virtual void RotateAndStore(const Pass& pass,
                              int layer,
                              const at::Tensor& qkv) = 0;

  // out, [., Hq d] = softmax(attention_scale q K^T) V over each row's own
  // sequence up to the row itself, in a local layer over the window's last
  // positions of it. Query head h uses KV head h Hkv / Hq.
  virtual void Attend(const Pass& pass,
                      int layer,
                      const at::Tensor& qkv,
                      const at::Tensor& out) = 0;

  // Copies what the layer's cache holds of a KV head's keys for the run's
  // positions up to its end, rotated, [start + num_rows, d].
  // REQUIRES: RotateAndStore has been called for the layer.
  virtual void ReadKeys(const PassRun& run,
                        int layer,
                        int kv_head,
                        absl::Span<float> keys) const = 0;

  // residual += W x.
  virtual void LinearAdd(const at::Tensor& x,
                         const LinearWeight& weight,
                         int num_rows,
                         const at::Tensor& residual) = 0;

  // residual += W (activation(g) * u), gate_up = [g, u].
  virtual void GatedLinearAdd(const at::Tensor& gate_up,
                              const LinearWeight& weight,
                              int num_rows,
                              const at::Tensor& residual) = 0;
};

}  // namespace specwire
