// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace specwire {

// Spreads every bit over all: the finaliser of splitmix64.
constexpr uint64_t MixBits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// A hash that is the same in every process and on every machine, unlike absl's:
// FNV-1a, then MixBits, since FNV's upper bits mix poorly.
// Not for untrusted keys of a hash table.
inline uint64_t StableHash(absl::string_view bytes, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3ULL;
  }
  return MixBits(hash);
}

}  // namespace specwire
