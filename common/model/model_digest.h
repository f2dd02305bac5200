// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/model/model_parts.h"

// A model digest covers what decides a model's results in an engine, bit by
// bit: the engine's arithmetic, the configuration, the tokenizer and the
// weights as the engine has them. An engine makes it while it loads; here it is
// told without loading. No torch here.

namespace specwire {

// What of an engine a model digest covers.
struct EngineNumerics {
  // Its name in EngineOptions.
  std::string engine;
  // How keys and values are stored.
  std::string kv_type;
  // A word that changes whenever any bit of a result may change.
  std::string numerics_version;
};

// Of the int8 engine, and of the reference engine in float32 on a CPU.
EngineNumerics Int8Numerics();
EngineNumerics ReferenceNumerics();

// Opens a digest: all that comes before the weights.
void AddModelHead(const EngineNumerics& numerics,
                  const ModelParts& parts,
                  Sha256* digest);

// Appends a norm or a bias; nothing for one that the model has not, which the
// configuration tells.
void AddVector(absl::Span<const float> vector, Sha256* digest);

// The model_digest of ModelInfo that the engine would have with such a model;
// of the reference engine, in float32 on a CPU. Reads all weights once, in the
// memory of a row. INVALID_ARGUMENT naming the file and the tensor if a weight
// is not finite.
// REQUIRES: `engine` is one of kEngineNames.
absl::StatusOr<std::string> ModelDigest(const ModelParts& parts,
                                        absl::string_view engine);

}  // namespace specwire
