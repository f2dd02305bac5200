// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/aten_linear.h"
#include "common/model/config.h"
#include "common/model/ops.h"

namespace specwire {

class ThreadPool;

struct AtenOptions {
  // Not null.
  std::shared_ptr<ThreadPool> threads;
  // Longest sequence.
  int max_model_len = 0;
  // What each rotary frequency is divided by; empty or head_dim / 2 numbers.
  std::vector<float> rope_factors;
  // How weights are kept and their products computed; all else is float32 on
  // the CPU.
  AtenFormat format = {};
  // For tests: computes each row in a tile of its own, as is done where the
  // processor's matrix product depends on a row's place.
  bool one_row_a_tile = false;
};

// The operations of the "reference" engine: float32 on ATen, unless a format
// says otherwise of the matrix products. It is the yardstick for the quality of
// other engines. On one machine its rows are
// independent of each other (see Ops); between machines the last bits differ,
// because ATen's matrix products do.
std::unique_ptr<Ops> CreateAtenOps(const ModelConfig& config,
                                   const AtenOptions& options);

}  // namespace specwire
