// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace specwire {

// A status that says when trying again may help. It crosses an RPC as
// google.rpc.RetryInfo (common/rpc/status.h).
//
// Thread safety: functions of their arguments.

// `status` with a delay, rounded up to milliseconds and kept within [1 ms, 1
// h]; an OK status stays as it is.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// Nothing if the status names no delay.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

}  // namespace specwire
