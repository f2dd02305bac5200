// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/draft_model.h"
#include "common/model/model_files.h"
#include "common/text/tokenizer.h"

namespace specwire::cli {

// The tokens that a model speaks of. One model can draft for another if the
// same ids stand for the same tokens.
struct Vocabulary {
  // What messages call the model.
  std::string path;
  // Tokenizer::fingerprint.
  std::string fingerprint;
  int size = 0;
  // Null for a draft model, which knows its target's by the fingerprint.
  std::unique_ptr<Tokenizer> tokenizer;
  // Of a draft model.
  std::optional<DraftModelInfo> draft;
};

// Errors name the file and the field.
absl::StatusOr<Vocabulary> ReadVocabulary(const ModelFiles& files);

// FAILED_PRECONDITION with a sentence that says why if `draft` cannot draft for
// `target`.
absl::Status CheckPair(const Vocabulary& draft, const Vocabulary& target);

// The same for files or folders; other errors than FAILED_PRECONDITION if one
// of them cannot be read.
absl::Status CheckPairOfFiles(const std::string& draft,
                              const std::string& target);

}  // namespace specwire::cli
