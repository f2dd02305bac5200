// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Makes sure that file descriptors 0, 1 and 2 are taken, so that no socket or
// event that a library opens is mistaken for standard input, output or error.
// One that is closed becomes an empty input: reading gives its end, writing
// fails, as it should.
//
// It happens before main(), and before any library's own start, in each program
// that calls this; the call itself does nothing more.
void ReserveStandardStreams();

}  // namespace specwire
