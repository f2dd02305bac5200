// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "verifier_node/step_costs.h"

namespace specwire::verifier {

// What decides the time of a pass.
struct PassShape {
  int64_t rows = 0;
  // Rows whose logits are computed.
  int64_t logit_rows = 0;
  // Sum over all rows, and over all runs, of the positions before them.
  int64_t row_context = 0;
  int64_t run_context = 0;

  // Adds a run of `count` rows behind `length` positions.
  void AddRun(int count, int length) {
    AddRows(count, length);
    run_context += length;
  }
  // Adds rows to a run that is there.
  void AddRows(int count, int length) {
    rows += count;
    row_context += int64_t{count} * length + int64_t{count} * (count - 1) / 2;
  }
};

// Predicts how long a pass takes: a sum of what the pass itself, its rows (the
// first ones are nearly free, further ones are not), their logits and their
// context cost. Starts from measurements at start-up and follows measured
// passes; a single odd one moves it little. Pure code: times are handed in.
//
// Thread safety: one thread at a time.
class PassCost {
 public:
  // Without measurements the proportions of a common machine are assumed.
  explicit PassCost(absl::Span<const StepCost> costs = {});

  // In seconds, > 0; grows with every part of the shape.
  double Predict(const PassShape& shape) const;
  // A pass of that shape took `seconds`.
  void Observe(const PassShape& shape, double seconds);

 private:
  static constexpr int kTerms = 7;
  using Terms = std::array<double, kTerms>;

  static Terms Features(const PassShape& shape);

  // Seconds for one of each feature, > 0.
  Terms weights_;
};

}  // namespace specwire::verifier
