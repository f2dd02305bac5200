// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/metrics/metrics.h"

namespace specwire {

// Adds what dashboards expect of any process, under the names that Prometheus'
// client libraries use: processor time, memory, descriptors, start.
void AddProcessMetrics(MetricsRegistry* registry);

}  // namespace specwire
