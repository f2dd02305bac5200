// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Sets the calling thread's floating-point control word to what every result
// assumes: round to nearest even, subnormal numbers neither flushed to zero nor
// read as zero, no traps. A library's start-up code may have left something
// else behind, and threads inherit it from the one that made them. Called by
// each thread that computes, when it starts.
void SetFloatControl();

}  // namespace specwire
