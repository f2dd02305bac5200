// SPDX-License-Identifier: Apache-2.0
#include "common/model/ops_aten.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/kernels/kernels.h"
#include "common/model/aten_linear.h"
#include "common/model/engine.h"
#include "common/model/kv_cache.h"
#include "common/model/matrix_rows.h"
#include "common/model/thread_pool.h"

namespace specwire {
namespace {

// A matrix that these operations have prepared.
const AtenLinear& AsAten(const LinearWeight& weight) {
  return static_cast<const AtenLinear&>(weight);
}

void RmsNormRow(
    const float* x, const float* norm, int64_t n, float eps, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += double{x[i]} * double{x[i]};
  }
  const float scale = static_cast<float>(
      1 / std::sqrt(sum / static_cast<double>(n) + double{eps}));
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] * scale * norm[i];
  }
}

float Activate(Activation activation, float gate) {
  if (activation == Activation::kSilu) return gate / (1 + std::exp(-gate));
  // 0.5 g (1 + tanh(u)) = g / (1 + exp(-2 u)).
  constexpr float kTwoRootTwoOverPi = 1.5957691216057308F;
  return gate / (1 + std::exp(-kTwoRootTwoOverPi *
                              (gate + 0.044715F * gate * gate * gate)));
}

// Rotates the pairs (head[i], head[i + half]) by the angles given.
void RotateHead(const float* cos, const float* sin, int64_t half, float* head) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

class AtenOps final : public Ops {
 public:
  AtenOps(const ModelConfig& config, const AtenOptions& options);

  EngineNumerics numerics() const override {
    EngineNumerics numerics = ReferenceNumerics();
    if (format_.converts()) {
      absl::StrAppend(&numerics.numerics_version,
                      " ",
                      c10::toString(format_.dtype),
                      " ",
                      format_.device.is_cpu() ? "cpu" : "cuda");
    }
    return numerics;
  }

  absl::StatusOr<std::unique_ptr<LinearWeight>> PrepareLinear(
      const WeightMatrix& matrix, Sha256* digest) override;
  void AllocateKvCache(int num_blocks) override;
  void PoisonKvBlock(int32_t block, int slot) override;
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
                      const at::Tensor& qkv) override;
  void Attend(const Pass& pass,
              int layer,
              const at::Tensor& qkv,
              const at::Tensor& out) override;
  void ReadKeys(const PassRun& run,
                int layer,
                int kv_head,
                absl::Span<float> keys) const override;
  void LinearAdd(const at::Tensor& x,
                 const LinearWeight& weight,
                 int num_rows,
                 const at::Tensor& residual) override;
  void GatedLinearAdd(const at::Tensor& gate_up,
                      const LinearWeight& weight,
                      int num_rows,
                      const at::Tensor& residual) override;

 private:
  // Where one thread computes; always at the same addresses.
  struct Scratch {
    AtenLinear::Scratch linear;
    at::Tensor query;    // [Hkv, Hq / Hkv, d]
    at::Tensor scores;   // [Hq * capacity_]
    at::Tensor weights;  // [Hq * capacity_]
    at::Tensor mixed;    // [Hkv, Hq / Hkv, d]
  };

  // Cosines and sines of all positions.
  struct Rotations {
    at::Tensor cos;  // [capacity_, d / 2]
    at::Tensor sin;  // [capacity_, d / 2]
  };

  Rotations MakeRotations(float theta, const std::vector<float>& factors) const;
  const Rotations& RotationsOf(int layer) const {
    return config_.is_local(layer) && config_.local_rope_theta > 0
               ? local_rotations_
               : rotations_;
  }
  // Hands the products of the first num_rows rows of x to `sink`, on all
  // threads.
  void Multiply(const at::Tensor& x,
                const AtenLinear& weight,
                int64_t num_rows,
                AtenLinear::Sink sink);
  // The first position of a block's keys (kind 0) or values (kind 1) for one
  // KV head; positions follow each other.
  float* CacheSlots(int32_t block, int layer, int kind, int head) const;
  // Copies a sequence's keys and values to keys_ and values_.
  void Gather(const PassRun& run, int layer);
  // A row that sees positions [first, position].
  void AttendRow(
      int first, int position, const float* query, float* out, Scratch* s);

  const ModelConfig config_;
  const AtenFormat format_;
  const bool one_row_a_tile_;
  // max_model_len in whole blocks.
  const int64_t capacity_;
  const std::shared_ptr<ThreadPool> threads_;
  std::vector<Scratch> scratch_;
  at::Tensor normed_;  // [kMaxRows, D]
  at::Tensor gated_;   // [kMaxRows, F]
  Rotations rotations_;
  Rotations local_rotations_;  // empty unless local layers have their own
  at::Tensor cache_;           // [blocks, layers, 2, Hkv, kKvBlockSize, d]
  at::Tensor keys_;            // [Hkv, capacity_, d]
  at::Tensor values_;          // [Hkv, capacity_, d]
};

