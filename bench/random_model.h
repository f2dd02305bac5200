// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "common/kernels/kernels.h"
#include "common/model/config.h"

namespace specwire {

// The int8 engine without a model file: the same operations in the same order
// (those of Transformer::Forward, greedy) on weights without a meaning. What a
// pass costs does not depend on what the weights are.
//
// Thread safety: one thread.
class RandomModel {
 public:
  // Rows that a pass may have.
  static constexpr int kMaxRows = 64;

  // All matrices are in `form` but the head, which is int8 always: files with
  // 4-bit weights keep theirs in more bits. Of `config` all that has to do with
  // the shape counts. Takes WeightBytes(config, form) of memory.
  RandomModel(const ModelConfig& config, WeightForm form);
  ~RandomModel();
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  // What a pass reads of the weights: the embedding, of which it reads a few
  // rows only, is not there (the head serves as it).
  static int64_t WeightBytes(const ModelConfig& config, WeightForm form);

  // Makes ready for passes behind `context` positions of one sequence.
  void Prepare(const Kernels& kernels, int num_threads, int context);

  // A pass of `rows` rows with the arg-max of each; the next one stands at the
  // same positions. REQUIRES: Prepare was called, 1 <= rows <= kMaxRows.
  void Forward(int rows);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
