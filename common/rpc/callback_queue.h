// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Has gRPC keep, for as long as the process runs, the queue and the threads on
// which its callback API calls back. Else it makes them when the first server
// or channel needs them and destroys them with the last one, and the second of
// these happens, in 1.51, while one of the threads still uses the queue: a
// process that stops a server now and then aborts ("prior > 0").
//
// Thread safety: any thread; only the first call does something.
void KeepCallbackQueue();

}  // namespace specwire
