// SPDX-License-Identifier: Apache-2.0
#include "bench/random_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "bench/measure.h"
#include "common/kernels/half.h"
#include "common/kernels/packing.h"
#include "common/model/engine.h"
#include "common/model/int8_linear.h"
#include "common/model/kv_cache.h"
#include "common/model/ops_int8.h"
#include "common/model/thread_pool.h"

namespace specwire {
namespace {

// Repeated over the weights. Its length has no factor in common with that of
// any row.
constexpr size_t kPatternBytes = 1048573;

int64_t Groups(int64_t columns) {
  return (columns + kGroupSize - 1) / kGroupSize;
}

// Calls visit(form, outputs, columns) for each matrix that a pass reads, layer
// by layer as the forward pass comes to them, then for the head.
void ForMatrices(
    const ModelConfig& config,
    WeightForm form,
    const std::function<void(WeightForm, int64_t, int64_t)>& visit) {
  for (int layer = 0; layer < config.num_layers; ++layer) {
    visit(form, config.q_size() + 2 * config.kv_size(), config.hidden_size);
    visit(form, config.hidden_size, config.q_size());
    visit(form, int64_t{2} * config.intermediate_size, config.hidden_size);
    visit(form, config.hidden_size, config.intermediate_size);
  }
  visit(WeightForm::kInt8, config.vocab_size, config.hidden_size);
}

// Weights of which a product is about as large as what it is made of.
void FillScales(WeightForm form, int64_t columns, absl::Span<uint16_t> scales) {
  // What q, or q - 7.5, is like on the average.
  const float size = form == WeightForm::kInt8 ? 73.0f : 4.6f;
  const float scale = 1.0f / (size * std::sqrt(static_cast<float>(columns)));
  std::fill(scales.begin(), scales.end(), FloatToHalf(scale));
  if (form == WeightForm::kInt8) return;
  for (size_t i = kBlockOutputs; i < scales.size(); i += 2 * kBlockOutputs) {
    std::fill_n(&scales[i], kBlockOutputs, FloatToHalf(-7.5f * scale));
  }
}

void Repeat(absl::Span<const uint8_t> pattern, absl::Span<uint8_t> to) {
  while (!to.empty()) {
    const size_t size = std::min(pattern.size(), to.size());
    std::memcpy(to.data(), pattern.data(), size);
    to.remove_prefix(size);
  }
}

at::Tensor Activations(int64_t columns) {
  return at::empty({Engine::kMaxRows, columns}, at::kFloat);
}

// Numbers between -1 and 1.
void FillRandom(const at::Tensor& tensor) {
  uint32_t state = 12345;
  float* const values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    values[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
}

}  // namespace

class RandomModel::Impl {
 public:
  Impl(const ModelConfig& config, WeightForm form) : config_(config) {
    const c10::InferenceMode inference;
    const LargeBytes pattern = RandomBytes(kPatternBytes);
    ForMatrices(
        config, form, [&](WeightForm of, int64_t outputs, int64_t columns) {
          matrices_.push_back(
              Int8Linear::CreateZeros(of, outputs, Groups(columns), &arena_));
          Int8Linear& matrix = *matrices_.back();
          const int64_t groups = matrix.packed().groups;
          Repeat({pattern.get(), kPatternBytes},
                 {matrix.mutable_weights(),
                  static_cast<size_t>(PackedWeightBytes(of, outputs, groups))});
          FillScales(of,
                     columns,
                     {matrix.mutable_scales(),
                      static_cast<size_t>(PackedScales(of, outputs, groups))});
        });
    norm_ = at::ones({config.hidden_size}, at::kFloat);
    hidden_ = Activations(config.hidden_size);
    qkv_ = Activations(config.q_size() + 2 * config.kv_size());
    attention_ = Activations(config.q_size());
    gate_up_ = Activations(int64_t{2} * config.intermediate_size);
    logits_ = Activations(config.vocab_size);
  }

  void Prepare(const Kernels& kernels, int num_threads, int context) {
    const c10::InferenceMode inference;
    context_ = context;
    const int length = context + kMaxRows;
    // The matrices belong to no operations in particular.
    ops_ = CreateInt8Ops(config_,
                         {.threads = std::make_shared<ThreadPool>(num_threads),
                          .max_model_len = length,
                          .rope_factors = {},
                          .kernels = &kernels});
    const int num_blocks = (length + kKvBlockSize - 1) / kKvBlockSize;
    ops_->AllocateKvCache(num_blocks);
    blocks_.resize(static_cast<size_t>(num_blocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int start = 0; start < context; start += Engine::kMaxRows) {
      const Pass pass =
          PassAt(start, std::min(context - start, Engine::kMaxRows));
      FillRandom(qkv_);
      for (int layer = 0; layer < config_.num_layers; ++layer) {
        ops_->RotateAndStore(pass, layer, qkv_);
      }
    }
  }

  void Forward(int rows) {
    const c10::InferenceMode inference;
    const Pass pass = PassAt(context_, rows);
    std::vector<int32_t> best(static_cast<size_t>(rows));
    ops_->Embed(*matrices_.back(), pass.tokens, hidden_);
    auto matrix = matrices_.begin();
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      ops_->NormLinear(hidden_, norm_, **matrix++, rows, qkv_);
      ops_->RotateAndStore(pass, layer, qkv_);
      ops_->Attend(pass, layer, qkv_, attention_);
      ops_->LinearAdd(attention_, **matrix++, rows, hidden_);
      ops_->NormLinear(hidden_, norm_, **matrix++, rows, gate_up_);
      ops_->GatedLinearAdd(gate_up_, **matrix++, rows, hidden_);
    }
    ops_->NormLinearArgMax(
        hidden_, norm_, **matrix, logits_, absl::MakeSpan(best));
  }

 private:
  Pass PassAt(int start, int rows) const {
    Pass pass;
    for (int i = 0; i < rows; ++i) {
      pass.tokens.push_back((start + i) * 7919 % config_.vocab_size);
    }
    pass.runs.push_back(
        {.first_row = 0, .num_rows = rows, .start = start, .blocks = blocks_});
    return pass;
  }

  const ModelConfig config_;
  WeightArena arena_;
  // As ForMatrices comes to them; the head is also the embedding.
  std::vector<std::unique_ptr<Int8Linear>> matrices_;
  at::Tensor norm_;  // [D]
  // Activations, [Engine::kMaxRows, columns] f32.
  at::Tensor hidden_;     // D
  at::Tensor qkv_;        // (Hq + 2 Hkv) d
  at::Tensor attention_;  // Hq d
  at::Tensor gate_up_;    // 2 F
  at::Tensor logits_;     // V
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> blocks_;
  int context_ = 0;
};

RandomModel::RandomModel(const ModelConfig& config, WeightForm form)
    : impl_(std::make_unique<Impl>(config, form)) {}

RandomModel::~RandomModel() = default;

int64_t RandomModel::WeightBytes(const ModelConfig& config, WeightForm form) {
  int64_t bytes = 0;
  ForMatrices(
      config, form, [&](WeightForm of, int64_t outputs, int64_t columns) {
        bytes += PackedWeightBytes(of, outputs, Groups(columns)) +
                 PackedScales(of, outputs, Groups(columns)) *
                     static_cast<int64_t>(sizeof(uint16_t));
      });
  return bytes;
}

void RandomModel::Prepare(const Kernels& kernels,
                          int num_threads,
                          int context) {
  impl_->Prepare(kernels, num_threads, context);
}

void RandomModel::Forward(int rows) { impl_->Forward(rows); }

}  // namespace specwire
