// SPDX-License-Identifier: Apache-2.0
#include "common/model/ops_int8.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "common/kernels/half.h"
#include "common/kernels/maths.h"
#include "common/model/engine.h"
#include "common/model/int8_linear.h"
#include "common/model/kv_cache.h"
#include "common/model/large_pages.h"
#include "common/model/thread_pool.h"

namespace specwire {
namespace {

static_assert(kKvSlots == kKvBlockSize);

constexpr int64_t kMaxRows = Engine::kMaxRows;
// Rows that go through a piece of the weights before the next ones do: few
// enough to stay in a second-level cache together with the piece.
constexpr int kTileRows = 64;
// Rows of one attention job, and the scratch that it may take (unless one row
// alone needs more).
constexpr int kAttendRows = 16;
constexpr int64_t kAttendScratchFloats = int64_t{1} << 19;
// Fewer rows than this are normed and quantised by the caller alone.
constexpr int kRowsWorthSharing = 8;
// Outputs of the head whose arg-max is taken while they are in a cache.
constexpr int64_t kHeadBlocks = 16;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

const Int8Linear& AsInt8(const LinearWeight& weight) {
  return static_cast<const Int8Linear&>(weight);
}

float* Floats(const at::Tensor& tensor) { return tensor.data_ptr<float>(); }

class Int8Ops final : public Ops {
 public:
  Int8Ops(const ModelConfig& config, const Int8Options& options);

  std::string name() const override { return "int8"; }
  std::string kv_type() const override { return "f16"; }
  std::string numerics_version() const override { return "int8-1"; }

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
  void RotateAndStore(const Pass& pass,
                      int layer,
                      const at::Tensor& qkv) override;
  void Attend(const Pass& pass,
              int layer,
              const at::Tensor& qkv,
              const at::Tensor& out) override;
  void LinearAdd(const at::Tensor& x,
                 const LinearWeight& weight,
                 int num_rows,
                 const at::Tensor& residual) override;
  void GatedLinearAdd(const at::Tensor& gate_up,
                      const LinearWeight& weight,
                      int num_rows,
                      const at::Tensor& residual) override;

 private:
  // One KV head's attention for some rows of a run.
  struct AttendJob {
    const PassRun* run;
    int first_row;  // in the run
    int num_rows;
    int kv_head;
  };
  // Chunks [first, end) of a job's positions.
  struct AttendPart {
    size_t job;
    int first;
    int end;
  };