AtenOps::AtenOps(const ModelConfig& config, const AtenOptions& options)
    : config_(config),
      format_(options.format),
      one_row_a_tile_(options.one_row_a_tile),
      capacity_(RoundUp(options.max_model_len, kKvBlockSize)),
      threads_(options.threads) {
  // Threads are threads_'s; each ATen call runs on one.
  at::set_num_threads(1);
  const int64_t heads = config.num_heads;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t dim = config.head_dim;
  const int64_t widest_input =
      std::max({config.hidden_size, config.intermediate_size, config.q_size()});
  for (int i = 0; i < threads_->num_threads(); ++i) {
    scratch_.push_back(
        {.linear = AtenLinear::Scratch(widest_input, format_),
         .query = at::zeros({kv_heads, heads / kv_heads, dim}, at::kFloat),
         .scores = at::empty({heads * capacity_}, at::kFloat),
         .weights = at::empty({heads * capacity_}, at::kFloat),
         .mixed = at::zeros({kv_heads, heads / kv_heads, dim}, at::kFloat)});
  }
  const int64_t max_rows = Engine::kMaxRows;
  normed_ = at::zeros({max_rows, config.hidden_size}, at::kFloat);
  gated_ = at::zeros({max_rows, config.intermediate_size}, at::kFloat);
  keys_ = at::empty({kv_heads, capacity_, dim}, at::kFloat);
  values_ = at::empty({kv_heads, capacity_, dim}, at::kFloat);
  rotations_ = MakeRotations(config.rope_theta, options.rope_factors);
  if (config.local_rope_theta > 0) {
    local_rotations_ = MakeRotations(config.local_rope_theta, {});
  }
}

AtenOps::Rotations AtenOps::MakeRotations(
    float theta, const std::vector<float>& factors) const {
  const int64_t half = config_.head_dim / 2;
  Rotations rotations = {.cos = at::empty({capacity_, half}, at::kFloat),
                         .sin = at::empty({capacity_, half}, at::kFloat)};
  for (int64_t i = 0; i < half; ++i) {
    // Angles are rounded to float32 at the same places as where such models
    // are trained.
    float frequency = static_cast<float>(std::pow(
        double{theta}, -static_cast<double>(2 * i) / config_.head_dim));
    if (!factors.empty()) {
      frequency /= factors[static_cast<size_t>(i)];
    }
    for (int64_t position = 0; position < capacity_; ++position) {
      const double angle = static_cast<float>(position) * frequency;
      RowOf(rotations.cos, position)[i] = static_cast<float>(std::cos(angle));
      RowOf(rotations.sin, position)[i] = static_cast<float>(std::sin(angle));
    }
  }
  return rotations;
}

absl::StatusOr<std::unique_ptr<LinearWeight>> AtenOps::PrepareLinear(
    const WeightMatrix& matrix, Sha256* digest) {
  const auto columns = static_cast<size_t>(matrix.columns());
  at::Tensor weight = at::empty({matrix.rows(), matrix.columns()}, at::kFloat);
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    SPECWIRE_RETURN_IF_ERROR(ReadFloatRow(
        matrix, row, absl::MakeSpan(RowOf(weight, row), columns), digest));
  }
  return std::make_unique<AtenLinear>(
      weight, format_, one_row_a_tile_, &scratch_[0].linear);
}

void AtenOps::Multiply(const at::Tensor& x,
                       const AtenLinear& weight,
                       int64_t num_rows,
                       AtenLinear::Sink sink) {
  threads_->Run(weight.num_pieces(), [&](int piece, int thread) {
    const c10::InferenceMode inference;
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    weight.Multiply(piece, x, num_rows, &scratch.linear, sink);
  });
}

void AtenOps::Embed(const LinearWeight& table,
                    absl::Span<const int32_t> tokens,
                    const at::Tensor& x) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    AsAten(table).ReadRow(
        tokens[i],
        absl::MakeSpan(RowOf(x, static_cast<int64_t>(i)),
                       static_cast<size_t>(config_.hidden_size)));
  }
}

