// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/philox.h"

#include "common/kernels/maths.h"

namespace specwire {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

double GumbelNoise(uint32_t word) {
  // Exact: 33 bits fit a double.
  const double u = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -Log(-Log(u));
}

}  // namespace specwire
