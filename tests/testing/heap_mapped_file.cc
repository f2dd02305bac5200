// SPDX-License-Identifier: Apache-2.0
// MappedFile over a piece of the heap that ends where the file does, for
// programs built with AddressSanitizer: it sees a read one byte beyond the end,
// which in a mapping would go to the rest of the page. Linked in the place of
// common/model/mapped_file.cc; malloc, since the file's own bytes are not what
// LiveMemory is to count.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/model/mapped_file.h"

namespace specwire {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(
    const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot open"));
  }
  std::fseek(file, 0, SEEK_END);
  const auto size = static_cast<size_t>(std::ftell(file));
  std::rewind(file);
  auto* const data = static_cast<uint8_t*>(std::malloc(size));
  const bool complete =
      size > 0 && data != nullptr && std::fread(data, 1, size, file) == size;
  std::fclose(file);
  if (!complete) {
    std::free(data);
    return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  }
  return std::unique_ptr<MappedFile>(new MappedFile(data, size));
}

MappedFile::~MappedFile() { std::free(const_cast<uint8_t*>(data_)); }

}  // namespace specwire
