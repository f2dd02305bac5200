// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_parts.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire {

absl::StatusOr<ModelParts> ModelParts::Read(const ModelFiles& files,
                                            int num_layers) {
  SPECWIRE_ASSIGN_OR_RETURN(std::optional<DraftModelInfo> draft,
                            files.ReadDraftModel());
  TokenizerModel tokenizer;
  if (!draft.has_value()) {
    SPECWIRE_ASSIGN_OR_RETURN(tokenizer, files.ReadTokenizer());
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      ModelConfig config,
      files.ReadConfig(draft.has_value()
                           ? draft->vocab_size
                           : static_cast<int>(tokenizer.tokens.size()),
                       num_layers));
  if (draft.has_value() && !draft->head_token_ids.empty()) {
    config.head_size = static_cast<int>(draft->head_token_ids.size());
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      ModelWeights weights,
      ModelWeights::Create(&files.tensor_table(), files.naming(), config));
  ModelParts parts = {.files = &files,
                      .draft = std::move(draft),
                      .tokenizer = std::move(tokenizer),
                      .config = std::move(config),
                      .weights = std::move(weights),
                      .rope_factors = {}};
  absl::StatusOr<std::vector<float>> rope_factors = parts.weights.RopeFactors();
  if (!rope_factors.ok()) return parts.InFile(rope_factors.status());
  parts.rope_factors = *std::move(rope_factors);
  return parts;
}

absl::Status ModelParts::InFile(const absl::Status& status) const {
  if (status.ok() || absl::StrContains(status.message(), files->path())) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(files->path(), ": ", status.message()));
}

}  // namespace specwire
