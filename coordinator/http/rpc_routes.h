// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/byte_budget.h"
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
  // What JSON that is being parsed may take. Twenty bodies of the largest kind
  // would take all that a small machine has: they wait for their turn.
  static constexpr size_t kMaxParsingBytes = size_t{160} << 20;

  std::shared_ptr<grpc::Channel> channel;
  HttpAccess access;
  // Of the coordinator; not owned.
  const ModelCatalog* catalog = nullptr;
  // What OpenAI's routes tell of the acceptance of each request.
  SpecDecodeMetrics spec_decode_metrics = SpecDecodeMetrics::kSummary;
  // Has a lock of its own.
  mutable ByteBudget parsing{kMaxParsingBytes};
};

// Waits for the turn of a body to be parsed: what is returned is held until
// nothing of that is left. UNAVAILABLE, with a delay, if the turn does not come
// within some seconds. Small bodies need not wait.
absl::StatusOr<ByteBudget::Lease> WaitToParse(const HttpBackend& backend,
                                              const std::string& body);

// Adds POST /api/METHOD for each method of a service that takes one request:
// the request in the body, the response in the answer, both as proto3 JSON. A
// stream is sent as server-sent events, a message in each "data:"; if it fails
// behind its first message an "event: error" ends it. Errors have the shape of
// ToHttpError. `backend` outlives the server. REQUIRES: before Listen.
void AddRpcRoutes(HttpServer* server,
                  const HttpBackend* backend,
                  const google::protobuf::ServiceDescriptor* service);

}  // namespace specwire::coordinator
