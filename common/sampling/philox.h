// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace specwire {

// Philox4x32-10: a counter-based generator (Salmon, Moraes, Dror, Shaw:
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Four random words
// that are a pure function of a 128-bit counter and a 64-bit key, so any node
// can make any word of any request at any time.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   uint64_t key);

// What a word is used for. No two decisions share noise.
enum class NoiseStream : uint32_t {
  kCoupled = 0,     // Gumbel noise of the coupled rule.
  kAcceptance = 1,  // Accept or reject under the ratio rule.
  kResidual = 2,    // Residual and bonus draws under the ratio rule.
  kPlain = 3,       // Plain draws under the ratio rule.
  kDrafter = 4,     // The drafter's own draws under the ratio rule.
};

// The Gumbel noise of a word: -log(-log u), u = (word + 1/2) / 2^32, in double.
// Between -3.13 and 22.87.
double GumbelNoise(uint32_t word);

}  // namespace specwire
