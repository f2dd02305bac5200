// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/file_tensor.h"

namespace specwire {

// Bounds on what a file may declare; all are far above what models have.
struct SafetensorsLimits {
  // The format's own.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMaxRank = 4;
};

// Adds the tensors of one safetensors file, in the order of its header.
// `max_tensors` is the most that the table may have then. Errors are
// INVALID_ARGUMENT, "<field>: <problem>"; the table may have some of the
// tensors then.
absl::Status ParseSafetensors(absl::Span<const uint8_t> bytes,
                              size_t max_tensors,
                              TensorTable* table);

}  // namespace specwire
