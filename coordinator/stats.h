// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/metrics/metrics.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire::coordinator {

// What GetStats tells: nothing but the counters of /metrics, sorted and added
// up, so that the two never differ.
v1::GetStatsResponse MakeStatsResponse(
    const std::vector<CounterValue>& counters);

}  // namespace specwire::coordinator
