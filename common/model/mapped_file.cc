// SPDX-License-Identifier: Apache-2.0
#include "common/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace specwire {
namespace {

// Closes a descriptor at the end of its scope.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status SystemError(const std::string& path,
                         absl::string_view action,
                         int error) {
  const std::string message =
      absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(message);
  }
  if (error == ENOMEM) return absl::ResourceExhaustedError(message);
  return absl::InvalidArgumentError(message);
}

// Reads exactly `size` bytes from the file's start.
absl::Status ReadAll(const std::string& path,
                     int fd,
                     uint8_t* out,
                     size_t size) {
  constexpr size_t kMaxRead = size_t{1} << 30;
  size_t done = 0;
  while (done < size) {
    const ssize_t n = pread(fd,
                            out + done,
                            std::min(size - done, kMaxRead),
                            static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "read", errno);
    if (n == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": was cut short while it was read"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(
    const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return SystemError(path, "open", errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return SystemError(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  }
  if (info.st_size <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  const bool copy = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  void* data = copy ? mmap(nullptr,
                           size,
                           PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS,
                           -1,
                           0)
                    : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "map", errno);
  uint8_t* const bytes = static_cast<uint8_t*>(data);
  std::unique_ptr<MappedFile> file(new MappedFile(bytes, size));
  if (copy) {
    absl::Status status = ReadAll(path, fd.get(), bytes, size);
    if (!status.ok()) return status;
    mprotect(data, size, PROT_READ);
  }
  return file;
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data_), size_); }

}  // namespace specwire
