// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/file_tensor.h"

namespace specwire {

// Types of metadata values; numbers are the format's.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "U32", "STRING" and so on.
absl::string_view GgufValueTypeName(GgufValueType type);

// Bytes of one value, 0 for STRING and ARRAY.
size_t GgufValueSize(GgufValueType type);

// Bounds on what a file may declare; all are far above what models have. The
// numbers of metadata entries and of tensors are bounded by MaxTensors too.
struct GgufLimits {
  static constexpr uint64_t kMaxMetadata = 1 << 16;
  static constexpr uint64_t kMaxTensors = 1 << 17;
  static constexpr uint64_t kMaxKeyBytes = (1 << 16) - 1;
  static constexpr uint64_t kMaxTensorNameBytes = 64;
  static constexpr uint64_t kMaxStringBytes = 1 << 24;
  static constexpr uint64_t kMaxArrayLength = 1 << 24;
  // Longer arrays are handed out only where that takes less than twice their
  // bytes in the file: strings of 2 bytes on average, integers of 32 or 64
  // bits.
  static constexpr uint64_t kMaxSmallArray = 1024;
  static constexpr uint32_t kMaxRank = 4;
  static constexpr uint32_t kMinAlignment = 8;
  static constexpr uint32_t kMaxAlignment = 1 << 16;
};

// One metadata value, as it lies in the file. Lengths have been checked, so a
// walk over `count` elements stays inside `bytes`.
struct GgufValue {
  GgufValueType type;
  // For an ARRAY its elements' type, else the same as `type`.
  GgufValueType element_type;
  // Number of elements; 1 unless an ARRAY.
  uint64_t count;
  // The elements, packed; strings carry their 8-byte lengths.
  absl::Span<const uint8_t> bytes;
};

// What stands before the tensor data, and where each tensor lies. Views point
// into the parsed bytes.
struct GgufHeader {
  uint32_t version;
  absl::flat_hash_map<absl::string_view, GgufValue> metadata;
  TensorTable tensors;
};

// Parses a whole file, which errors of its TensorTable call `path`. Errors of
// the parser itself are INVALID_ARGUMENT, "<field>: <problem>".
// The memory that it takes is less than half of bytes.size() and 64 KiB.
absl::StatusOr<GgufHeader> ParseGguf(const std::string& path,
                                     absl::Span<const uint8_t> bytes);

}  // namespace specwire