  // Calls work(row) for all rows, on all threads if there are many.
  void ForRows(int num_rows, absl::FunctionRef<void(int row)> work);
  // y = W x or y += W x for the quantised rows.
  void Multiply(const PackedMatrix& matrix,
                int num_rows,
                bool add,
                const at::Tensor& y);
  void Normalise(const at::Tensor& x,
                 const at::Tensor& norm,
                 int num_rows,
                 int64_t groups);
  void FillRotations(const Pass& pass);
  // The quantised rows, as rows of `groups` groups.
  QuantizedRows Quantized(int64_t groups) const {
    return {reinterpret_cast<QuantizedGroup*>(quantized_.data_ptr<uint8_t>()),
            groups};
  }
  uint16_t* KvBlocks(int layer, int kv_head) const;
  // Plans a pass's attention, the same for all layers.
  void PlanAttend(const Pass& pass);
  void PlanParts();
  int64_t ScratchFor(const AttendJob& job) const;
  AttendArgs ArgsFor(const AttendJob& job,
                     int layer,
                     const at::Tensor& qkv,
                     const at::Tensor& out,
                     float* scratch) const;
  const ModelConfig config_;
  const Kernels& kernels_;
  // Half-precision numbers in a block: of one layer and KV head, and in all.
  const int64_t head_values_;
  const int64_t block_values_;
  ThreadPool threads_;
  WeightArena arena_;
  at::Tensor quantized_;            // u8, room for kMaxRows quantised rows
  std::vector<float> frequencies_;  // [d / 2]
  at::Tensor cos_;                  // [kMaxRows, d / 2], a row of the pass each
  at::Tensor sin_;                  // the same
  at::Tensor cache_;  // f16 in bytes: [blocks, layers, Hkv, head_values_]
  std::vector<at::Tensor> attend_scratch_;  // f32, one for each thread
  at::Tensor shared_scratch_;               // f32, for jobs that threads share
  // The plan for the current pass.
  std::vector<AttendJob> jobs_;
  std::vector<AttendPart> parts_;         // empty if threads share no job
  std::vector<int64_t> scratch_offsets_;  // of each job
  std::vector<float> head_max_;
  const float score_scale_;
  const int heads_per_kv_head_;
  const int most_attend_rows_;
};

Int8Ops::Int8Ops(const ModelConfig& config, const Int8Options& options)
    : config_(config),
      kernels_(*options.kernels),
      head_values_(kKvSlots * (config.head_dim + RoundUp(config.head_dim, 16))),
      block_values_(head_values_ * config.num_layers * config.num_kv_heads),
      threads_(options.num_threads),
      // Division and square root are exact operations everywhere.
      score_scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      heads_per_kv_head_(config.num_heads / config.num_kv_heads),
      most_attend_rows_(
          std::clamp(kMaxAttendQueries / heads_per_kv_head_, 1, kAttendRows)) {
  const int64_t widest =
      std::max({config.hidden_size, config.intermediate_size, config.q_size()});
  quantized_ = at::empty({kMaxRows * RoundUp(widest, kGroupSize) / kGroupSize *
                          static_cast<int64_t>(sizeof(QuantizedGroup))},
                         at::kByte);
  const int64_t half = config.head_dim / 2;
  cos_ = at::empty({kMaxRows, half}, at::kFloat);
  sin_ = at::empty({kMaxRows, half}, at::kFloat);
  const double log_theta = Log(static_cast<double>(config.rope_theta));
  for (int64_t i = 0; i < half; ++i) {
    // Rounded to float32 at the same places as where such models are trained.
    float frequency = static_cast<float>(
        Exp(-static_cast<double>(2 * i) / config.head_dim * log_theta));
    if (!options.rope_factors.empty()) {
      frequency /= options.rope_factors[static_cast<size_t>(i)];
    }
    frequencies_.push_back(frequency);
  }
  const int64_t one_row = AttendScratch(
      options.max_model_len, 1, heads_per_kv_head_, config.head_dim);
  for (int i = 0; i < threads_.num_threads(); ++i) {
    attend_scratch_.push_back(
        at::empty({std::max(one_row, kAttendScratchFloats)}, at::kFloat));
  }
}

absl::StatusOr<std::unique_ptr<LinearWeight>> Int8Ops::PrepareLinear(
    const WeightMatrix& matrix, Sha256* digest) {
  return Int8Linear::Create(matrix, &arena_, digest);
}

void Int8Ops::ForRows(int num_rows, absl::FunctionRef<void(int row)> work) {
  if (num_rows < kRowsWorthSharing) {
    for (int row = 0; row < num_rows; ++row) {
      work(row);
    }
    return;
  }
  const int pieces = std::min(num_rows, 4 * threads_.num_threads());
  threads_.Run(pieces, [&](int piece, int) {
    const int end = num_rows * (piece + 1) / pieces;
    for (int row = num_rows * piece / pieces; row < end; ++row) {
      work(row);
    }
  });
}

void Int8Ops::Multiply(const PackedMatrix& matrix,
                       int num_rows,
                       bool add,
                       const at::Tensor& y) {
  const int64_t blocks = (matrix.outputs + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t threads = threads_.num_threads();
  // Small enough that a thread which is held up holds nobody up for long.
  const int64_t pieces =
      threads == 1
          ? 1
          : std::clamp(blocks / 8, std::min(blocks, 2 * threads), 16 * threads);
  threads_.Run(static_cast<int>(pieces), [&](int piece, int) {
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
  ForRows(num_rows, [&](int row) {
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
  threads_.Run(static_cast<int>(pieces), [&](int piece, int) {
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

void Int8Ops::LinearAdd(const at::Tensor& x,
                        const LinearWeight& weight,
                        int num_rows,
                        const at::Tensor& residual) {
  const PackedMatrix& matrix = AsInt8(weight).packed();
  const QuantizedRows rows = Quantized(matrix.groups);
  ForRows(num_rows, [&](int row) {
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
  ForRows(num_rows, [&](int row) {
    kernels_.gate_quantize(Floats(gate_up) + row * gate_up.stride(0),
                           config_.intermediate_size,
                           rows,
                           row);
  });
  Multiply(matrix, num_rows, true, residual);
}

void Int8Ops::AllocateKvCache(int num_blocks) {
  // All layers of a block side by side: few blocks fill a large page, and pages
  // that no token has reached take no memory.
  cache_ = LargePages(num_blocks * Int8KvBlockBytes(config_));
}

uint16_t* Int8Ops::KvBlocks(int layer, int kv_head) const {
  return reinterpret_cast<uint16_t*>(cache_.data_ptr<uint8_t>()) +
         (int64_t{layer} * config_.num_kv_heads + kv_head) * head_values_;
}

void Int8Ops::PoisonKvBlock(int32_t block, int slot) {
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

void Int8Ops::FillRotations(const Pass& pass) {
  const int64_t half = config_.head_dim / 2;
  for (const PassRun& run : pass.runs) {
    for (int i = 0; i < run.num_rows; ++i) {
      const int64_t row = run.first_row + i;
      for (int64_t j = 0; j < half; ++j) {
        const float angle = static_cast<float>(run.start + i) *
                            frequencies_[static_cast<size_t>(j)];
        double sin;
        double cos;
        SinCos(static_cast<double>(angle), &sin, &cos);
        Floats(cos_)[row * half + j] = static_cast<float>(cos);
        Floats(sin_)[row * half + j] = static_cast<float>(sin);
      }
    }
  }
}

void Int8Ops::RotateAndStore(const Pass& pass,
                             int layer,
                             const at::Tensor& qkv) {
  if (layer == 0) {
    FillRotations(pass);
  }
  const int64_t dim = config_.head_dim;
  const int64_t half = dim / 2;
  for (const PassRun& run : pass.runs) {
    ForRows(run.num_rows, [&](int i) {
      const int64_t row = run.first_row + i;
      float* const queries = Floats(qkv) + row * qkv.stride(0);
      float* const keys = queries + config_.q_size();
      const float* const values = keys + config_.kv_size();
      // Queries and keys follow each other.
      for (int head = 0; head < config_.num_heads + config_.num_kv_heads;
           ++head) {
        kernels_.rotate(queries + head * dim,
                        Floats(cos_) + row * half,
                        Floats(sin_) + row * half,
                        half);
      }
      const int position = run.start + i;
      const auto block = static_cast<size_t>(position / kKvSlots);
      for (int head = 0; head < config_.num_kv_heads; ++head) {
        kernels_.store_kv(
            keys + head * dim,
            values + head * dim,
            dim,
            position % kKvSlots,
            KvBlocks(layer, head) + run.blocks[block] * block_values_);
      }
    });
  }
}

int64_t Int8Ops::ScratchFor(const AttendJob& job) const {
  return AttendScratch(job.run->start + job.first_row,
                       job.num_rows,
                       heads_per_kv_head_,
                       config_.head_dim);
}

void Int8Ops::PlanAttend(const Pass& pass) {
  jobs_.clear();
  const int threads = threads_.num_threads();
  for (const PassRun& run : pass.runs) {
    // A job for each thread at least, where there are rows for it.
    const int rows = std::clamp(
        (run.num_rows + threads - 1) / threads, 1, most_attend_rows_);
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
  PlanParts();
}

void Int8Ops::PlanParts() {
  parts_.clear();
  scratch_offsets_.clear();
  const int threads = threads_.num_threads();
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

AttendArgs Int8Ops::ArgsFor(const AttendJob& job,
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
          .heads = heads_per_kv_head_,
          .head_dim = config_.head_dim,
          .scale = score_scale_,
          .scratch = scratch};
}

void Int8Ops::Attend(const Pass& pass,
                     int layer,
                     const at::Tensor& qkv,
                     const at::Tensor& out) {
  if (layer == 0) {
    PlanAttend(pass);
  }
  if (parts_.empty()) {
    threads_.Run(static_cast<int>(jobs_.size()), [&](int piece, int thread) {
      // The last rows see the most positions: they go first.
      const size_t job = jobs_.size() - 1 - static_cast<size_t>(piece);
      kernels_.attend(
          ArgsFor(jobs_[job],
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
  threads_.Run(static_cast<int>(parts_.size()), [&](int piece, int) {
    const AttendPart& part = parts_[static_cast<size_t>(piece)];
    for (int chunk = part.first; chunk < part.end; ++chunk) {
      kernels_.attend_chunk(args(part.job), chunk);
    }
  });
  for (size_t job = 0; job < jobs_.size(); ++job) {
    kernels_.attend_fold(args(job));
  }
}

}  // namespace

int64_t Int8KvBlockBytes(const ModelConfig& config) {
  const int64_t values =
      kKvSlots * (config.head_dim + RoundUp(config.head_dim, 16));
  return values * config.num_layers * config.num_kv_heads *
         static_cast<int64_t>(sizeof(uint16_t));
}

std::unique_ptr<Ops> CreateInt8Ops(const ModelConfig& config,
                                   const Int8Options& options) {
  return std::make_unique<Int8Ops>(config, options);
}

}  // namespace specwire
