// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace specwire::simulate {

// v(m): the time of a pass of m rows against that of one row. Linear between
// the entries of its table, and as between the last two beyond.
class VerifyCosts {
 public:
  // The int8 engine on two cores.
  VerifyCosts() : table_({{1, 1.0}, {5, 1.27}, {8, 1.53}, {16, 2.5}}) {}
  // From "1:1,5:1.27": rows and times. INVALID_ARGUMENT unless the rows rise
  // from 1 and the times are > 0 and do not fall.
  static absl::StatusOr<VerifyCosts> Parse(absl::string_view text);

  // REQUIRES: rows >= 1.
  double operator()(int rows) const;

 private:
  std::vector<std::pair<int, double>> table_;
};

// What a draft costs, in plain steps of the target.
struct DraftCosts {
  // A token of a model; a lookup's cost nothing.
  double token = 0.13;
  // Each proposal on top, whoever makes it.
  double run = 0;
};

// The speed of lock-step speculation against plain decoding, in theory: runs of
// `run_length` tokens of which each is right with chance `acceptance`, a draft
// token that costs `token` and a round trip of `round_trip`, both in plain
// steps. REQUIRES: run_length >= 0, 0 <= acceptance < 1.
double ClosedFormSpeedup(int run_length,
                         double acceptance,
                         double token,
                         double round_trip,
                         const VerifyCosts& costs);

}  // namespace specwire::simulate
