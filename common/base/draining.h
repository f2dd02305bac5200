// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace specwire {

// The status of a process that drains: UNAVAILABLE, marked so that whoever gets
// it knows that nothing is wrong and goes on elsewhere at once. The mark
// crosses an RPC as google.rpc.ErrorInfo with the reason DRAINING
// (common/rpc/status.h).
//
// Thread safety: functions of their arguments.
absl::Status DrainingError(absl::string_view message);

// Whether `status` has the mark.
bool IsDraining(const absl::Status& status);

}  // namespace specwire
