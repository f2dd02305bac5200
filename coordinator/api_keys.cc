// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <openssl/crypto.h>
#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace specwire::coordinator {
namespace {

// Each call is compared with every key.
constexpr size_t kMaxKeys = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kDigestDigits = 64;

// A whole file of bounded size.
absl::StatusOr<std::string> ReadFile(const std::string& flag,
                                     const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     ": cannot read ",
                     path,
                     ": ",
                     errno == 0 ? "it is no file" : std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": ", path, " is larger than ", kMaxFileBytes, " bytes"));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(
    const std::string& path, const std::string& flag) {
  std::unique_ptr<ApiKeys> keys(new ApiKeys(path, flag));
  // Asked before the file is read: a change meanwhile is seen later.
  keys->version_ = keys->CurrentVersion();
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<Digest> digests, keys->Read());
  MutexLock lock(&keys->mutex_);
  keys->digests_ = std::move(digests);
  return keys;
}

ApiKeys::Version ApiKeys::CurrentVersion() const {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return {};
  return {static_cast<int64_t>(status.st_ino),
          status.st_size,
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

absl::StatusOr<std::vector<ApiKeys::Digest>> ApiKeys::Read() const {
  SPECWIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flag_, path_));
  std::vector<Digest> digests;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const absl::string_view digits = line.substr(0, kDigestDigits);
    const bool ends =
        line.size() == digits.size() ||
        absl::ascii_isspace(static_cast<unsigned char>(line[digits.size()]));
    const bool right =
        digits.size() == kDigestDigits && ends &&
        std::all_of(digits.begin(), digits.end(), [](unsigned char c) {
          return absl::ascii_isxdigit(c);
        });
    if (!right) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag_,
                       ": ",
                       path_,
                       ", line ",
                       number,
                       ": does not begin with a SHA-256 of 64 hexadecimal "
                       "digits (of a key: printf %s KEY | sha256sum)"));
    }
    if (digests.size() == kMaxKeys) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag_, ": ", path_, " has more than ", kMaxKeys, " keys"));
    }
    const std::string bytes = absl::HexStringToBytes(digits);
    std::copy(bytes.begin(), bytes.end(), digests.emplace_back().begin());
  }
  return digests;
}

std::string KeyDigest(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return "";
  Sha256 sha;
  sha.Update(absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
  return sha.FinishHex();
}

absl::Status ApiKeys::Check(absl::string_view authorization) const {
  const std::string digits = KeyDigest(authorization);
  if (digits.empty()) {
    return absl::UnauthenticatedError(
        "authorization: this coordinator wants an API key, \"Bearer KEY\"");
  }
  const std::string digest = absl::HexStringToBytes(digits);
  int num_equal = 0;
  MutexLock lock(&mutex_);
  for (const Digest& known : digests_) {
    // Of hashes, and all of them: time tells nothing.
    num_equal +=
        CRYPTO_memcmp(known.data(), digest.data(), known.size()) == 0 ? 1 : 0;
  }
  if (num_equal > 0) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "authorization: the API key is not one that this coordinator knows");
}

void ApiKeys::Refresh() {
  const Version version = CurrentVersion();
  if (version == version_) return;
  version_ = version;
  absl::StatusOr<std::vector<Digest>> digests = Read();
  if (!digests.ok()) {
    SPECWIRE_LOG(Error,
                 digests.status().message(),
                 "; the keys stay as they were before");
    return;
  }
  MutexLock lock(&mutex_);
  digests_ = *std::move(digests);
  SPECWIRE_LOG(Info, flag_, ": read again, ", digests_.size(), " keys");
}

size_t ApiKeys::size() const {
  MutexLock lock(&mutex_);
  return digests_.size();
}

}  // namespace specwire::coordinator
