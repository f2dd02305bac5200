// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace specwire {

// A sequence with more tokens than this to compute is far behind: it has a
// prompt to read, not just what was committed since its last run.
inline constexpr int kMaxStepRows = 32;
// Rows of a pass that those far behind share: all of them if nobody else is in
// it, else as many as the others have together, but at least the minimum. So a
// long prompt about doubles what a pass of the others takes, and advances.
inline constexpr int kMaxChunkRows = 256;
inline constexpr int kMinChunkRows = 32;

// How many of its tokens each sequence has computed in the next pass, given how
// many it has to compute: all, if it is not far behind, else a chunk. The first
// ones come first where not all fit; at least one has rows.
// REQUIRES: behind is not empty, each is >= 1.
std::vector<int> PlanRows(absl::Span<const int> behind);

}  // namespace specwire
