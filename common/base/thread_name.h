// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Names the calling thread in debuggers and process listings; longer names are
// cut to 15 characters.
void SetThreadName(const char* name);

}  // namespace specwire
