// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What the int8 engine computes with: one set of functions for each instruction
// set, all of which give the same bits (docs/numerics.md has the arithmetic,
// operation by operation). They work on plain memory, know nothing of models
// and allocate nothing.
//
// This header is included by files that are compiled for processors which the
// machine may not have, so it holds declarations only: an inline function here
// could be kept by the linker in its AVX-512 form and kill an older processor.
//
// Thread safety: all functions are pure; different threads may write to
// different parts of one output.
namespace specwire {

enum class Isa { kScalar, kAvx2, kAvx512Vnni };

// "scalar", "avx2" or "avx512vnni": what SPECWIRE_ISA and reports call it.
const char* IsaName(Isa isa);

// Outputs in a block of a packed matrix, values in a group that shares a scale,
// and positions in a block of the KV cache.
inline constexpr int kBlockOutputs = 16;
inline constexpr int kGroupSize = 32;
inline constexpr int kKvSlots = 16;
// Positions whose weights and values are summed apart from those of others; the
// sums are then folded in order. Part of the arithmetic, not of its schedule.
inline constexpr int kAttendChunk = 256;
// Most rows * heads of one AttendArgs.
inline constexpr int kMaxAttendQueries = 512;

// 32 activations that share a scale: x = scale * value. Together, because the
// kernels read them together.
struct QuantizedGroup {
  int8_t values[kGroupSize];
  float scale;
  // -128 * (sum of the values): what weights stored as w + 128 add too much.
  int32_t offset;
  // scale * (sum of the values).
  float scaled_sum;
  float unused;
};

// Rows of activations, each `groups` groups long; the last group of a row is
// filled up with zeros.
struct QuantizedRows {
  QuantizedGroup* rows;  // [rows, groups]
  int64_t groups;
};

// How a packed matrix stores a weight.
enum class WeightForm {
  // w = scale * q, q in [-127, 127]; stored as q + 128 in a byte.
  kInt8,
  // w = scale * q + minimum, q in [0, 15]; two in a byte.
  kInt4,
};

// A weight matrix [outputs, groups * 32], packed by common/kernels/packing.h:
// blocks of 16 outputs, outputs beyond the last one being zero.
struct PackedMatrix {
  WeightForm form;
  int64_t outputs;
  int64_t groups;
  // kInt8: [blocks, groups, 8, 16, 4]: value 4 i + j of a group, for output o,
  // is byte (i, o, j). kInt4: [blocks, groups, 4, 16, 4]: the low half of byte
  // (i, o, j) is value 4 i + j, the high half is value 16 + 4 i + j.
  const uint8_t* weights;
  // Half precision. kInt8: [blocks, groups, 16] scales. kInt4: [blocks, groups,
  // 2, 16] scales, then minima.
  const uint16_t* scales;
};

// y = W x, or y += W x, for some blocks of W.
struct LinearArgs {
  PackedMatrix matrix;
  QuantizedRows x;
  int rows;
  // Row r's output o is y[r * y_stride + o].
  float* y;
  int64_t y_stride;
  bool add;
};

// Attention of some rows of one sequence under one KV head. A block of the
// cache holds 16 positions of one layer and KV head: keys [head_dim, 16], then
// values [16, head_dim rounded up to 16], in half precision.
struct AttendArgs {
  // Query of row r, head h: queries + r * query_stride + h * head_dim.
  const float* queries;
  int64_t query_stride;
  // Output, in the same way.
  float* out;
  int64_t out_stride;
  // The sequence's block b begins at cache + blocks[b] * block_stride.
  const uint16_t* cache;
  int64_t block_stride;
  const int32_t* blocks;
  // Position of the first row; row r sees the positions up to its own,
  // first_position + r.
  int first_position;
  int rows;
  // How many of them it sees, its own included, where that is not all: a
  // sliding window. 0: all.
  int window;
  // Query heads that share the KV head, or some of them.
  // REQUIRES: rows * heads <= kMaxAttendQueries.
  int heads;
  int head_dim;
  // What scores are multiplied by.
  float scale;
  // AttendScratch(...) floats.
  float* scratch;
};

// Floats that attend needs as scratch.
int64_t AttendScratch(int first_position, int rows, int heads, int head_dim);

// The functions of one instruction set.
struct Kernels {
  Isa isa;

  // Quantises x, [n], to row `row` of `out`.
  void (*quantize)(const float* x,
                   int64_t n,
                   const QuantizedRows& out,
                   int64_t row);
  // Quantises x / sqrt(mean(x^2) + eps) * norm.
  void (*rms_norm_quantize)(const float* x,
                            const float* norm,
                            int64_t n,
                            float eps,
                            const QuantizedRows& out,
                            int64_t row);
  // Quantises g / (1 + exp(-g)) * u for g = gate_up[0, n), u = gate_up[n, 2n).
  void (*gate_quantize)(const float* gate_up,
                        int64_t n,
                        const QuantizedRows& out,
                        int64_t row);
  // The same for gelu(g) * u, gelu(g) = g / (1 + exp(-2 sqrt(2 / pi)
  // (g + 0.044715 g^3))): the form with tanh of Hendrycks and Gimpel 2016.
  void (*gelu_gate_quantize)(const float* gate_up,
                             int64_t n,
                             const QuantizedRows& out,
                             int64_t row);
  // y = x / sqrt(mean(x^2) + eps) * norm, [n]; y may be x.
  void (*rms_norm)(
      const float* x, const float* norm, int64_t n, float eps, float* y);
  // Outputs of blocks [first_block, end_block) for all rows.
  void (*linear)(const LinearArgs& args,
                 int64_t first_block,
                 int64_t end_block);
  // Rotates the pairs (head[i], head[i + half]) by angles given as [half]
  // cosines and sines.
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t half);
  // Stores a position's key and value, [head_dim] each, in slot `slot` of a
  // cache block. Values beyond half precision become its largest.
  void (*store_kv)(const float* key,
                   const float* value,
                   int64_t head_dim,
                   int slot,
                   uint16_t* block);
  void (*attend)(const AttendArgs& args);
  // What attend does, in steps that threads can share: each chunk of
  // kAttendChunk positions, then the fold of all of them. Both take the same
  // scratch.
  void (*attend_chunk)(const AttendArgs& args, int chunk);
  void (*attend_fold)(const AttendArgs& args);
  // The largest value that is a number; -infinity if there is none.
  float (*max)(const float* values, int64_t n);
  // Index of the largest value, the lowest among equals; NaN is never chosen.
  // -1 if there is no number.
  int64_t (*arg_max)(const float* values, int64_t n);
  // out[i] = e^x[i], for tests of the function inside attend and gate_quantize.
  void (*exp)(const float* x, int64_t n, float* out);
};

// The functions for an instruction set; null if this processor lacks it.
const Kernels* KernelsFor(Isa isa);

// The functions for the best instruction set that this processor has.
const Kernels& BestKernels();

}  // namespace specwire
