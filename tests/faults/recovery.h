// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/faults/episode.h"

namespace specwire::faults {

// Measures how long a stream pauses when a node that serves it is lost, and
// prints it: a verifier killed or stopped at 500 tokens of context, a drafter
// killed, so many times each. Returns an exit code: 1 if a text was wrong.
int MeasureRecovery(int num_losses, uint64_t seed, const Programs& programs);

}  // namespace specwire::faults
