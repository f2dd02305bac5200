// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/ggml_types.h"

namespace specwire {

// One tensor of a model file, whatever the file's format.
struct FileTensor {
  std::string name;
  GgmlType type;
  // Outermost dimension first: [rows, columns].
  std::vector<int64_t> shape;
  // The tensor's blocks as they lie in the file (common/model/ggml_types.h);
  // valid as long as the file is open. Not aligned for any type in general.
  absl::Span<const uint8_t> data;

  int64_t num_elements() const;
  // All dimensions but the last; 1 for a vector.
  int64_t num_rows() const;
};

// Expands a tensor to float32, rows in order. Bit-equal to the `gguf` Python
// package's dequantize(). A block scale or value that is not finite is
// INVALID_ARGUMENT, "tensor <name>: ..." without the file's path.
// REQUIRES: out.size() == tensor.num_elements().
absl::Status ExpandToFloat(const FileTensor& tensor, absl::Span<float> out);

// The same for `num_rows` rows from `first_row` on.
// REQUIRES: they are rows of the tensor.
absl::Status ExpandRows(const FileTensor& tensor,
                        int64_t first_row,
                        int64_t num_rows,
                        absl::Span<float> out);

// The most tensors that model files of `num_bytes` may declare: what is kept of
// a tensor takes hundreds of bytes, and shall not be much beside the files.
// Real models have thousands of times more bytes than this asks for.
constexpr size_t MaxTensors(size_t num_bytes) { return 64 + num_bytes / 2048; }

// The tensors of a model file by name, in the file's order.
//
// Thread safety: const methods from any thread.
// Lifetime: the tensors that it hands out live as long as it, if none is added;
// their data as long as the file that gave it.
class TensorTable {
 public:
  // `path` is the name that errors give the file.
  explicit TensorTable(std::string path) : path_(std::move(path)) {}

  // Makes room for `num_tensors` in all.
  void Reserve(size_t num_tensors);
  // False, and nothing is added, if a tensor of that name is there already.
  [[nodiscard]] bool Add(FileTensor tensor);

  const std::string& path() const { return path_; }
  absl::Span<const FileTensor> tensors() const { return tensors_; }

  // Null if there is none of that name.
  const FileTensor* Find(absl::string_view name) const;
  // NOT_FOUND if there is none of that name; INVALID_ARGUMENT if its shape is
  // not `shape`.
  absl::StatusOr<const FileTensor*> FindTensor(
      absl::string_view name, absl::Span<const int64_t> shape) const;

  // An error about the file: "<path>: <field>: <problem>".
  absl::Status Error(absl::string_view field, absl::string_view problem) const;

 private:
  std::string path_;
  std::vector<FileTensor> tensors_;
  // Place in tensors_ by name.
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace specwire
