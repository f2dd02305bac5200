// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/step_costs.h"
#include "verifier_node/step_costs.h"

namespace specwire::verifier {

// By how much passes take longer than those of as many rows that were measured
// at the start. Coordinators multiply with it what they were told of those, so
// it is a ratio to just that and to no finer prediction: there an error in what
// rows or context cost would pass for a machine that is slow or fast, more so
// the more a verifier has to do, and work would go where work is.
//
// Thread safety: one thread at a time.
class Slowdown {
 public:
  explicit Slowdown(absl::Span<const StepCost> costs);

  // A pass of `num_rows` rows took `seconds`. REQUIRES: num_rows >= 0.
  void Observe(int64_t num_rows, double seconds);
  // > 0; 1 before the first pass. One odd pass moves it little.
  double value() const;

 private:
  const StepCosts costs_;
  // Natural logarithm of the value.
  double log_ = 0;
};

}  // namespace specwire::verifier
