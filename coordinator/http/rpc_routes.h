// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "common/http/http_server.h"
#include "coordinator/http/http_access.h"
#include "coordinator/model_catalog.h"
#include "coordinator/options.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/channel.h"

namespace specwire::coordinator {

// What HTTP routes call. The channel leads to this process's own server and is
// there once Serve is called.
struct HttpBackend {
  std::shared_ptr<grpc::Channel> channel;
  HttpAccess access;
  // Of the coordinator; not owned.
  const ModelCatalog* catalog = nullptr;
  // What OpenAI's routes tell of the acceptance of each request.
  SpecDecodeMetrics spec_decode_metrics = SpecDecodeMetrics::kSummary;
};

// Adds POST /api/METHOD for each method of a service that takes one request:
// the request in the body, the response in the answer, both as proto3 JSON. A
// stream is sent as server-sent events, a message in each "data:"; if it fails
// behind its first message an "event: error" ends it. Errors have the shape of
// ToHttpError. `backend` outlives the server. REQUIRES: before Listen.
void AddRpcRoutes(HttpServer* server,
                  const HttpBackend* backend,
                  const google::protobuf::ServiceDescriptor* service);

}  // namespace specwire::coordinator
