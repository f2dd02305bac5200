// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// Has gRPC's and protobuf's own messages written as lines of our log: errors
// as warnings, the rest for debugging. They tell of what peers send, so no more
// than kMaxLibraryLines of them come in a minute; what was left out is counted.
// Call once, early in main(), after InitLogging and before any call of gRPC.
inline constexpr int kMaxLibraryLines = 10;
void RouteLibraryLogs();

}  // namespace specwire
