// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// Tensor types that the reader knows; values are ggml's.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// How a tensor type lies in memory. A row is a sequence of blocks, each of
// `block_size` values in `block_bytes` bytes, little-endian, without padding:
//   F32, F16, BF16  one value
//   Q8_0  f16 scale d, 32 int8 q;                      value = d * q
//   Q4_0  f16 scale d, 16 bytes of nibbles q;          value = d * (q - 8)
//   Q4_1  f16 scale d, f16 minimum m, 16 bytes of q;   value = d * q + m
//   Q5_0  f16 d, 32 high bits, 16 bytes of nibbles;    value = d * (q - 16)
//   Q5_1  f16 d, f16 m, 32 high bits, 16 bytes;        value = d * q + m
// Low nibbles are values 0 to 15 of a block, high nibbles 16 to 31; high bit i
// is bit 4 of value i.
//
// A K type's block has 256 values, in groups with integer scales of their own:
//   Q4_K  f16 d, f16 m, 12 bytes of scales, 128 bytes of nibbles;
//         8 groups of 32, each with a scale s and a minimum t of 6 bits;
//         value = (d * s) * q - (m * t)
//   Q5_K  the same with 32 bytes of high bits before the nibbles
//   Q6_K  128 bytes of nibbles, 64 bytes of 2-bit high parts, 16 int8 scales s,
//         f16 d; 16 groups of 16;                      value = (d * s) * (q -
//         32)
// Q4_K, Q5_K: 32 bytes of nibbles serve two groups, the low ones the first. In
// the high bits' byte i, bit g is bit 4 of value i of group g. Of the scales'
// bytes, 0 to 3 have the low 6 bits for s and 4 to 7 those for t of groups 0 to
// 3; for groups 4 to 7, bytes 8 to 11 have the low 4 bits of s and of t as low
// and high nibbles, and the top bits of bytes 0 to 7 are their upper 2 bits.
// Q6_K: 64 bytes of nibbles serve 128 values, low nibbles the first 64, and so
// do 32 bytes of high parts, the lowest 2 bits of each the first 32.
struct GgmlTypeInfo {
  const char* name;
  int64_t block_size;
  int64_t block_bytes;
};

const GgmlTypeInfo& InfoOf(GgmlType type);

// Expands `count` blocks, which need not be aligned, and returns the number of
// the first one whose scale, minimum or value is not finite; `count` if there
// is none.
using BlockExpander = size_t (*)(const uint8_t* blocks,
                                 size_t count,
                                 float* out);
// Null if `type` is none of the enumerators.
BlockExpander BlockExpanderOf(GgmlType type);

// The type with this number in a file, if the reader knows it.
std::optional<GgmlType> KnownGgmlType(uint32_t value);

// ggml's name of a type number, known to the reader or not ("Q4_K"); "unknown
// (99)" if ggml has none.
std::string GgmlTypeName(uint32_t value);

}  // namespace specwire
