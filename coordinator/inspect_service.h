// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "coordinator/model_catalog.h"
#include "coordinator/session.h"
#include "coordinator/worker_pool.h"
#include "specwire/v1/inspect.grpc.pb.h"

namespace specwire::coordinator {

// InspectService of a coordinator: hands each call to a verifier of the model
// that inspects.
//
// Thread safety: any thread.
// Lifetime: all that it is made from outlives it, and it the server.
class InspectService final : public v1::InspectService::CallbackService {
 public:
  InspectService(const SessionEnvironment& environment,
                 const ModelCatalog* catalog);

  grpc::ServerUnaryReactor* InspectAttention(
      grpc::CallbackServerContext* context,
      const v1::InspectAttentionRequest* request,
      v1::InspectAttentionResponse* response) override;
  grpc::ServerUnaryReactor* InspectNextToken(
      grpc::CallbackServerContext* context,
      const v1::InspectNextTokenRequest* request,
      v1::InspectNextTokenResponse* response) override;
  grpc::ServerUnaryReactor* InspectCache(
      grpc::CallbackServerContext* context,
      const v1::InspectCacheRequest* request,
      v1::InspectCacheResponse* response) override;

 private:
  // A method of a verifier's stub.
  template <class Request, class Response>
  using Method = grpc::Status (v1::InspectService::Stub::*)(
      grpc::ClientContext* context, const Request& request, Response* response);

  // Calls the method on a worker.
  template <class Request, class Response>
  grpc::ServerUnaryReactor* HandOver(grpc::CallbackServerContext* context,
                                     const Request* request,
                                     Response* response,
                                     Method<Request, Response> method);
  // Calls it on verifiers of the model until one inspects.
  template <class Request, class Response>
  absl::Status Call(const grpc::CallbackServerContext& context,
                    const Request& request,
                    Response* response,
                    Method<Request, Response> method) const;

  const SessionEnvironment environment_;
  const ModelCatalog* const catalog_;
  // Last: its tasks use the rest. Each waits for a verifier.
  WorkerPool workers_;
};

}  // namespace specwire::coordinator
