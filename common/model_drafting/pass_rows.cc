// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/pass_rows.h"

#include <algorithm>
#include <cstddef>

#include "common/model/engine.h"

namespace specwire {

static_assert(kMaxStepRows + kMinChunkRows <= Engine::kMaxRows);
static_assert(kMaxChunkRows <= Engine::kMaxRows);

std::vector<int> PlanRows(absl::Span<const int> behind) {
  std::vector<int> rows(behind.size(), 0);
  // Some room is left for chunks, so that no prompt waits forever.
  constexpr int kRoom = Engine::kMaxRows - kMinChunkRows;
  int num_step_rows = 0;
  for (size_t i = 0; i < behind.size(); ++i) {
    if (behind[i] > kMaxStepRows || num_step_rows + behind[i] > kRoom) continue;
    rows[i] = behind[i];
    num_step_rows += behind[i];
  }
  int left = num_step_rows == 0 ? kMaxChunkRows
                                : std::clamp(num_step_rows,
                                             kMinChunkRows,
                                             Engine::kMaxRows - num_step_rows);
  left = std::min(left, kMaxChunkRows);
  for (size_t i = 0; i < behind.size(); ++i) {
    if (behind[i] <= kMaxStepRows) continue;
    rows[i] = std::min(behind[i], left);
    left -= rows[i];
  }
  return rows;
}

}  // namespace specwire
