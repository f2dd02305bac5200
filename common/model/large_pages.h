// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specwire {

// Zeros, [bytes] u8, that start at a multiple of 2 MiB and lie on pages of that
// size where the system has them: what a pass streams through is many times
// what address translation remembers in small pages. Pages that are never
// touched take no memory.
//
// Thread safety: any thread. Throws std::bad_alloc if there is no room.
at::Tensor LargePages(int64_t bytes);

}  // namespace specwire
