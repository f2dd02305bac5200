// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/draining.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"
#include "common/metrics/process_metrics.h"
#include "common/rpc/credentials.h"
#include "coordinator/access.h"
#include "coordinator/http/console/console_routes.h"
#include "coordinator/http/http_access.h"
#include "coordinator/http/openai_routes.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"

namespace specwire::coordinator {
namespace {

// For calls that have been ended to be gone.
constexpr absl::Duration kServerGrace = absl::Seconds(1);
constexpr absl::Duration kSessionGrace = absl::Seconds(5);
// Between two looks for clients that do not read.
constexpr absl::Duration kMostStallPeriod = absl::Seconds(5);
// Each connection costs a thread; what may take long leaves room for the rest.
constexpr int kHttpConnections = 512;
constexpr int kHttpSlowRequests = 448;

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    const CoordinatorOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(ValidateOptions(options));
  std::unique_ptr<Coordinator> coordinator(new Coordinator(options));
  SPECWIRE_RETURN_IF_ERROR(coordinator->Listen());
  return coordinator;
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options),
      metrics_registry_(MetricLabels{{metric::kNodeRole, "coordinator"}}),
      metrics_(&metrics_registry_),
      registry_(RegistryOptions{.max_silence = options.max_silence,
                                .max_stall = options.max_stall}) {
  membership_ = std::make_unique<Membership>(
      options_,
      &registry_,
      &catalog_,
      MembershipEvents{
          .drafters_gained = [this] { generation_->OnDrafterAvailable(); },
          .model_gained =
              [this](const std::string& name) { metrics_.ForModel(name); },
          .node_suspect =
              [this](const std::string& node_id, const absl::Status& why) {
                generation_->OnNodeSuspect(node_id, why);
              }});
  const SessionEnvironment environment = {&registry_,
                                          membership_.get(),
                                          &timer_,
                                          &metrics_,
                                          &priors_,
                                          options_.drafter_deadline,
                                          options_.stream_deadline};
  generation_ =
      std::make_unique<GenerationService>(options_, environment, &catalog_);
  cluster_ = std::make_unique<ClusterService>(
      options_, &registry_, &metrics_registry_, &metrics_, membership_.get());
  inspect_ = std::make_unique<InspectService>(environment, &catalog_);
  if (options_.metrics_vllm_aliases) metrics_registry_.RepeatForVllm();
  AddBuildInfo(&metrics_registry_);
  AddProcessMetrics(&metrics_registry_);
  AddNodeGauges();
  CheckStalls();
}

Coordinator::~Coordinator() {
  if (const absl::Status status = Shutdown(absl::ZeroDuration());
      !status.ok()) {
    SPECWIRE_LOG(Error, "shutdown: ", status.ToString());
  }
}

absl::Status Coordinator::Listen() {
  SPECWIRE_RETURN_IF_ERROR(LoadKeys());
  // HTTP first: a node that finds the coordinator may join at once, and then
  // nothing may fail any more.
  if (!options_.http.empty()) SPECWIRE_RETURN_IF_ERROR(ListenHttp());
  RpcServerOptions server_options;
  server_options.listen = options_.listen;
  server_options.reflection = options_.reflection;
  server_options.max_connections = options_.security.max_connections;
  server_options.max_connection_age = kMaxConnectionAge;
  if (options_.security.tls.enabled() || api_keys_ != nullptr) {
    server_options.credentials = MakeServerCredentials(
        options_.security.tls,
        ClientCertificates::kOptional,
        [keys = api_keys_.get(), tls = options_.security.tls.enabled()](
            const Caller& caller) { return CheckAccess(caller, tls, keys); });
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      server_,
      RpcServer::Start(server_options,
                       {generation_.get(), cluster_.get(), inspect_.get()}));
  if (http_ != nullptr) {
    http_backend_.channel = server_->InProcessChannel();
    http_->Serve();
  }
  SPECWIRE_LOG(Info,
               DescribeSecurity(options_.security),
               ", ",
               api_keys_ == nullptr
                   ? "no API keys"
                   : absl::StrCat(api_keys_->size(), " API keys"));
  server_->SetServing(v1::GenerationService::service_full_name(), true);
  server_->SetServing(v1::ClusterService::service_full_name(), true);
  return absl::OkStatus();
}

absl::Status Coordinator::LoadKeys() {
  if (!options_.api_keys.empty()) {
    SPECWIRE_ASSIGN_OR_RETURN(api_keys_, ApiKeys::Load(options_.api_keys));
  }
  if (!options_.operator_keys.empty()) {
    SPECWIRE_ASSIGN_OR_RETURN(
        operator_keys_, ApiKeys::Load(options_.operator_keys, "operator_keys"));
  }
  if (api_keys_ != nullptr || operator_keys_ != nullptr) RefreshKeys();
  return absl::OkStatus();
}

absl::Status Coordinator::ListenHttp() {
  HttpServerOptions http_options;
  http_options.listen = options_.http;
  http_options.max_connections = kHttpConnections;
  http_options.max_slow_requests = kHttpSlowRequests;
  if (options_.http_tls) http_options.tls = options_.security.tls;
  http_ = std::make_unique<HttpServer>(http_options);
  AddMetricsRoutes(
      http_.get(), &metrics_registry_, [this] { return Health(); });
  SPECWIRE_ASSIGN_OR_RETURN(const HostPort address,
                            ParseHostPort(options_.http, "http"));
  http_backend_.access = {
      .tls = options_.security.tls.enabled(),
      .safe = options_.http_tls || options_.security.allow_insecure ||
              IsLoopback(address.host),
      .local_only = IsLoopback(address.host) && api_keys_ == nullptr &&
                    !options_.security.allow_insecure,
      .keys = api_keys_.get(),
      .operator_keys = operator_keys_.get()};
  for (const auto* service : {v1::GenerationService::service_full_name(),
                              v1::ClusterService::service_full_name(),
                              v1::InspectService::service_full_name()}) {
    AddRpcRoutes(
        http_.get(),
        &http_backend_,
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            service));
  }
  // Nobody should type a key into a page that sends it in the clear.
  if (http_backend_.access.safe) {
    AddConsoleRoutes(http_.get(), [this](const HttpRequest& request) {
      return DrainAccessName(DrainAccessOf(request, http_backend_.access));
    });
  }
  http_backend_.catalog = &catalog_;
  http_backend_.spec_decode_metrics = options_.per_request_spec_decode_metrics;
  AddOpenAiRoutes(http_.get(), &http_backend_);
  return http_->Listen();
}

