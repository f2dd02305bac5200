// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/http/http_server.h"
#include "coordinator/http/rpc_routes.h"

namespace specwire::coordinator {

// Adds the routes that OpenAI's clients call: GET /v1/models and
// /v1/models/NAME, POST /v1/completions and /v1/chat/completions. They call
// GenerationService, so texts, keys and limits are those of gRPC. `backend`
// outlives the server. REQUIRES: before Listen.
void AddOpenAiRoutes(HttpServer* server, const HttpBackend* backend);

}  // namespace specwire::coordinator
