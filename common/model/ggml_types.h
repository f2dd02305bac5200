// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model/gguf.h"

namespace specwire {

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

// The type with this number in a file, if the reader knows it.
std::optional<GgmlType> KnownGgmlType(uint32_t value);

// ggml's name of a type number, known to the reader or not ("Q4_K"); "unknown
// (99)" if ggml has none.
std::string GgmlTypeName(uint32_t value);

}  // namespace specwire
