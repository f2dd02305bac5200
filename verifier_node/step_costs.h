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
  // Median of several passes.
  absl::Duration duration;
};

// The numbers of rows that a node measures: closely where drafts are, since
// that is where the price of a row decides whether it pays.
inline constexpr int kStepCostRows[] = {1, 2, 3, 4, 5, 6, 8, 16, 64};

// Times passes of each number of rows on an idle engine, behind as many
// positions as a short conversation has, or half of what fits. All take turns,
// so that what slows the machine for a while slows all of them; about a second
// in all, on a slow machine three turns, or what three seconds have room for,
// at least one. Leaves the engine's cache empty. A
// number of rows that does not fit the model is left out.
// REQUIRES: the engine's thread-bound methods are nobody else's meanwhile;
// 1 <= rows <= Engine::kMaxRows.
absl::StatusOr<std::vector<StepCost>> MeasureStepCosts(
    Engine* engine, absl::Span<const int> rows);

}  // namespace specwire::verifier
