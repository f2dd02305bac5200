// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace specwire {

// Fresh entropy from the operating system. Nothing here may ever decide a
// token: a request's noise comes from its seed alone.
// Thread safety: any thread.

// `num_bytes` random bytes as lower-case hexadecimal digits.
// REQUIRES: 1 <= num_bytes <= 256.
std::string RandomHexId(int num_bytes = 16);

// A seed for a request that names none, in [0, 2^53): JSON readers that hold
// numbers as doubles keep it exact.
int64_t RandomSeed();

// A number in [0, 1), for jitter.
double RandomUnit();

}  // namespace specwire
