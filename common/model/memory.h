// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/config.h"
#include "common/model/file_tensor.h"
#include "common/model/tensor_names.h"

// What a model takes in memory: the engines reckon with it, and so does whoever
// has to tell before a model is loaded. No torch here.

namespace specwire {

// Half-precision numbers of one KV block of the int8 engine, of one layer and
// KV head.
int64_t Int8KvHeadValues(const ModelConfig& config);

// Bytes of one KV block, all computed layers, of the int8 engine and of the
// reference engine.
int64_t Int8KvBlockBytes(const ModelConfig& config);
int64_t AtenKvBlockBytes(const ModelConfig& config);

// Bytes of the KV blocks that a sequence of `num_tokens` takes.
// REQUIRES: `engine` is one of kEngineNames, num_tokens >= 0.
int64_t KvBytes(absl::string_view engine,
                const ModelConfig& config,
                int64_t num_tokens);

// Bytes of the matrices of the computed layers, of the embedding and of the
// head, as the engine keeps them; the rest of a model (norms, biases) is small
// beside them. What int8 keeps of Q4_0 is told for scales below 8188, as those
// of real models are. INVALID_ARGUMENT or NOT_FOUND naming the tensor if one of
// the matrices is absent or has another shape.
// REQUIRES: `engine` and `dtype` go together: CheckFormat.
absl::StatusOr<int64_t> WeightBytes(absl::string_view engine,
                                    absl::string_view dtype,
                                    const TensorTable& tensors,
                                    TensorNaming naming,
                                    const ModelConfig& config);

}  // namespace specwire
