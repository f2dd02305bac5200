// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/metrics/metrics.h"

namespace specwire {

// Counts the payload of a method's messages in one direction, before framing
// and TLS. `method` is a streaming method of ours, "Decode"; `direction` is
// metric::kRequest or metric::kResponse. Who sends counts, so each message is
// counted once in a cluster, and its size is known already.
Counter* AddRpcBytes(MetricsRegistry* registry,
                     const std::string& method,
                     const std::string& direction);

}  // namespace specwire
