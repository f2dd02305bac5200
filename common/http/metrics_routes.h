// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace specwire {

// What GET /health and GET /ready answer: 200 or 503, with a JSON object.
struct HealthReport {
  // The process works: else it is to be started anew.
  bool healthy = false;
  // It is of use now: else nobody should be sent to it.
  bool ready = false;
  std::string json = "{}";
};

// Adds GET /metrics, GET /health and GET /ready. Both arguments must outlive
// the server. REQUIRES: before Listen.
void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health);

}  // namespace specwire
