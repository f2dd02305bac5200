// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/softmax.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/kernels/maths.h"
#include "common/sampling/greedy.h"
#include "common/sampling/row_kernels.h"

namespace specwire {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kChunk = 1024;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Fold(double* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// The weights of one chunk, and their sum.
double ChunkWeights(absl::Span<const float> chunk,
                    double temperature,
                    double best,
                    double* weights) {
  BestRowKernels().weights(chunk.data(),
                           static_cast<int64_t>(chunk.size()),
                           temperature,
                           best,
                           weights);
  double lanes[kLanes] = {};
  const size_t whole = chunk.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += weights[i + lane];
    }
  }
  for (size_t i = whole; i < chunk.size(); ++i) {
    lanes[i - whole] += weights[i];
  }
  return Fold(lanes);
}

}  // namespace

void LaneSum::Add(int32_t token_id, double weight) {
  const int32_t chunk = token_id / static_cast<int32_t>(kChunk);
  if (chunk != chunk_) {
    EndChunk();
    chunk_ = chunk;
  }
  lanes_[static_cast<size_t>(token_id) % kLanes] += weight;
}

double LaneSum::Total() {
  EndChunk();
  return total_;
}

void LaneSum::EndChunk() {
  total_ += Fold(lanes_);
  std::fill(lanes_, lanes_ + kLanes, 0.0);
}

double SumOfWeights(absl::Span<const float> row,
                    double temperature,
                    double best) {
  double weights[kChunk];
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunk) {
    total +=
        ChunkWeights(row.subspan(begin, kChunk), temperature, best, weights);
  }
  return total;
}

double WeightsOfRow(absl::Span<const float> row,
                    double temperature,
                    double best,
                    double* weights) {
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunk) {
    total += ChunkWeights(
        row.subspan(begin, kChunk), temperature, best, weights + begin);
  }
  return total;
}

LogSum LogSumOfRow(absl::Span<const float> logits, float largest) {
  LogSum sum;
  sum.largest = static_cast<double>(largest);
  if (sum.largest == kInfinity) {
    const auto count = std::count(logits.begin(), logits.end(), largest);
    sum.log_sum = Log(static_cast<double>(count));
  } else if (sum.largest > -kInfinity) {
    sum.log_sum = Log(SumOfWeights(logits, 1.0, sum.largest));
  }
  return sum;
}

double LogProbability(float logit, const LogSum& sum) {
  const double value = static_cast<double>(logit);
  if (!(value > -kInfinity)) return -kInfinity;
  if (sum.largest == kInfinity) {
    return value == kInfinity ? 0.0 - sum.log_sum : -kInfinity;
  }
  return (value - sum.largest) - sum.log_sum;
}

double LogProbability(absl::Span<const float> logits, int32_t token) {
  const int32_t likeliest = ArgMax(logits);
  if (likeliest < 0) return -kInfinity;
  return LogProbability(
      logits[static_cast<size_t>(token)],
      LogSumOfRow(logits, logits[static_cast<size_t>(likeliest)]));
}

double Probability(absl::Span<const float> logits, int32_t token) {
  const double log_probability = LogProbability(logits, token);
  return log_probability > -kInfinity ? Exp(log_probability) : 0.0;
}

}  // namespace specwire
