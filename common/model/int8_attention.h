// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/kernels.h"
#include "common/model/config.h"
#include "common/model/ops.h"
#include "common/model/thread_pool.h"

namespace specwire {

struct Int8AttentionOptions {
  // Longest sequence.
  int max_model_len = 0;
  // What each rotary frequency is divided by; empty or head_dim / 2 numbers.
  std::vector<float> rope_factors;
  const Kernels* kernels = nullptr;
  ThreadPool* threads = nullptr;
};

// The int8 engine's cache of keys and values, in half precision, and attention
// over it: rotation, storing, and who computes what. Methods are those of Ops.
//
// Thread safety: one thread, the engine's.
// Lifetime: kernels and threads must outlive it.
class Int8Attention {
 public:
  Int8Attention(const ModelConfig& config, const Int8AttentionOptions& options);

  void AllocateKvCache(int num_blocks);
  void PoisonKvBlock(int32_t block, int slot);
  void RotateAndStore(const Pass& pass, int layer, const at::Tensor& qkv);
  void Attend(const Pass& pass,
              int layer,
              const at::Tensor& qkv,
              const at::Tensor& out);
  void ReadKeys(const PassRun& run,
                int layer,
                int kv_head,
                absl::Span<float> keys) const;

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

  // Where a row of the pass stands.
  struct PassRow {
    int position;
    int32_t block;  // of the position
  };

  // Angles by which rows are rotated.
  struct Rotations {
    std::vector<float> frequencies;  // [d / 2]
    at::Tensor cos;  // [kMaxRows, d / 2] f32, a row of the pass each
    at::Tensor sin;  // the same
  };

  // Finds the rows' places and rotations for the whole pass.
  void PlanRows(const Pass& pass);
  void PlanRotations(int num_rows, Rotations* rotations);
  Rotations MakeRotations(float theta, const std::vector<float>& factors) const;
  const Rotations& RotationsOf(int layer) const {
    return config_.is_local(layer) && config_.local_rope_theta > 0
               ? local_rotations_
               : rotations_;
  }
  // Block 0 of a layer's KV head.
  uint16_t* KvBlocks(int layer, int kv_head) const;
  // Plans a pass's attention, the same for all layers; local ones leave out
  // what lies before their window.
  void PlanAttend(const Pass& pass);
  void PlanParts();
  // Scores of a job, nearly.
  static int64_t Cost(const AttendJob& job);
  int64_t ScratchFor(const AttendJob& job) const;
  AttendArgs ArgsFor(const AttendJob& job,
                     int layer,
                     const at::Tensor& qkv,
                     const at::Tensor& out,
                     float* scratch) const;

  const ModelConfig config_;
  const Kernels* const kernels_;
  ThreadPool* const threads_;
  // Half-precision numbers in a block: of one layer and KV head, and in all.
  const int64_t head_values_;
  const int64_t block_values_;
  const int heads_per_kv_head_;
  const int most_attend_rows_;
  Rotations rotations_;
  Rotations local_rotations_;  // empty unless local layers have their own
  at::Tensor cache_;  // f16 in bytes: [blocks, layers, Hkv, head_values_]
  std::vector<at::Tensor> attend_scratch_;  // f32, one for each thread
  at::Tensor shared_scratch_;               // f32, for jobs that threads share
  // The plan for the current pass.
  std::vector<PassRow> rows_;
  std::vector<AttendJob> jobs_;
  std::vector<AttendPart> parts_;         // empty if threads share no job
  std::vector<int64_t> scratch_offsets_;  // of each job
};

}  // namespace specwire
