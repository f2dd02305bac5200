// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/http/http_server.h"

namespace specwire::coordinator {

// A file of the web console, as it was when this was built.
struct ConsoleFile {
  // For example "js/main.js".
  absl::string_view name;
  absl::string_view content;
};

// All of them; generated. Any thread.
absl::Span<const ConsoleFile> ConsoleFiles();

// Adds GET / and the files that the page there needs. They are for everybody:
// what they show comes from POST /api/METHOD. Not where keys may not travel
// (HttpAccess::safe). GET /console.json tells the page what it cannot ask
// otherwise: {"drain": WORD}, whether it may drain nodes, "no", "key" or "yes"
// (DrainAccess). REQUIRES: before Listen.
void AddConsoleRoutes(
    HttpServer* server,
    std::function<absl::string_view(const HttpRequest&)> drain_access);

}  // namespace specwire::coordinator
