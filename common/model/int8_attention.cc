// SPDX-License-Identifier: Apache-2.0
#include "common/model/int8_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "common/base/round_up.h"
#include "common/kernels/half.h"
#include "common/kernels/maths.h"
#include "common/model/engine.h"
#include "common/model/kv_cache.h"
#include "common/model/large_pages.h"
#include "common/model/memory.h"

namespace specwire {
namespace {

static_assert(kKvSlots == kKvBlockSize);

// Rows of one attention job, and the scratch that it may take (unless one row
// alone needs more).
constexpr int kAttendRows = 16;
constexpr int64_t kAttendScratchFloats = int64_t{1} << 19;

float* Floats(const at::Tensor& tensor) { return tensor.data_ptr<float>(); }

}  // namespace

Int8Attention::Int8Attention(const ModelConfig& config,
                             const Int8AttentionOptions& options)
    : config_(config),
      kernels_(options.kernels),
      threads_(options.threads),
      head_values_(Int8KvHeadValues(config)),
      block_values_(head_values_ * config.num_layers * config.num_kv_heads),
      heads_per_kv_head_(config.num_heads / config.num_kv_heads),
      most_attend_rows_(
          std::clamp(kMaxAttendQueries / heads_per_kv_head_, 1, kAttendRows)) {
  rotations_ = MakeRotations(config.rope_theta, options.rope_factors);
  if (config.local_rope_theta > 0) {
    local_rotations_ = MakeRotations(config.local_rope_theta, {});
  }
  const int64_t one_row = AttendScratch(
      options.max_model_len, 1, heads_per_kv_head_, config.head_dim);
  for (int i = 0; i < threads_->num_threads(); ++i) {
    attend_scratch_.push_back(
        at::empty({std::max(one_row, kAttendScratchFloats)}, at::kFloat));
  }
}

Int8Attention::Rotations Int8Attention::MakeRotations(
    float theta, const std::vector<float>& factors) const {
  const int64_t half = config_.head_dim / 2;
  Rotations rotations = {
      .frequencies = {},
      .cos = at::empty({Engine::kMaxRows, half}, at::kFloat),
      .sin = at::empty({Engine::kMaxRows, half}, at::kFloat)};
  const double log_theta = Log(static_cast<double>(theta));
  for (int64_t i = 0; i < half; ++i) {
    // Rounded to float32 at the same places as where such models are trained.
    float frequency = static_cast<float>(
        Exp(-static_cast<double>(2 * i) / config_.head_dim * log_theta));
    if (!factors.empty()) frequency /= factors[static_cast<size_t>(i)];
    rotations.frequencies.push_back(frequency);
  }
  return rotations;
}

void Int8Attention::AllocateKvCache(int num_blocks) {
  // All layers of a block side by side: few blocks fill a large page, and pages
  // that no token has reached take no memory.
  cache_ = LargePages(num_blocks * Int8KvBlockBytes(config_));
}

uint16_t* Int8Attention::KvBlocks(int layer, int kv_head) const {
  return reinterpret_cast<uint16_t*>(cache_.data_ptr<uint8_t>()) +
         (int64_t{layer} * config_.num_kv_heads + kv_head) * head_values_;
}

void Int8Attention::PoisonKvBlock(int32_t block, int slot) {
  constexpr uint16_t kNan = 0x7e00;
  const int64_t dim = config_.head_dim;
  const int64_t padded = RoundUp(dim, 16);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    for (int head = 0; head < config_.num_kv_heads; ++head) {
      uint16_t* const keys = KvBlocks(layer, head) + block * block_values_;
      for (int64_t i = 0; i < dim; ++i) {
        std::fill_n(keys + i * kKvSlots + slot, kKvSlots - slot, kNan);
      }
      std::fill_n(keys + dim * kKvSlots + slot * padded,
                  (kKvSlots - slot) * padded,
                  kNan);
    }
  }
}

