// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace specwire {

// The bytes of a regular file, read-only.
//
// The file is mapped, so several processes on a machine share one copy of it.
// A mapping has one danger: a page behind the end of a file that was cut short
// after it was mapped kills the process with SIGBUS. Therefore a file that
// others than its owner may write is read into memory of its own instead, and
// nobody but the owner can do it; the owner replaces a file in use by renaming
// a new one over it.
//
// Thread safety: const methods from any thread.
class MappedFile {
 public:
  // NOT_FOUND if there is no such file; INVALID_ARGUMENT if it is not a regular
  // file, is empty, or cannot be opened or read; RESOURCE_EXHAUSTED if it does
  // not fit in memory. Messages begin with the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(
      const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  // Start of a mapping of size_ bytes, of the file or of anonymous memory.
  const uint8_t* const data_;
  const size_t size_;
};

}  // namespace specwire
