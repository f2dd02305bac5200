// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/console/console_routes.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace specwire::coordinator {
namespace {

constexpr absl::string_view kIndex = "index.html";

std::string ContentType(absl::string_view name) {
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  return "text/html; charset=utf-8";
}

}  // namespace

void AddConsoleRoutes(
    HttpServer* server,
    std::function<absl::string_view(const HttpRequest&)> drain_access) {
  for (const ConsoleFile& file : ConsoleFiles()) {
    HttpRoute route;
    route.path = file.name == kIndex ? "/" : absl::StrCat("/", file.name);
    route.handler = [file](const HttpRequest& /*request*/) {
      HttpResponse response;
      response.content_type = ContentType(file.name);
      response.body = std::string(file.content);
      // Another build of the coordinator has other files.
      response.headers.emplace_back("Cache-Control", "no-cache");
      return response;
    };
    server->Handle(std::move(route));
  }
  HttpRoute facts;
  facts.path = "/console.json";
  facts.handler = [drain_access =
                       std::move(drain_access)](const HttpRequest& request) {
    HttpResponse response;
    response.content_type = "application/json";
    response.body =
        absl::StrCat("{\"drain\": \"", drain_access(request), "\"}");
    response.headers.emplace_back("Cache-Control", "no-store");
    return response;
  };
  server->Handle(std::move(facts));
}

}  // namespace specwire::coordinator