void Int8Attention::PlanRows(const Pass& pass) {
  rows_.clear();
  for (const PassRun& run : pass.runs) {
    for (int i = 0; i < run.num_rows; ++i) {
      const int position = run.start + i;
      rows_.push_back(
          {position, run.blocks[static_cast<size_t>(position / kKvSlots)]});
    }
  }
  PlanRotations(pass.num_rows(), &rotations_);
  if (config_.local_rope_theta > 0) {
    PlanRotations(pass.num_rows(), &local_rotations_);
  }
}

void Int8Attention::PlanRotations(int num_rows, Rotations* rotations) {
  const int64_t half = config_.head_dim / 2;
  threads_->RunRows(num_rows, [&](int row) {
    const auto position =
        static_cast<float>(rows_[static_cast<size_t>(row)].position);
    for (int64_t j = 0; j < half; ++j) {
      const float angle =
          position * rotations->frequencies[static_cast<size_t>(j)];
      double sin;
      double cos;
      SinCos(static_cast<double>(angle), &sin, &cos);
      Floats(rotations->cos)[row * half + j] = static_cast<float>(cos);
      Floats(rotations->sin)[row * half + j] = static_cast<float>(sin);
    }
  });
}

void Int8Attention::RotateAndStore(const Pass& pass,
                                   int layer,
                                   const at::Tensor& qkv) {
  if (layer == 0) {
    PlanRows(pass);
  }
  const int64_t dim = config_.head_dim;
  const int64_t half = dim / 2;
  const Rotations& rotations = RotationsOf(layer);
  threads_->RunRows(pass.num_rows(), [&](int row) {
    float* const queries = Floats(qkv) + row * qkv.stride(0);
    float* const keys = queries + config_.q_size();
    const float* const values = keys + config_.kv_size();
    // Queries and keys follow each other.
    for (int head = 0; head < config_.num_heads + config_.num_kv_heads;
         ++head) {
      kernels_->rotate(queries + head * dim,
                       Floats(rotations.cos) + row * half,
                       Floats(rotations.sin) + row * half,
                       half);
    }
    const PassRow& place = rows_[static_cast<size_t>(row)];
    for (int head = 0; head < config_.num_kv_heads; ++head) {
      kernels_->store_kv(keys + head * dim,
                         values + head * dim,
                         dim,
                         place.position % kKvSlots,
                         KvBlocks(layer, head) + place.block * block_values_);
    }
  });
}

void Int8Attention::ReadKeys(const PassRun& run,
                             int layer,
                             int kv_head,
                             absl::Span<float> keys) const {
  const auto dim = static_cast<size_t>(config_.head_dim);
  for (size_t position = 0; position * dim < keys.size(); ++position) {
    const uint16_t* const block =
        KvBlocks(layer, kv_head) +
        run.blocks[position / kKvSlots] * block_values_;
    for (size_t i = 0; i < dim; ++i) {
      keys[position * dim + i] =
          HalfToFloat(block[i * kKvSlots + position % kKvSlots]);
    }
  }
}

int64_t Int8Attention::Cost(const AttendJob& job) {
  return int64_t{job.num_rows} *
         (job.run->start + job.first_row + job.num_rows);
}

int64_t Int8Attention::ScratchFor(const AttendJob& job) const {
  return AttendScratch(job.run->start + job.first_row,
                       job.num_rows,
                       heads_per_kv_head_,
                       config_.head_dim);
}

void Int8Attention::PlanAttend(const Pass& pass) {
  jobs_.clear();
  const int threads = threads_->num_threads();
  int64_t total_cost = 0;
  for (const PassRun& run : pass.runs) {
    total_cost += Cost({&run, 0, run.num_rows, 0}) * config_.num_kv_heads;
  }
  for (const PassRun& run : pass.runs) {
    // Rows of one job share what is read from the cache. They are parted only
    // where threads would else end far apart, and then into a job for each
    // thread.
    const int64_t worth =
        total_cost / (4 * threads) / (run.start + run.num_rows);
    const int for_each_thread = (run.num_rows + threads - 1) / threads;
    const int rows = static_cast<int>(std::clamp<int64_t>(
        std::max<int64_t>(worth, for_each_thread), 1, most_attend_rows_));
    for (int row = 0; row < run.num_rows;) {
      AttendJob job = {&run, row, std::min(rows, run.num_rows - row), 0};
      while (job.num_rows > 1 && ScratchFor(job) > kAttendScratchFloats) {
        job.num_rows /= 2;
      }
      for (; job.kv_head < config_.num_kv_heads; ++job.kv_head) {
        jobs_.push_back(job);
      }
      row += job.num_rows;
    }
  }
  // Long jobs first: what is begun last should end soon.
  std::stable_sort(
      jobs_.begin(), jobs_.end(), [](const AttendJob& a, const AttendJob& b) {
        return Cost(a) > Cost(b);
      });
  PlanParts();
}

