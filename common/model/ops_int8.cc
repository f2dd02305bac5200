// SPDX-License-Identifier: Apache-2.0
#include "common/model/ops_int8.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/round_up.h"
#include "common/model/engine.h"
#include "common/model/int8_attention.h"
#include "common/model/int8_linear.h"
#include "common/model/thread_pool.h"

namespace specwire {
namespace {

constexpr int64_t kMaxRows = Engine::kMaxRows;
// Rows that go through a piece of the weights before the next ones do: few
// enough to stay in a second-level cache together with the piece.
constexpr int kTileRows = 64;
// Outputs of the head whose arg-max is taken while they are in a cache.
constexpr int64_t kHeadBlocks = 16;

const Int8Linear& AsInt8(const LinearWeight& weight) {
  return static_cast<const Int8Linear&>(weight);
}

float* Floats(const at::Tensor& tensor) { return tensor.data_ptr<float>(); }

class Int8Ops final : public Ops {
 public:
  Int8Ops(const ModelConfig& config, const Int8Options& options);

  EngineNumerics numerics() const override { return Int8Numerics(); }

  absl::StatusOr<std::unique_ptr<LinearWeight>> PrepareLinear(
      const WeightMatrix& matrix, Sha256* digest) override;
  void AllocateKvCache(int num_blocks) override {
    attention_.AllocateKvCache(num_blocks);
  }
  void PoisonKvBlock(int32_t block, int slot) override {
    attention_.PoisonKvBlock(block, slot);
  }
  void Embed(const LinearWeight& table,
             absl::Span<const int32_t> tokens,
             const at::Tensor& x) override;
  void NormLinear(const at::Tensor& x,
                  const at::Tensor& norm,
                  const LinearWeight& weight,
                  int num_rows,
                  const at::Tensor& y) override;
  void NormLinearArgMax(const at::Tensor& x,
                        const at::Tensor& norm,
                        const LinearWeight& weight,
                        const at::Tensor& y,
                        absl::Span<int32_t> best) override;
  void NormHeads(const at::Tensor& x,
                 int64_t first,
                 int heads,
                 const at::Tensor& norm,
                 int num_rows) override;
  void NormAdd(const at::Tensor& x,
               const at::Tensor& norm,
               int num_rows,
               const at::Tensor& residual) override;
  void RotateAndStore(const Pass& pass,
                      int layer,
                      const at::Tensor& qkv) override {
    attention_.RotateAndStore(pass, layer, qkv);
  }
  void Attend(const Pass& pass,
              int layer,
              const at::Tensor& qkv,
              const at::Tensor& out) override {
    attention_.Attend(pass, layer, qkv, out);
  }
  void ReadKeys(const PassRun& run,
                int layer,
                int kv_head,
                absl::Span<float> keys) const override {
    attention_.ReadKeys(run, layer, kv_head, keys);
  }
  void LinearAdd(const at::Tensor& x,
                 const LinearWeight& weight,
                 int num_rows,
                 const at::Tensor& residual) override;
  void GatedLinearAdd(const at::Tensor& gate_up,
                      const LinearWeight& weight,
                      int num_rows,
                      const at::Tensor& residual) override;

 private:
  // y = W x or y += W x for the quantised rows.
  void Multiply(const PackedMatrix& matrix,
                int num_rows,
                bool add,
                const at::Tensor& y);
  void Normalise(const at::Tensor& x,
                 const at::Tensor& norm,
                 int num_rows,
                 int64_t groups);
  // The quantised rows, as rows of `groups` groups.
  QuantizedRows Quantized(int64_t groups) const {
    return {reinterpret_cast<QuantizedGroup*>(quantized_.data_ptr<uint8_t>()),
            groups};
  }

