// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/bench/options.h"

namespace specwire::cli::bench {

// How the requests of a run are cut into blocks. A block is run in every mode,
// one after the other, and what is compared are the two runs of each block:
// what slows the machine for a while slows both.
//
// In a closed loop a block ends with some workers idle, in either mode alike;
// the longer the block, the less that counts. So blocks have no fewer requests
// than there are workers, and four times as many where that leaves at least 8
// of them. With one mode there is nothing to compare and all is one block.
//
// Thread safety: immutable.
class Plan {
 public:
  Plan(const Options& options, int64_t num_questions);

  // Of each mode; kUnlimited if only the duration ends the run.
  int64_t num_requests() const { return num_requests_; }
  int64_t num_blocks() const { return num_blocks_; }

  // Requests [begin, end) of each mode.
  struct Block {
    int64_t number;
    int64_t begin;
    int64_t end;
    // In the order in which they run; the order alternates.
    std::vector<Mode> modes;
  };
  // REQUIRES: 0 <= number < num_blocks().
  Block block(int64_t number) const;

  static constexpr int64_t kUnlimited = int64_t{1} << 40;

 private:
  std::vector<Mode> modes_;
  int64_t num_requests_;
  int64_t num_blocks_;
};

}  // namespace specwire::cli::bench
