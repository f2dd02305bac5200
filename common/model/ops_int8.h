// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/kernels/kernels.h"
#include "common/model/config.h"
#include "common/model/ops.h"

namespace specwire {

class ThreadPool;

struct Int8Options {
  // Not null.
  std::shared_ptr<ThreadPool> threads;
  // Longest sequence.
  int max_model_len = 0;
  // What each rotary frequency is divided by; empty or head_dim / 2 numbers.
  std::vector<float> rope_factors;
  // The instruction set to compute with; all give the same bits.
  const Kernels* kernels = nullptr;
};

// The operations of the "int8" engine: weights and activations in int8 groups
// of 32 (4-bit weights where the file has them), float32 between them, a
// half-precision cache; our own kernels, no arithmetic of ATen. All of it is
// bit-equal on every machine (docs/numerics.md).
std::unique_ptr<Ops> CreateInt8Ops(const ModelConfig& config,
                                   const Int8Options& options);

}  // namespace specwire
