// SPDX-License-Identifier: Apache-2.0
#include "common/base/random_id.h"

#include <cerrno>
#include <cstdlib>

#include <sys/random.h>
#include <sys/types.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace specwire {
namespace {

// At most 256 bytes, which the system returns whole once it has entropy.
void Fill(void* data, size_t size) {
  ssize_t got = 0;
  do {
    got = getrandom(data, size, 0);
  } while (got < 0 && errno == EINTR);
  // A kernel without getrandom is older than anything this can run on.
  if (got != static_cast<ssize_t>(size)) std::abort();
}

uint64_t Random53Bits() {
  uint64_t bits = 0;
  Fill(&bits, sizeof(bits));
  return bits >> 11;
}

}  // namespace

std::string RandomHexId(int num_bytes) {
  std::string bytes(static_cast<size_t>(num_bytes), '\0');
  Fill(bytes.data(), bytes.size());
  return absl::BytesToHexString(bytes);
}

int64_t RandomSeed() { return static_cast<int64_t>(Random53Bits()); }

double RandomUnit() { return static_cast<double>(Random53Bits()) * 0x1p-53; }

}  // namespace specwire
