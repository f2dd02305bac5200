// SPDX-License-Identifier: Apache-2.0
#include "common/http/metrics_routes.h"

#include <string>
#include <utility>

namespace specwire {

void AddMetricsRoutes(HttpServer* server,
                      const MetricsRegistry* registry,
                      std::function<HealthReport()> health) {
  const auto add = [server](const std::string& path,
                            HttpRoute::Handler handler) {
    HttpRoute route;
    route.path = path;
    route.always = true;
    route.handler = std::move(handler);
    server->Handle(std::move(route));
  };
  add("/metrics", [registry](const HttpRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = registry->Expose();
    return response;
  });
  const auto serve = [&](const std::string& path, bool HealthReport::*good) {
    add(path, [health, good](const HttpRequest&) {
      const HealthReport report = health();
      HttpResponse response;
      response.status = report.*good ? 200 : 503;
      response.content_type = "application/json";
      response.body = report.json;
      return response;
    });
  };
  serve("/health", &HealthReport::healthy);
  serve("/ready", &HealthReport::ready);
}

}  // namespace specwire
