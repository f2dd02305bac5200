// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/engine.h"

namespace specwire::verifier {

// What a verify pass costs.
struct StepCost {
  int num_rows = 0;
  // Positions before the first row.
  int context_length = 0;
  // Median of a few passes.
  absl::Duration duration;
};

// Times passes of each number of rows on an idle engine. Leaves its cache
// empty. A number of rows that does not fit the model is left out.
// REQUIRES: the engine's thread-bound methods are nobody else's meanwhile;
// 1 <= rows <= Engine::kMaxRows.
absl::StatusOr<std::vector<StepCost>> MeasureStepCosts(
    Engine* engine, absl::Span<const int> rows);

}  // namespace specwire::verifier
