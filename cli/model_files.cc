// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/vocabulary.h"

namespace specwire::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultModel[] = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kDraftModel[] =
    "draft_node/models/SmolLM2-135M-Instruct-draft.gguf";

// The file in the working folder or above `folder`.
std::optional<std::string> FindFile(const std::string& folder,
                                    const char* file) {
  std::error_code error;
  if (fs::exists(file, error)) return std::string(file);
  for (fs::path path = folder;; path = path.parent_path()) {
    if (fs::exists(path / file, error)) return (path / file).string();
    if (path == path.parent_path()) return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::string> FindDefaultModel(const std::string& folder) {
  std::optional<std::string> found = FindFile(folder, kDefaultModel);
  if (found.has_value()) return *std::move(found);
  return absl::NotFoundError(
      absl::StrCat("there is no ",
                   kDefaultModel,
                   " here or above the program; run scripts/setup.sh, or name "
                   "a model with --model"));
}

std::optional<std::string> FindDraftModel(const std::string& folder,
                                          const std::string& target) {
  std::optional<std::string> found = FindFile(folder, kDraftModel);
  if (!found.has_value()) return std::nullopt;
  // Whoever loads the files will say what is wrong with one that is not read.
  return CheckPairOfFiles(*found, target).ok() ? found : std::nullopt;
}

}  // namespace specwire::cli
