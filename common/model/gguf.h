// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/file_tensor.h"

namespace specwire {

// A GGUF model file (versions 2 and 3, little-endian), memory-mapped read-only;
// a file that others than its owner may write is read into memory instead
// (common/model/mapped_file.h says why).
//
// The file is untrusted: no count, offset, length or type in it is believed
// before it has been checked against the bytes that are really there. Every
// error is INVALID_ARGUMENT (NOT_FOUND if the file is missing,
// RESOURCE_EXHAUSTED if it does not fit in memory) and names the file, the
// field and what is wrong with it. Metadata that nobody asks for may have any
// value that the format allows. Limits: common/model/gguf_parser.h.
//
// Thread safety: const methods from any thread.
// Lifetime: strings, spans and tensors that it hands out live as long as it.
class GgufFile {
 public:
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(
      const std::string& path);
  // The same for bytes in memory, which must outlive the GgufFile; `path` is
  // the name that errors give them.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(
      const std::string& path, absl::Span<const uint8_t> bytes);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const;
  uint32_t version() const;

  // Metadata. Each getter checks the type that the file declares (any integer
  // type serves GetInt if the value fits, F32 and F64 serve GetFloat) and
  // returns NOT_FOUND naming the key if it is absent. Strings are valid UTF-8.
  // Long arrays of tiny values are refused: GgufLimits::kMaxSmallArray.
  bool Has(absl::string_view key) const;
  // REQUIRES: min <= max. A value outside [min, max] is an error.
  absl::StatusOr<int64_t> GetInt(absl::string_view key,
                                 int64_t min,
                                 int64_t max) const;
  absl::StatusOr<double> GetFloat(absl::string_view key,
                                  double min,
                                  double max) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;
  absl::StatusOr<std::vector<absl::string_view>> GetStringArray(
      absl::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> GetIntArray(absl::string_view key) const;
  absl::StatusOr<std::vector<bool>> GetBoolArray(absl::string_view key) const;
  // Of F32.
  absl::StatusOr<std::vector<float>> GetFloatArray(absl::string_view key) const;

  // All tensors.
  const TensorTable& tensor_table() const;

  // An error about this file: "<path>: <field>: <problem>".
  absl::Status Error(absl::string_view field, absl::string_view problem) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
