// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace specwire::cli::bench {
namespace {

constexpr int64_t kFewBlocks = 8;
constexpr int64_t kManyBlocks = 32;
// How many times the least size a block should have.
constexpr int64_t kRoomyBlock = 4;
// An open loop's block should last so long.
constexpr double kLeastSeconds = 5;

// The least number of requests that make a block.
int64_t LeastSize(const Options& options) {
  if (!options.rate) return options.num_workers();
  return std::max<int64_t>(std::llround(*options.rate * kLeastSeconds), 1);
}

int64_t NumBlocks(int64_t num_requests, int64_t least_size) {
  const int64_t most = std::max<int64_t>(num_requests / least_size, 1);
  const int64_t roomy = num_requests / (kRoomyBlock * least_size);
  return std::min(most, std::clamp(roomy, kFewBlocks, kManyBlocks));
}

}  // namespace

Plan::Plan(const Options& options, int64_t num_questions)
    : modes_(options.modes),
      num_requests_(options.num.value_or(options.duration_s ? kUnlimited
                                                            : num_questions)) {
  if (modes_.size() < 2) {
    num_blocks_ = 1;
  } else if (num_requests_ == kUnlimited) {
    num_blocks_ = kUnlimited / (kRoomyBlock * LeastSize(options));
  } else {
    num_blocks_ = NumBlocks(num_requests_, LeastSize(options));
  }
}

Plan::Block Plan::block(int64_t number) const {
  // Sizes differ by one at most.
  const int64_t size = num_requests_ / num_blocks_;
  const int64_t larger = num_requests_ % num_blocks_;
  Block block;
  block.number = number;
  block.begin = number * size + std::min(number, larger);
  block.end = block.begin + size + (number < larger ? 1 : 0);
  block.modes = modes_;
  if (number % 2 == 1) std::reverse(block.modes.begin(), block.modes.end());
  return block;
}

}  // namespace specwire::cli::bench
