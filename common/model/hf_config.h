// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/model/config.h"

namespace specwire {

// Reads and checks config.json, and the end tokens of generation_config.json
// where there is one, of a Hugging Face folder. What a family does without its
// file saying so, and the defaults of keys that it may leave out, are those of
// transformers' configuration classes. A feature that the forward pass lacks is
// an error that names it, since leaving it out would give wrong text; keys of
// no meaning to it are skipped. `vocab_size` is the tokenizer's; `num_layers` 0
// means all.
//
// Errors are INVALID_ARGUMENT (NOT_FOUND without a config.json) and name the
// file and the key. A file has 1 MiB at most, and the limits of ReadJsonParts,
// which bound the memory.
absl::StatusOr<ModelConfig> ReadHfConfig(const std::string& folder,
                                         int vocab_size,
                                         int num_layers);

}  // namespace specwire
