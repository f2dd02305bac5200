// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "common/model/ggml_types.h"

namespace specwire {

// The shape of a small random model, and how its file stores the matrices.
struct ModelShape {
  const char* name;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  // At least the tiny model's 320.
  int vocab = 320;
  bool untied = false;
  bool rope_factors = false;
  // Types of the matrices in turn, from the embedding on, so that matrices that
  // the forward pass merges differ too. A type in blocks is F16 instead
  // where the columns are not whole blocks.
  std::vector<GgmlType> types = {GgmlType::kF32};
  int layers = 2;
  // Longest sequence.
  int context = 256;
};
inline void PrintTo(const ModelShape& shape, std::ostream* out) {
  *out << shape.name;
}

// `count` normally distributed weights in a file's format. REQUIRES: count is a
// multiple of the type's block.
std::string RandomBlocks(GgmlType type,
                         int64_t count,
                         float deviation,
                         std::mt19937& random);

// Writes such a model, with the tiny model's tokenizer, into the tests'
// temporary folder and returns its path.
std::string WriteModel(const ModelShape& shape);

}  // namespace specwire