  const ModelConfig config_;
  const Kernels& kernels_;
  const std::shared_ptr<ThreadPool> threads_;
  WeightArena arena_;
  Int8Attention attention_;
  at::Tensor quantized_;         // u8, room for kMaxRows quantised rows
  std::vector<float> head_max_;  // [pieces of the head, rows]
};

Int8Ops::Int8Ops(const ModelConfig& config, const Int8Options& options)
    : config_(config),
      kernels_(*options.kernels),
      threads_(options.threads),
      attention_(config,
                 {.max_model_len = options.max_model_len,
                  .rope_factors = options.rope_factors,
                  .kernels = options.kernels,
                  .threads = threads_.get()}) {
  const int64_t widest =
      std::max({config.hidden_size, config.intermediate_size, config.q_size()});
  quantized_ = at::empty({kMaxRows * RoundUp(widest, kGroupSize) / kGroupSize *
                          static_cast<int64_t>(sizeof(QuantizedGroup))},
                         at::kByte);
}

absl::StatusOr<std::unique_ptr<LinearWeight>> Int8Ops::PrepareLinear(
    const WeightMatrix& matrix, Sha256* digest) {
  return Int8Linear::Create(matrix, &arena_, digest);
}

void Int8Ops::Multiply(const PackedMatrix& matrix,
                       int num_rows,
                       bool add,
                       const at::Tensor& y) {
  const int64_t blocks = (matrix.outputs + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t threads = threads_->num_threads();
  // Small enough that a thread which is held up holds nobody up for long, and
  // as many for each thread.
  const int64_t pieces =
      threads == 1
          ? 1
          : std::min(blocks,
                     RoundUp(std::clamp(blocks / 8, 2 * threads, 16 * threads),
                             threads));
  threads_->Run(static_cast<int>(pieces), [&](int piece, int) {
    LinearArgs args = {.matrix = matrix,
                       .x = Quantized(matrix.groups),
                       .rows = 0,
                       .y = Floats(y),
                       .y_stride = y.stride(0),
                       .add = add};
    QuantizedGroup* const all = args.x.rows;
    for (int row = 0; row < num_rows; row += kTileRows) {
      args.rows = std::min(num_rows - row, kTileRows);
      args.x.rows = all + row * matrix.groups;
      args.y = Floats(y) + row * y.stride(0);
      kernels_.linear(
          args, blocks * piece / pieces, blocks * (piece + 1) / pieces);
    }
  });
}

void Int8Ops::Embed(const LinearWeight& table,
                    absl::Span<const int32_t> tokens,
                    const at::Tensor& x) {
  const Int8Linear& matrix = AsInt8(table);
  for (size_t i = 0; i < tokens.size(); ++i) {
    matrix.ExpandOutput(
        tokens[i],
        absl::MakeSpan(Floats(x) + static_cast<int64_t>(i) * x.stride(0),
                       static_cast<size_t>(config_.hidden_size)));
  }
}

void Int8Ops::Normalise(const at::Tensor& x,
                        const at::Tensor& norm,
                        int num_rows,
                        int64_t groups) {
  const QuantizedRows rows = Quantized(groups);
  threads_->RunRows(num_rows, [&](int row) {
    kernels_.rms_norm_quantize(Floats(x) + row * x.stride(0),
                               Floats(norm),
                               norm.size(0),
                               config_.rms_norm_eps,
                               rows,
                               row);
  });
}

void Int8Ops::NormLinear(const at::Tensor& x,
                         const at::Tensor& norm,
                         const LinearWeight& weight,
                         int num_rows,
                         const at::Tensor& y) {
  const PackedMatrix& matrix = AsInt8(weight).packed();
  Normalise(x, norm, num_rows, matrix.groups);
  Multiply(matrix, num_rows, false, y);
}

void Int8Ops::NormLinearArgMax(const at::Tensor& x,
                               const at::Tensor& norm,
                               const LinearWeight& weight,
                               const at::Tensor& y,
                               absl::Span<int32_t> best) {
  const PackedMatrix& matrix = AsInt8(weight).packed();
  const int num_rows = static_cast<int>(best.size());
  const int64_t blocks = AsInt8(weight).num_blocks();
  const int64_t pieces = (blocks + kHeadBlocks - 1) / kHeadBlocks;
  Normalise(x, norm, num_rows, matrix.groups);
  // The largest logit of each row in each piece.
  head_max_.resize(static_cast<size_t>(pieces) * best.size());
  const LinearArgs args = {.matrix = matrix,
                           .x = Quantized(matrix.groups),
                           .rows = num_rows,
                           .y = Floats(y),
                           .y_stride = y.stride(0),
                           .add = false};
  const auto outputs_in = [&](int64_t piece) {
    const int64_t first = piece * kHeadBlocks * kBlockOutputs;
    return std::make_pair(
        first, std::min(kHeadBlocks * kBlockOutputs, matrix.outputs - first));
  };
  threads_->Run(static_cast<int>(pieces), [&](int piece, int) {
    const int64_t first_block = piece * kHeadBlocks;
    kernels_.linear(
        args, first_block, std::min(first_block + kHeadBlocks, blocks));
    const auto [first, count] = outputs_in(piece);
    for (int row = 0; row < num_rows; ++row) {
      head_max_[static_cast<size_t>(piece) * best.size() +
                static_cast<size_t>(row)] =
          kernels_.max(args.y + row * args.y_stride + first, count);
    }
  });
  for (size_t row = 0; row < best.size(); ++row) {
    float max = -std::numeric_limits<float>::infinity();
    for (size_t i = row; i < head_max_.size(); i += best.size()) {
      max = std::max(max, head_max_[i]);
    }
    // The first piece that has it; one of mere NaN has nothing.
    best[row] = -1;
    for (int64_t piece = 0; piece < pieces && best[row] < 0; ++piece) {
      if (head_max_[static_cast<size_t>(piece) * best.size() + row] != max) {
        continue;
      }
      const auto [first, count] = outputs_in(piece);
      const int64_t at = kernels_.arg_max(
          args.y + static_cast<int64_t>(row) * args.y_stride + first, count);
      if (at >= 0) best[row] = static_cast<int32_t>(first + at);
    }
  }
}

void Int8Ops::NormHeads(const at::Tensor& x,
                        int64_t first,
                        int heads,
                        const at::Tensor& norm,
                        int num_rows) {
  const int64_t dim = config_.head_dim;
  threads_->RunRows(num_rows, [&](int row) {
    float* at = Floats(x) + row * x.stride(0) + first;
    for (int head = 0; head < heads; ++head, at += dim) {
      kernels_.rms_norm(at, Floats(norm), dim, config_.rms_norm_eps, at);
    }
  });
}

void Int8Ops::NormAdd(const at::Tensor& x,
                      const at::Tensor& norm,
                      int num_rows,
                      const at::Tensor& residual) {
  const int64_t width = x.size(1);
  threads_->RunRows(num_rows, [&](int row) {
    float* const from = Floats(x) + row * x.stride(0);
    kernels_.rms_norm(from, Floats(norm), width, config_.rms_norm_eps, from);
    float* const to = Floats(residual) + row * residual.stride(0);
    for (int64_t i = 0; i < width; ++i) to[i] += from[i];
  });
}

void Int8Ops::LinearAdd(const at::Tensor& x,
                        const LinearWeight& weight,
                        int num_rows,
                        const at::Tensor& residual) {
  const PackedMatrix& matrix = AsInt8(weight).packed();
  const QuantizedRows rows = Quantized(matrix.groups);
  threads_->RunRows(num_rows, [&](int row) {
    kernels_.quantize(
        Floats(x) + row * x.stride(0), config_.q_size(), rows, row);
  });
  Multiply(matrix, num_rows, true, residual);
}

void Int8Ops::GatedLinearAdd(const at::Tensor& gate_up,
                             const LinearWeight& weight,
                             int num_rows,
                             const at::Tensor& residual) {
  const PackedMatrix& matrix = AsInt8(weight).packed();
  const QuantizedRows rows = Quantized(matrix.groups);
  const auto quantize = config_.activation == Activation::kSilu
                            ? kernels_.gate_quantize
                            : kernels_.gelu_gate_quantize;
  threads_->RunRows(num_rows, [&](int row) {
    quantize(Floats(gate_up) + row * gate_up.stride(0),
             config_.intermediate_size,
             rows,
             row);
  });
  Multiply(matrix, num_rows, true, residual);
}

}  // namespace

std::unique_ptr<Ops> CreateInt8Ops(const ModelConfig& config,
                                   const Int8Options& options) {
  return std::make_unique<Int8Ops>(config, options);
}

}  // namespace specwire
