// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/ggml_types.h"
#include "common/model/gguf_parser.h"

namespace specwire {

// One tensor as GgufWriter writes it; nothing in it needs to be right.
struct GgufTensorSpec {
  std::string name;
  // As in the file: fastest dimension first.
  std::vector<uint64_t> dimensions;
  // A GgmlType, or any other number.
  uint32_t type = 0;
  // The tensor's bytes.
  std::string data;
  // What the entry declares instead of the number of dimensions and the place
  // where the data was put.
  std::optional<uint32_t> rank;
  std::optional<uint64_t> offset;
};

// Makes GGUF files for tests: good ones, and broken ones by saying what the
// header declares instead of the truth.
//
// The last tensor's data is not padded, so the file ends where its data does
// and every proper prefix of it is broken.
//
// Thread safety: one thread at a time.
class GgufWriter {
 public:
  // Metadata, in the file's order; nothing stops a key from occurring twice.
  // An integer is cut to the width of `type`.
  void AddInt(absl::string_view key, GgufValueType type, int64_t value);
  void AddFloat32(absl::string_view key, float value);
  void AddFloat64(absl::string_view key, double value);
  void AddBool(absl::string_view key, bool value);
  void AddString(absl::string_view key, absl::string_view value);
  void AddIntArray(absl::string_view key,
                   GgufValueType type,
                   absl::Span<const int64_t> values);
  void AddStringArray(absl::string_view key,
                      absl::Span<const std::string> values);
  // An entry of any type number with any bytes as its value.
  void AddRaw(absl::string_view key, uint32_t type, absl::string_view bytes);

  // A tensor; `shape` has the outermost dimension first.
  void AddTensor(absl::string_view name,
                 GgmlType type,
                 absl::Span<const int64_t> shape,
                 absl::string_view data);
  // The tensors so far, to be tampered with.
  std::vector<GgufTensorSpec>& tensors() { return tensors_; }

  // What the header declares; the counts default to the truth.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> metadata_count;
  // Where tensor data is put. Does not write general.alignment.
  uint64_t alignment = 32;

  // The file's bytes.
  std::string Build() const;

 private:
  uint64_t num_metadata_ = 0;
  std::string metadata_;
  std::vector<GgufTensorSpec> tensors_;
};

// The low `size` bytes of `value`, little-endian.
std::string LittleEndian(uint64_t value, int size);

// Numbers as a file holds them.
std::string PackFloats(absl::Span<const float> values);

// `text` after its 8-byte length.
std::string PackString(absl::string_view text);

// Writes a file, replacing what was there; false if that fails.
bool WriteBytes(const std::string& path, absl::string_view bytes);

}  // namespace specwire
