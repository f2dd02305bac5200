// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/draft_model.h"
#include "common/model/file_tensor.h"
#include "common/model/tensor_names.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// A model as it lies on a disk: a GGUF file, or a Hugging Face folder of
// config.json, safetensors and tokenizer.json. The files are untrusted; every
// error names one of them, the field and what is wrong with it. No pickle is
// ever read.
//
// Thread safety: const methods from any thread.
// Lifetime: tensors that it hands out live as long as it.
class ModelFiles {
 public:
  // A folder, or a file. NOT_FOUND if there is nothing at `path`.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(
      const std::string& path);
  virtual ~ModelFiles() = default;

  const std::string& path() const { return path_; }
  // "GGUF" or "Hugging Face folder".
  virtual std::string format() const = 0;
  // The file's stem, or the folder's name.
  std::string name() const;

  virtual TensorNaming naming() const = 0;
  virtual const TensorTable& tensor_table() const = 0;
  // Nothing unless it is a draft model, which has no tokenizer.
  virtual absl::StatusOr<std::optional<DraftModelInfo>> ReadDraftModel()
      const = 0;
  virtual absl::StatusOr<TokenizerModel> ReadTokenizer() const = 0;
  // See ReadGgufConfig and ReadHfConfig.
  virtual absl::StatusOr<ModelConfig> ReadConfig(int vocab_size,
                                                 int num_layers) const = 0;

 protected:
  explicit ModelFiles(std::string path) : path_(std::move(path)) {}

 private:
  const std::string path_;
};

}  // namespace specwire