void AtenOps::NormLinear(const at::Tensor& x,
                         const at::Tensor& norm,
                         const LinearWeight& weight,
                         int num_rows,
                         const at::Tensor& y) {
  for (int64_t row = 0; row < num_rows; ++row) {
    RmsNormRow(RowOf(x, row),
               norm.data_ptr<float>(),
               x.size(1),
               config_.rms_norm_eps,
               RowOf(normed_, row));
  }
  Multiply(normed_,
           AsAten(weight),
           num_rows,
           [&y](int64_t row, int64_t first, absl::Span<const float> values) {
             std::copy(values.begin(), values.end(), RowOf(y, row) + first);
           });
}

void AtenOps::NormLinearArgMax(const at::Tensor& x,
                               const at::Tensor& norm,
                               const LinearWeight& weight,
                               const at::Tensor& y,
                               absl::Span<int32_t> best) {
  NormLinear(x, norm, weight, static_cast<int>(best.size()), y);
  const int64_t outputs = AsAten(weight).outputs();
  for (size_t row = 0; row < best.size(); ++row) {
    best[row] = static_cast<int32_t>(
        BestKernels().arg_max(RowOf(y, static_cast<int64_t>(row)), outputs));
  }
}

void AtenOps::LinearAdd(const at::Tensor& x,
                        const LinearWeight& weight,
                        int num_rows,
                        const at::Tensor& residual) {
  Multiply(
      x,
      AsAten(weight),
      num_rows,
      [&residual](int64_t row, int64_t first, absl::Span<const float> values) {
        float* const to = RowOf(residual, row) + first;
        for (size_t i = 0; i < values.size(); ++i) {
          to[i] += values[i];
        }
      });
}

void AtenOps::NormHeads(const at::Tensor& x,
                        int64_t first,
                        int heads,
                        const at::Tensor& norm,
                        int num_rows) {
  const int64_t dim = config_.head_dim;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      float* const at = RowOf(x, row) + first + head * dim;
      RmsNormRow(at, norm.data_ptr<float>(), dim, config_.rms_norm_eps, at);
    }
  }
}

void AtenOps::NormAdd(const at::Tensor& x,
                      const at::Tensor& norm,
                      int num_rows,
                      const at::Tensor& residual) {
  for (int64_t row = 0; row < num_rows; ++row) {
    float* const from = RowOf(x, row);
    RmsNormRow(
        from, norm.data_ptr<float>(), x.size(1), config_.rms_norm_eps, from);
    float* const to = RowOf(residual, row);
    for (int64_t i = 0; i < x.size(1); ++i) to[i] += from[i];
  }
}

void AtenOps::GatedLinearAdd(const at::Tensor& gate_up,
                             const LinearWeight& weight,
                             int num_rows,
                             const at::Tensor& residual) {
  const int64_t width = config_.intermediate_size;
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* const gate = RowOf(gate_up, row);
    const float* const up = gate + width;
    float* const gated = RowOf(gated_, row);
    for (int64_t i = 0; i < width; ++i) {
      gated[i] = Activate(config_.activation, gate[i]) * up[i];
    }
  }
  LinearAdd(gated_, weight, num_rows, residual);
}

void AtenOps::AllocateKvCache(int num_blocks) {
  // Not zeroed: pages that are never written to are never mapped.
  cache_ = at::empty({num_blocks,
                      config_.num_layers,
                      2,
                      config_.num_kv_heads,
                      kKvBlockSize,
                      config_.head_dim},
                     at::kFloat);
}

float* AtenOps::CacheSlots(int32_t block, int layer, int kind, int head) const {
  return cache_.data_ptr<float>() + block * cache_.stride(0) +
         layer * cache_.stride(1) + kind * cache_.stride(2) +
         head * cache_.stride(3);
}

