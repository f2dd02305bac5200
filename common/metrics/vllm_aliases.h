// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "prometheus/metric_family.h"

// Lifetime and thread safety: plain functions. Only metrics.cc and its tests
// include this: the rest does not see prometheus-cpp.

namespace specwire {

// Appends those families that vLLM has too, under its names and with its
// labels: of ours `model_name`, `node_role`, `position` and `finished_reason`
// stay, `engine` is "0", and series that differ in nothing else are added up.
void AppendVllmAliases(std::vector<prometheus::MetricFamily>* families);

}  // namespace specwire