std::string Coordinator::http_address() const {
  return http_ == nullptr ? "" : http_->address();
}

void Coordinator::AddNodeGauges() {
  for (const NodeRole role : {NodeRole::kDraft, NodeRole::kVerifier}) {
    for (const NodeState state : {NodeState::kJoining,
                                  NodeState::kServing,
                                  NodeState::kSuspect,
                                  NodeState::kDraining,
                                  NodeState::kIncompatible,
                                  NodeState::kGone}) {
      metrics_registry_.AddCallbackGauge(
          metric::kNodes,
          "Nodes by role and state.",
          {{metric::kRole, std::string(NodeRoleName(role))},
           {metric::kState, std::string(NodeStateName(state))}},
          [this, role, state] {
            return static_cast<double>(registry_.Count(role, state));
          });
    }
  }
}

void Coordinator::CheckStalls() {
  MutexLock lock(&periodic_mutex_);
  if (stopping_) return;
  generation_->CheckStalls(absl::Now());
  timer_.ScheduleAfter(std::min(options_.client_stall / 4, kMostStallPeriod),
                       [this] { CheckStalls(); });
}

void Coordinator::RefreshKeys() {
  MutexLock lock(&periodic_mutex_);
  if (stopping_) return;
  if (api_keys_ != nullptr) api_keys_->Refresh();
  if (operator_keys_ != nullptr) operator_keys_->Refresh();
  timer_.ScheduleAfter(kCertificateRefresh, [this] { RefreshKeys(); });
}

HealthReport Coordinator::Health() const {
  const bool serving = !draining_;
  const int num_verifiers =
      registry_.Count(NodeRole::kVerifier, NodeState::kServing);
  const nlohmann::json json = {
      {"status",
       !serving             ? "shutting down"
       : num_verifiers == 0 ? "no verifier"
                            : "serving"},
      {"verifiers", num_verifiers},
      {"draft_nodes", registry_.Count(NodeRole::kDraft, NodeState::kServing)},
      {"requests", generation_->num_requests()}};
  // Starting it anew would bring no verifier.
  return {.healthy = serving,
          .ready = serving && num_verifiers > 0,
          .json = json.dump()};
}

void Coordinator::Drain() {
  draining_ = true;
  generation_->StopAccepting();
  if (server_ == nullptr) return;
  server_->SetServing("", false);
  server_->SetServing(v1::GenerationService::service_full_name(), false);
  server_->SetServing(v1::ClusterService::service_full_name(), false);
}

absl::Status Coordinator::Shutdown(absl::Duration grace) {
  if (shut_down_) return shutdown_status_;
  shut_down_ = true;
  Drain();
  stopping_ = true;
  { MutexLock lock(&periodic_mutex_); }
  generation_->WaitForRequests(absl::Now() + grace);
  generation_->FailAll(DrainingError("the coordinator is shutting down"));
  cluster_->Shutdown();
  if (server_ != nullptr) shutdown_status_ = server_->Shutdown(kServerGrace);
  if (!generation_->WaitForSessions(absl::Now() + kSessionGrace) &&
      shutdown_status_.ok()) {
    shutdown_status_ =
        absl::DeadlineExceededError("streams to nodes do not end");
  }
  if (http_ != nullptr) http_->Stop();
  http_backend_.channel.reset();
  return shutdown_status_;
}

}  // namespace specwire::coordinator
