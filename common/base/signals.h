// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace specwire {

// How a program is told to stop. No signal handler ever runs: SIGINT and
// SIGTERM are blocked in every thread and taken by whoever waits for them,
// usually main().
//
//   int main() {
//     BlockShutdownSignals();          // before any thread starts
//     ... start servers ...
//     WaitForShutdownSignal();
//     UnblockShutdownSignals();        // a second Ctrl-C ends it at once
//     ... shut down ...
//   }

// Blocks SIGINT and SIGTERM in the calling thread and in all that it starts,
// and ignores SIGPIPE. REQUIRES: called first in main(), before any other
// thread exists. A child process inherits the mask: call
// UnblockShutdownSignals() in it before exec unless it calls this itself.
void BlockShutdownSignals();

// Waits until SIGINT or SIGTERM arrives and returns its number; nothing if
// `timeout` passed. REQUIRES: BlockShutdownSignals() was called.
std::optional<int> WaitForShutdownSignal(
    absl::Duration timeout = absl::InfiniteDuration());

// Lets SIGINT and SIGTERM end the process again, in the calling thread.
void UnblockShutdownSignals();

// Makes WaitForShutdownSignal() return, as if the process had been sent
// SIGTERM: for a part that cannot go on. Thread safety: any thread.
void RequestShutdown();

}  // namespace specwire
