// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/gguf.h"
#include "common/model/gguf_config.h"
#include "common/model/gguf_tokenizer.h"
#include "common/model/hf_config.h"
#include "common/model/hf_tokenizer.h"
#include "common/model/safetensors.h"

namespace specwire {
namespace {

namespace fs = std::filesystem;

class GgufModel final : public ModelFiles {
 public:
  explicit GgufModel(std::unique_ptr<GgufFile> file)
      : ModelFiles(file->path()), file_(std::move(file)) {}

  std::string format() const override { return "GGUF"; }
  TensorNaming naming() const override { return TensorNaming::kGguf; }
  const TensorTable& tensor_table() const override {
    return file_->tensor_table();
  }
  absl::StatusOr<std::optional<DraftModelInfo>> ReadDraftModel()
      const override {
    return ReadDraftModelInfo(*file_);
  }
  absl::StatusOr<TokenizerModel> ReadTokenizer() const override {
    return ReadTokenizerModel(*file_);
  }
  absl::StatusOr<ModelConfig> ReadConfig(int vocab_size,
                                         int num_layers) const override {
    return ReadGgufConfig(*file_, vocab_size, num_layers);
  }

 private:
  const std::unique_ptr<GgufFile> file_;
};

class HfFolder final : public ModelFiles {
 public:
  HfFolder(const std::string& path, std::unique_ptr<SafetensorsModel> weights)
      : ModelFiles(path), weights_(std::move(weights)) {}

  std::string format() const override { return "Hugging Face folder"; }
  TensorNaming naming() const override { return TensorNaming::kHuggingFace; }
  const TensorTable& tensor_table() const override {
    return weights_->tensor_table();
  }
  absl::StatusOr<std::optional<DraftModelInfo>> ReadDraftModel()
      const override {
    return std::optional<DraftModelInfo>();
  }
  absl::StatusOr<TokenizerModel> ReadTokenizer() const override {
    return ReadHfTokenizer(path());
  }
  absl::StatusOr<ModelConfig> ReadConfig(int vocab_size,
                                         int num_layers) const override {
    SPECWIRE_ASSIGN_OR_RETURN(ModelConfig config,
                              ReadHfConfig(path(), vocab_size, num_layers));
    // A head that has been left out by mistake is not the embedding.
    const std::string head = NamesFor(naming(), config).head;
    if (!config.tied_head && tensor_table().Find(head) == nullptr) {
      return tensor_table().Error(
          absl::StrCat("tensor ", head),
          "is absent, and config.json does not say tie_word_embeddings");
    }
    return config;
  }

 private:
  const std::unique_ptr<SafetensorsModel> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(
    const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file,
                              GgufFile::Open(path));
    return std::make_unique<GgufModel>(std::move(file));
  }
  // A folder without its slash, so that it has a name.
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsModel> weights,
                            SafetensorsModel::Open(folder));
  return std::make_unique<HfFolder>(folder, std::move(weights));
}

std::string ModelFiles::name() const {
  const fs::path path = fs::path(path_).lexically_normal();
  if (format() == "GGUF") return path.stem().string();
  // "." and ".." are no names.
  std::error_code error;
  const std::string name = fs::absolute(path, error).filename().string();
  return name.empty() || name == "." ? "model" : name;
}

}  // namespace specwire
