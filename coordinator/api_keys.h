// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace specwire::coordinator {

// SHA-256, in hexadecimal, of the key in the metadata or header
// "authorization": "Bearer KEY". Empty if there is none.
std::string KeyDigest(absl::string_view authorization);

// Keys of users or of operators: a file with the SHA-256 of one key a line, as
// 64 hexadecimal digits, and behind it, if wanted, the name of whoever has it.
// Empty lines and what follows a '#' are left out. The keys themselves are
// nowhere.
//
// Thread safety: any thread.
class ApiKeys {
 public:
  // INVALID_ARGUMENT "api_keys: ..." names the file and the line, never what
  // stands there. `flag` is the name that it begins with.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Load(
      const std::string& path, const std::string& flag = "api_keys");

  // OK if `authorization`, the metadata or header of that name, is "Bearer KEY"
  // with one of the keys; else UNAUTHENTICATED. How long it takes does not
  // depend on how near a key comes.
  absl::Status Check(absl::string_view authorization) const;

  // Reads the file again if it has changed; if that fails the keys stay as they
  // are, and it is logged once. REQUIRES: one thread at a time.
  void Refresh();

  size_t size() const;

 private:
  using Digest = std::array<unsigned char, 32>;
  // What tells one state of the file from another.
  struct Version {
    int64_t inode = 0;
    int64_t size = -1;
    int64_t changed_ns = 0;
    bool operator==(const Version&) const = default;
  };

  ApiKeys(std::string path, std::string flag)
      : path_(std::move(path)), flag_(std::move(flag)) {}
  Version CurrentVersion() const;
  absl::StatusOr<std::vector<Digest>> Read() const;

  const std::string path_;
  const std::string flag_;
  // Of Refresh.
  Version version_;
  mutable Mutex mutex_;
  std::vector<Digest> digests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::coordinator