void Int8Attention::PlanParts() {
  parts_.clear();
  scratch_offsets_.clear();
  const int threads = threads_->num_threads();
  const auto num_jobs = static_cast<int>(jobs_.size());
  if (threads == 1 || num_jobs >= 4 * threads) return;
  const auto chunks_of = [](const AttendJob& job) {
    return (job.run->start + job.first_row + job.num_rows + kAttendChunk - 1) /
           kAttendChunk;
  };
  int num_chunks = 0;
  for (const AttendJob& job : jobs_) {
    num_chunks += chunks_of(job);
  }
  if (num_chunks == num_jobs) return;
  // Chunks in a row run faster than chunks apart, but threads must end
  // together.
  const int most_chunks = std::max(num_chunks / (4 * threads), 1);
  int64_t scratch = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const int chunks = chunks_of(jobs_[i]);
    for (int chunk = 0; chunk < chunks; chunk += most_chunks) {
      parts_.push_back({i, chunk, std::min(chunk + most_chunks, chunks)});
    }
    scratch_offsets_.push_back(scratch);
    scratch += ScratchFor(jobs_[i]);
  }
  if (shared_scratch_.numel() < scratch) {
    shared_scratch_ = at::empty({scratch}, at::kFloat);
  }
}

AttendArgs Int8Attention::ArgsFor(const AttendJob& job,
                                  int layer,
                                  const at::Tensor& qkv,
                                  const at::Tensor& out,
                                  float* scratch) const {
  const int64_t row = job.run->first_row + job.first_row;
  const int64_t column =
      int64_t{job.kv_head} * heads_per_kv_head_ * config_.head_dim;
  return {.queries = Floats(qkv) + row * qkv.stride(0) + column,
          .query_stride = qkv.stride(0),
          .out = Floats(out) + row * out.stride(0) + column,
          .out_stride = out.stride(0),
          .cache = KvBlocks(layer, job.kv_head),
          .block_stride = block_values_,
          .blocks = job.run->blocks.data(),
          .first_position = job.run->start + job.first_row,
          .rows = job.num_rows,
          .window = config_.window(layer),
          .heads = heads_per_kv_head_,
          .head_dim = config_.head_dim,
          .scale = config_.attention_scale,
          .scratch = scratch};
}

void Int8Attention::Attend(const Pass& pass,
                           int layer,
                           const at::Tensor& qkv,
                           const at::Tensor& out) {
  if (layer == 0) {
    PlanAttend(pass);
  }
  if (parts_.empty()) {
    threads_->Run(static_cast<int>(jobs_.size()), [&](int piece, int thread) {
      kernels_->attend(
          ArgsFor(jobs_[static_cast<size_t>(piece)],
                  layer,
                  qkv,
                  out,
                  Floats(attend_scratch_[static_cast<size_t>(thread)])));
    });
    return;
  }
  // Few jobs over many positions: all threads share each of them.
  const auto args = [&](size_t job) {
    return ArgsFor(jobs_[job],
                   layer,
                   qkv,
                   out,
                   Floats(shared_scratch_) + scratch_offsets_[job]);
  };
  threads_->Run(static_cast<int>(parts_.size()), [&](int piece, int) {
    const AttendPart& part = parts_[static_cast<size_t>(piece)];
    for (int chunk = part.first; chunk < part.end; ++chunk) {
      kernels_->attend_chunk(args(part.job), chunk);
    }
  });
  for (size_t job = 0; job < jobs_.size(); ++job) {
    kernels_->attend_fold(args(job));
  }
}

}  // namespace specwire
