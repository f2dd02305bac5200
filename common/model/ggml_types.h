// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  kQ8_0 = 8,
  kBF16 = 30,
};

// How a tensor type lies in memory. A row is a sequence of blocks, each of
// `block_size` values in `block_bytes` bytes, little-endian, without padding:
//   F32, F16, BF16  one value
//   Q8_0  f16 scale d, 32 int8 q;                      value = d * q
//   Q4_0  f16 scale d, 16 bytes of nibbles q;          value = d * (q - 8)
//   Q4_1  f16 scale d, f16 minimum m, 16 bytes of q;   value = d * q + m
// Low nibbles are values 0 to 15 of a block, high nibbles 16 to 31.
struct GgmlTypeInfo {
  const char* name;
  int64_t block_size;
  int64_t block_bytes;
};

const GgmlTypeInfo& InfoOf(GgmlType type);

// Expands one block and returns false if its scale, minimum or value is not
// finite. `block` need not be aligned.
using BlockExpander = bool (*)(const uint8_t* block, float* out);
// Null if `type` is none of the enumerators.
BlockExpander BlockExpanderOf(GgmlType type);

// The type with this number in a file, if the reader knows it.
std::optional<GgmlType> KnownGgmlType(uint32_t value);

// ggml's name of a type number, known to the reader or not ("Q4_K"); "unknown
// (99)" if ggml has none.
std::string GgmlTypeName(uint32_t value);

}  // namespace specwire
