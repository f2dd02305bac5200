// SPDX-License-Identifier: Apache-2.0
#include "common/http/metrics_routes.h"

#include <utility>

namespace specwire {

void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health) {
  server->Handle("/metrics", [registry](const HttpRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = registry->Expose();
    return response;
  });
  server->Handle("/health", [health = std::move(health)](const HttpRequest&) {
    const HealthReport report = health();
    HttpResponse response;
    response.status = report.healthy ? 200 : 503;
    response.content_type = "application/json";
    response.body = report.json;
    return response;
  });
}

}  // namespace specwire
