// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"

namespace specwire {

// The distribution with these probabilities for ids 0, 1, ...
inline TokenDistribution Dense(const std::vector<double>& probabilities) {
  TokenDistribution p;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    p.token_ids.push_back(static_cast<int32_t>(i));
    p.probabilities.push_back(probabilities[i]);
  }
  return p;
}

inline DraftDistribution Sparse(std::vector<int32_t> ids,
                                std::vector<float> values) {
  return {.token_ids = std::move(ids), .probabilities = std::move(values)};
}

inline std::vector<double> ToVector(const TokenDistribution& p, size_t size) {
  std::vector<double> dense(size, 0.0);
  for (size_t i = 0; i < p.token_ids.size(); ++i) {
    dense[static_cast<size_t>(p.token_ids[i])] = p.probabilities[i];
  }
  return dense;
}

inline std::vector<double> ToVector(const DraftDistribution& q, size_t size) {
  std::vector<double> dense(size, 0.0);
  double sum = 0;
  for (const float value : q.probabilities) sum += static_cast<double>(value);
  for (size_t i = 0; i < q.token_ids.size(); ++i) {
    dense[static_cast<size_t>(q.token_ids[i])] =
        static_cast<double>(q.probabilities[i]) / sum;
  }
  return dense;
}

// The number that a decision is made by.
inline double Uniform(NoiseStream stream, const DrawKey& key) {
  const uint32_t word = Philox4x32({static_cast<uint32_t>(key.position),
                                    0,
                                    static_cast<uint32_t>(stream),
                                    static_cast<uint32_t>(key.choice)},
                                   key.seed)[0];
  return (word + 0.5) / 4294967296.0;
}

}  // namespace specwire
