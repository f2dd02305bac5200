// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/vocabulary.h"
#include "common/model/config.h"
#include "common/model/model_files.h"

namespace specwire::cli {

// What can be told of a model without loading it.
struct ModelCard {
  // Tensors of one type.
  struct Tensors {
    std::string type;
    int64_t count = 0;
    int64_t bytes = 0;
  };
  // What the weights take in an engine.
  struct Weights {
    std::string engine;
    // As --dtype of the verifier, for the reference engine.
    std::string dtype;
    int64_t bytes = 0;
  };
  // ModelInfo::model_digest of a node with the engine, of the reference in
  // float32 on a CPU.
  struct Digest {
    std::string engine;
    std::string digest;
  };

  std::string path;
  std::string format;
  // What a cluster calls it.
  std::string name;
  ModelConfig config;
  // The embedding serves as the head.
  bool tied_head = false;
  // The files say themselves what each rotary frequency is divided by.
  bool rope_factors = false;
  // Values of all tensors.
  int64_t num_parameters = 0;
  // The type with the most bytes first.
  std::vector<Tensors> tensors;
  std::vector<Weights> weights;
  // Empty before AddModelDigests.
  std::vector<Digest> digests;
  Vocabulary vocabulary;
  // Why the chat template cannot be used, if it cannot. Without a template it
  // is OK.
  absl::Status chat_template;

  bool has_chat_template() const {
    return vocabulary.tokenizer != nullptr &&
           !vocabulary.tokenizer->model().chat_template.empty();
  }
};

// Errors name the file and the field, or the tensor.
absl::StatusOr<ModelCard> ReadModelCard(const ModelFiles& files);

// Fills in the digests, one for each of kEngineNames, for which it has to read
// all weights. Errors name the file and the tensor.
absl::Status AddModelDigests(const ModelFiles& files, ModelCard* card);

}  // namespace specwire::cli
