// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/file_tensor.h"
#include "common/model/mapped_file.h"

namespace specwire {

// The tensors of a Hugging Face model folder: those of model.safetensors, or of
// the files that model.safetensors.index.json lists. Types F32, F16 and BF16.
// The files are mapped as GgufFile's is.
//
// The files are untrusted: no length or offset is believed before it has been
// checked, and the header is read without building a document of it. An index
// must list every tensor of its files, each in the file that has it; names of
// files are plain, so that they lie in the folder. Every error is
// INVALID_ARGUMENT (NOT_FOUND if a file is missing, RESOURCE_EXHAUSTED if one
// does not fit in memory) and names the file, the tensor and what is wrong with
// it. Limits: common/model/safetensors_parser.h.
//
// Thread safety: const methods from any thread.
// Lifetime: the tensors that it hands out live as long as it.
class SafetensorsModel {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsModel>> Open(
      const std::string& folder);
  SafetensorsModel(const SafetensorsModel&) = delete;
  SafetensorsModel& operator=(const SafetensorsModel&) = delete;

  // All tensors, those of the first file first. Its path is that of
  // model.safetensors or of the index.
  const TensorTable& tensor_table() const { return tensors_; }

 private:
  explicit SafetensorsModel(std::string path) : tensors_(std::move(path)) {}

  // Adds the tensors of a file.
  absl::Status Add(const std::string& path, std::unique_ptr<MappedFile> file);
  absl::Status AddShards(const std::string& folder, const MappedFile& index);

  std::vector<std::unique_ptr<MappedFile>> files_;
  // Of all files.
  size_t num_bytes_ = 0;
  TensorTable tensors_;
};

}  // namespace specwire
