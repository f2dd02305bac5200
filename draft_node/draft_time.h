// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"

namespace specwire::draft {

// Measures what a draft token of one sequence costs, in nanoseconds: the
// fastest of a few runs behind a short path that is made up. Takes some 100 ms
// at most, or a run if that takes longer; 0 without measuring for a drafter
// that only pretends to take time. An error if the drafter has one. REQUIRES:
// on the drafter's thread, or before it is started.
absl::StatusOr<int64_t> MeasureDraftTokenNs(Drafter* drafter);

}  // namespace specwire::draft
