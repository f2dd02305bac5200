// SPDX-License-Identifier: Apache-2.0
#include "coordinator/inspect_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "coordinator/request_validation.h"
#include "grpcpp/client_context.h"

namespace specwire::coordinator {
namespace {

// Calls that wait for a verifier at once, and that wait for that.
constexpr int kNumWorkers = 2;
constexpr size_t kMaxQueued = 16;
constexpr absl::Duration kRetryDelay = absl::Seconds(1);
// For those whose caller sets no limit, or a longer one.
constexpr std::chrono::seconds kMaxDuration(30);

}  // namespace

InspectService::InspectService(const SessionEnvironment& environment,
                               const ModelCatalog* catalog)
    : environment_(environment),
      catalog_(catalog),
      workers_("inspect", kNumWorkers, kMaxQueued) {}

template <class Request, class Response>
absl::Status InspectService::Call(const grpc::CallbackServerContext& context,
                                  const Request& request,
                                  Response* response,
                                  Method<Request, Response> method) const {
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::shared_ptr<const CatalogModel> model,
      ResolveModel(request.model(), *catalog_, *environment_.registry));
  std::set<std::string> others;
  while (true) {
    absl::StatusOr<NodeInfo> node = environment_.registry->AcquireVerifier(
        model->info.model.model_digest, others);
    if (!node.ok()) {
      if (others.empty()) return node.status();
      return absl::UnimplementedError(
          absl::StrCat("no verifier of \"",
                       model->info.model.name,
                       "\" inspects; start one with --inspect"));
    }
    const std::unique_ptr<grpc::ClientContext> call =
        grpc::ClientContext::FromCallbackServerContext(context);
    call->set_deadline(std::min(
        context.deadline(), std::chrono::system_clock::now() + kMaxDuration));
    const Membership::CallGuard guard(
        environment_.membership, node->node_id, call.get());
    const std::shared_ptr<const NodeLink> link =
        environment_.membership->Link(node->node_id);
    const absl::Status status =
        link == nullptr ? absl::UnavailableError("the verifier has left")
                        : FromGrpcStatus((link->inspect.*method)(
                              call.get(), request, response));
    environment_.registry->Release(node->node_id, 0);
    if (!absl::IsUnimplemented(status)) return status;
    others.insert(node->node_id);
  }
}

template <class Request, class Response>
grpc::ServerUnaryReactor* InspectService::HandOver(
    grpc::CallbackServerContext* context,
    const Request* request,
    Response* response,
    Method<Request, Response> method) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool queued =
      workers_.Post([this, context, request, response, method, reactor] {
        reactor->Finish(
            ToGrpcStatus(context->IsCancelled()
                             ? absl::CancelledError("the caller has gone")
                             : Call(*context, *request, response, method)));
      });
  if (!queued) {
    reactor->Finish(ToGrpcStatus(WithRetryDelay(
        absl::ResourceExhaustedError("too many texts wait to be inspected"),
        kRetryDelay)));
  }
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::InspectAttention(
    grpc::CallbackServerContext* context,
    const v1::InspectAttentionRequest* request,
    v1::InspectAttentionResponse* response) {
  return HandOver(
      context, request, response, &v1::InspectService::Stub::InspectAttention);
}

grpc::ServerUnaryReactor* InspectService::InspectNextToken(
    grpc::CallbackServerContext* context,
    const v1::InspectNextTokenRequest* request,
    v1::InspectNextTokenResponse* response) {
  return HandOver(
      context, request, response, &v1::InspectService::Stub::InspectNextToken);
}

grpc::ServerUnaryReactor* InspectService::InspectCache(
    grpc::CallbackServerContext* context,
    const v1::InspectCacheRequest* request,
    v1::InspectCacheResponse* response) {
  return HandOver(
      context, request, response, &v1::InspectService::Stub::InspectCache);
}

}  // namespace specwire::coordinator