void AtenOps::PoisonKvBlock(int32_t block, int slot) {
  const int64_t dim = config_.head_dim;
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    for (const int kind : {0, 1}) {
      for (int head = 0; head < config_.num_kv_heads; ++head) {
        std::fill_n(CacheSlots(block, layer, kind, head) + slot * dim,
                    (kKvBlockSize - slot) * dim,
                    std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

void AtenOps::RotateAndStore(const Pass& pass,
                             int layer,
                             const at::Tensor& qkv) {
  const int64_t dim = config_.head_dim;
  const int rotated_heads = config_.num_heads + config_.num_kv_heads;
  const Rotations& rotations = RotationsOf(layer);
  for (const PassRun& run : pass.runs) {
    for (int i = 0; i < run.num_rows; ++i) {
      const int position = run.start + i;
      float* const row = RowOf(qkv, run.first_row + i);
      for (int head = 0; head < rotated_heads; ++head) {
        RotateHead(RowOf(rotations.cos, position),
                   RowOf(rotations.sin, position),
                   dim / 2,
                   row + head * dim);
      }
      const int32_t block =
          run.blocks[static_cast<size_t>(position / kKvBlockSize)];
      const int64_t offset = position % kKvBlockSize * dim;
      const float* const keys = row + config_.q_size();
      const float* const values = keys + config_.kv_size();
      for (int head = 0; head < config_.num_kv_heads; ++head) {
        std::copy_n(
            keys + head * dim, dim, CacheSlots(block, layer, 0, head) + offset);
        std::copy_n(values + head * dim,
                    dim,
                    CacheSlots(block, layer, 1, head) + offset);
      }
    }
  }
}

void AtenOps::ReadKeys(const PassRun& run,
                       int layer,
                       int kv_head,
                       absl::Span<float> keys) const {
  const auto dim = static_cast<size_t>(config_.head_dim);
  for (size_t position = 0; position * dim < keys.size(); ++position) {
    const int32_t block = run.blocks[position / kKvBlockSize];
    std::copy_n(
        CacheSlots(block, layer, 0, kv_head) + position % kKvBlockSize * dim,
        dim,
        keys.begin() + static_cast<std::ptrdiff_t>(position * dim));
  }
}

void AtenOps::Gather(const PassRun& run, int layer) {
  const int64_t dim = config_.head_dim;
  const int64_t length = run.start + run.num_rows;
  for (int64_t begin = 0; begin < length; begin += kKvBlockSize) {
    const int32_t block = run.blocks[static_cast<size_t>(begin / kKvBlockSize)];
    const int64_t count = std::min<int64_t>(kKvBlockSize, length - begin) * dim;
    for (int head = 0; head < config_.num_kv_heads; ++head) {
      const int64_t offset = begin * dim;
      std::copy_n(CacheSlots(block, layer, 0, head),
                  count,
                  RowOf(keys_, head) + offset);
      std::copy_n(CacheSlots(block, layer, 1, head),
                  count,
                  RowOf(values_, head) + offset);
    }
  }
}

void AtenOps::Attend(const Pass& pass,
                     int layer,
                     const at::Tensor& qkv,
                     const at::Tensor& out) {
  for (const PassRun& run : pass.runs) {
    Gather(run, layer);
    threads_->Run(run.num_rows, [&](int i, int thread) {
      const c10::InferenceMode inference;
      const int position = run.start + i;
      const int window = config_.window(layer);
      AttendRow(window > 0 ? std::max(position + 1 - window, 0) : 0,
                position,
                RowOf(qkv, run.first_row + i),
                RowOf(out, run.first_row + i),
                &scratch_[static_cast<size_t>(thread)]);
    });
  }
}

// One row at a time: shapes and addresses depend on the row's position alone,
// so a row of a long run is computed like the same row alone.
void AtenOps::AttendRow(
    int first, int position, const float* query, float* out, Scratch* s) {
  const int64_t length = position + 1 - first;
  const int64_t kv_heads = config_.num_kv_heads;
  const int64_t group = config_.num_heads / kv_heads;
  float* const scaled = s->query.data_ptr<float>();
  for (int i = 0; i < config_.q_size(); ++i) {
    scaled[i] = query[i] * config_.attention_scale;
  }
  const auto of_heads = [&](const at::Tensor& scratch) {
    return scratch.as_strided({kv_heads, group, length},
                              {group * length, length, 1});
  };
  at::Tensor scores = of_heads(s->scores);    // [Hkv, Hq / Hkv, length]
  at::Tensor weights = of_heads(s->weights);  // [Hkv, Hq / Hkv, length]
  at::bmm_out(scores, s->query, keys_.narrow(1, first, length).transpose(1, 2));
  at::_softmax_out(weights, scores, /*dim=*/-1, /*half_to_float=*/false);
  at::bmm_out(s->mixed, weights, values_.narrow(1, first, length));
  std::copy_n(s->mixed.data_ptr<float>(), config_.q_size(), out);
}

}  // namespace

std::unique_ptr<Ops> CreateAtenOps(const ModelConfig& config,
                                   const AtenOptions& options) {
  return std::make_unique<AtenOps>(config, options);
}

}  // namespace specwire
