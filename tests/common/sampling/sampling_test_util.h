// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/maths.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/philox.h"
#include "common/sampling/pipeline.h"

namespace specwire {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// A history of zeros that leads to a position.
inline TokenHistory At(int position) {
  static const auto* const kZeros = new std::vector<int32_t>(1 << 21, 0);
  return {.settled =
              absl::MakeConstSpan(*kZeros).first(static_cast<size_t>(position)),
          .run = {}};
}

inline std::vector<float> RandomLogits(size_t size,
                                       float spread,
                                       uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// A row that every machine makes alike: exact numbers in [-16, 16), the largest
// of which tower over the rest.
inline std::vector<float> RowOfRecord(size_t size, uint32_t state) {
  std::vector<float> row(size);
  for (float& logit : row) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 20) * 0x1p-11f - 1;
    logit = 16 * x * x * x;
  }
  return row;
}

// Rows that are hard on shortcuts: with ties, with few distinct values, all
// equal, with infinities and with what is no number.
inline std::vector<float> HardLogits(size_t size, int kind, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits =
      RandomLogits(size, static_cast<float>(kind % 7) * 1.5f + 0.1f, seed);
  const auto some = [&](float value, size_t one_in) {
    for (float& logit : logits) {
      if (random() % one_in == 0) logit = value;
    }
  };
  switch (kind % 9) {
    case 1:  // Many ties.
      for (float& logit : logits) logit = std::round(logit);
      break;
    case 2:
      std::fill(logits.begin(), logits.end(), 1.5f);
      break;
    case 3:
      some(kNan, 3);
      some(-kInf, 4);
      break;
    case 4:
      some(kInf, size);
      some(kNan, 5);
      break;
    case 5:  // The likeliest token tells far.
      logits[random() % size] = 40;
      break;
    case 6:
      some(-0.0f, 3);
      some(0.0f, 3);
      break;
    case 7:  // Noise is a trifle beside these, or is rounded away.
      for (float& logit : logits) {
        logit = std::round(logit) * (seed % 2 == 0 ? 1e9f : 1e15f);
      }
      break;
    case 8:
      some(-kInf, 2);
      some(std::numeric_limits<float>::max(), size);
      some(-std::numeric_limits<float>::max(), 9);
      break;
    default:
      break;
  }
  return logits;
}

// The pipeline behind the processors, written down plainly: full sorts, no
// shortcut. Ascending ids.
inline std::vector<Candidate> CutPlainly(absl::Span<const float> row,
                                         const SamplingParams& params) {
  std::vector<Candidate> left;
  const bool endless = std::count(row.begin(), row.end(), kInf) > 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (endless ? row[i] == kInf : row[i] > -kInf) {
      left.push_back({static_cast<int32_t>(i),
                      endless ? 0.0
                              : static_cast<double>(row[i]) /
                                    static_cast<double>(params.temperature)});
    }
  }
  if (left.empty()) return left;
  // Most likely first, ties by id.
  std::stable_sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return a.score > b.score;
  });
  const double best = left[0].score;
  if (params.min_p > 0) {
    const double least = best + Log(static_cast<double>(params.min_p));
    std::erase_if(left, [&](const Candidate& c) { return c.score < least; });
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < left.size()) {
    left.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1) {
    const auto weight = [best](const Candidate& c) {
      return c.score - best < -700 ? 0.0 : Exp(c.score - best);
    };
    // The sum of softmax.h: every id in its lane, 0 where nothing is left.
    std::vector<double> dense((row.size() + 1023) / 1024 * 1024, 0.0);
    for (const Candidate& c : left) {
      dense[static_cast<size_t>(c.token_id)] = weight(c);
    }
    double total = 0;
    for (size_t begin = 0; begin < dense.size(); begin += 1024) {
      double lanes[16] = {};
      for (size_t i = 0; i < 1024; ++i) lanes[i % 16] += dense[begin + i];
      for (size_t width : {8, 4, 2, 1}) {
        for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
      }
      total += lanes[0];
    }
    double reached = 0;
    size_t kept = 0;
    while (kept < left.size() &&
           (kept == 0 || reached < static_cast<double>(params.top_p) * total)) {
      reached += weight(left[kept++]);
    }
    left.resize(kept);
  }
  std::sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return a.token_id < b.token_id;
  });
  return left;
}

// Parameters that use a random choice of the cuts.
inline SamplingParams RandomCuts(uint32_t seed) {
  std::mt19937 random(seed);
  SamplingParams params;
  const float temperatures[] = {1.0f, 1.0f, 0.7f, 1.5f, 0.05f, 1e-5f, 100.0f};
  params.temperature = temperatures[random() % 7];
  params.seed = static_cast<int64_t>(random());
  const int32_t top_ks[] = {0, -1, 1, 2, 40, 150, 700, 5000, 1 << 30};
  if (random() % 2 == 0) params.top_k = top_ks[random() % 9];
  const float top_ps[] = {1.0f, 0.95f, 0.5f, 0.9999f, 0.01f, 1e-30f, 0.999999f};
  if (random() % 2 == 0) params.top_p = top_ps[random() % 7];
  const float min_ps[] = {0.0f, 0.05f, 0.5f, 1.0f, 1e-6f, 1e-38f};
  if (random() % 3 == 0) params.min_p = min_ps[random() % 6];
  return params;
}

// Pearson's statistic of counts against probabilities; `degrees` receives the
// degrees of freedom. Infinite if something impossible was seen.
inline double ChiSquare(absl::Span<const double> counts,
                        absl::Span<const double> probabilities,
                        int* degrees) {
  double total = 0;
  for (const double count : counts) total += count;
  double statistic = 0;
  *degrees = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0) {
      if (counts[i] > 0) return std::numeric_limits<double>::infinity();
      continue;
    }
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++*degrees;
  }
  return statistic;
}

// The quantile of the chi-square distribution at which a test of level .001 for
// each of `settings` ends (Wilson and Hilferty's approximation).
inline double ChiSquareLimit(int degrees, int settings) {
  // Normal quantiles at 1 - .001 / settings.
  const double z = settings <= 1    ? 3.09
                   : settings <= 10 ? 3.72
                   : settings <= 50 ? 4.11
                                    : 4.42;
  const double k = degrees;
  return k * std::pow(1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k)), 3);
}

}  // namespace specwire
