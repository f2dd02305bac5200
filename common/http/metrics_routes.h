// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace specwire {

// What GET /health answers: 200 or 503, with a JSON object.
struct HealthReport {
  bool healthy = false;
  std::string json = "{}";
};

// Adds GET /metrics and GET /health. Both arguments must outlive the server.
// REQUIRES: before Listen.
void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health);

}  // namespace specwire
