// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/kernels/kernels.h"

// What the benchmarks share. No torch.
//
// Thread safety: any thread.
namespace specwire {

// Milliseconds that have passed since `start`.
double MillisecondsSince(absl::Time start);

// REQUIRES: values is not empty.
double Median(std::vector<double> values);

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using LargeBytes = std::unique_ptr<uint8_t[], Free>;

// `size` bytes without a pattern, none of them 0, on large pages where the
// system has them, as the engine keeps its weights.
LargeBytes RandomBytes(size_t size);

// Bytes that `threads` threads together read in a second from memory that no
// cache holds. The best of some rounds: what else runs only ever takes from it.
double ReadBandwidth(int threads);

// Bytes of memory that a program may still take; the largest number if the
// system does not tell.
int64_t AvailableMemory();

// Those that this processor has, the best one last.
std::vector<const Kernels*> AvailableKernels();

}  // namespace specwire
