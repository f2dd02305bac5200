// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/gguf.h"

namespace specwire {

// Reads and checks the configuration of a GGUF file. Every number has a range,
// sizes divide as the model needs them to, and a feature that the forward pass
// lacks (experts, rotary scaling of an unknown kind) is an error, since leaving
// it out would give wrong text. What llama.cpp knows of an architecture without
// its file saying so (Gemma's scales and local layers) is filled in.
// `vocab_size` is the tokenizer's, and that of the head; `num_layers` 0 means
// all.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file,
                                           int vocab_size,
                                           int num_layers);

}  // namespace specwire
