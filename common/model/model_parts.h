// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/draft_model.h"
#include "common/model/model_files.h"
#include "common/model/weights.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// What an engine reads of a model's files before its matrices. No torch here.
//
// Lifetime: the files must outlive it.
struct ModelParts {
  // Errors name the file, and the field or the tensor. `num_layers` as in
  // ModelFiles::ReadConfig.
  static absl::StatusOr<ModelParts> Read(const ModelFiles& files,
                                         int num_layers);

  // `status`, naming the model if it does not yet.
  absl::Status InFile(const absl::Status& status) const;

  const ModelFiles* files;
  std::optional<DraftModelInfo> draft;
  // Of a draft model, empty.
  TokenizerModel tokenizer;
  ModelConfig config;
  ModelWeights weights;
  // See ModelWeights::RopeFactors.
  std::vector<float> rope_factors;
};

}  // namespace specwire
