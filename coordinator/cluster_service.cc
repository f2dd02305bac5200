// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster_service.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "coordinator/stats.h"

namespace specwire::coordinator {
namespace {

constexpr size_t kMaxReasonLength = 200;
constexpr int64_t kMaxGraceMs = 24 * 3'600'000;

v1::NodeState ToProto(NodeState state) {
  switch (state) {
    case NodeState::kJoining:
      return v1::NODE_STATE_JOINING;
    case NodeState::kServing:
      return v1::NODE_STATE_SERVING;
    case NodeState::kSuspect:
      return v1::NODE_STATE_SUSPECT;
    case NodeState::kDraining:
      return v1::NODE_STATE_DRAINING;
    case NodeState::kIncompatible:
      return v1::NODE_STATE_INCOMPATIBLE;
    case NodeState::kGone:
      return v1::NODE_STATE_GONE;
  }
  return v1::NODE_STATE_UNSPECIFIED;
}

v1::Node ToProto(const NodeInfo& info) {
  v1::Node node;
  node.set_node_id(info.node_id);
  v1::NodeRegistration* registration = node.mutable_registration();
  registration->set_name(info.identity.name);
  registration->set_role(info.identity.role == NodeRole::kDraft
                             ? v1::NODE_ROLE_DRAFT
                             : v1::NODE_ROLE_VERIFIER);
  registration->set_address(info.identity.address);
  registration->set_incarnation_id(info.identity.incarnation_id);
  registration->set_pid(info.identity.pid);
  node.set_state(ToProto(info.state));
  node.set_reason(info.reason);
  v1::NodeLoad* load = node.mutable_load();
  load->set_num_sequences(info.load.num_sequences);
  load->set_kv_blocks_used(info.load.kv_blocks_used);
  load->set_kv_blocks_total(info.load.kv_blocks_total);
  load->set_progress(info.load.progress);
  load->set_num_waiting(info.load.num_waiting);
  load->set_kv_blocks_cached(info.load.kv_blocks_cached);
  load->set_working(info.load.working);
  load->set_slowdown(info.load.slowdown);
  if (info.verifier.has_value()) {
    *node.mutable_model() =
        specwire::ToProto(info.verifier->model,
                          info.verifier->vocabulary_fingerprint,
                          info.verifier->max_num_sequences);
    node.mutable_model()->set_max_queued_sequences(
        info.verifier->max_queued_sequences);
  }
  if (info.drafter.has_value()) node.set_drafter(info.drafter->name);
  return node;
}

absl::StatusOr<NodeIdentity> FromProto(const v1::NodeRegistration& message) {
  NodeIdentity identity;
  switch (message.role()) {
    case v1::NODE_ROLE_DRAFT:
      identity.role = NodeRole::kDraft;
      break;
    case v1::NODE_ROLE_VERIFIER:
      identity.role = NodeRole::kVerifier;
      break;
    default:
      return absl::InvalidArgumentError(
          "registration.role: must be NODE_ROLE_DRAFT or NODE_ROLE_VERIFIER");
  }
  identity.name = message.name();
  identity.address = message.address();
  identity.incarnation_id = message.incarnation_id();
  identity.pid = message.pid();
  return identity;
}

// What a node says of why it drains, for people and logs.
std::string DrainReason(const v1::NodeDraining& message) {
  std::string reason(
      absl::string_view(message.reason()).substr(0, kMaxReasonLength));
  for (char& c : reason) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return reason;
}

std::string DrainGrace(const v1::NodeDraining& message) {
  const absl::Duration grace =
      absl::Ceil(absl::Milliseconds(
                     std::clamp(message.grace_ms(), int64_t{0}, kMaxGraceMs)),
                 absl::Milliseconds(100));
  if (grace == absl::ZeroDuration()) {
    return "running sequences end at once";
  }
  return absl::StrCat(absl::FormatDuration(grace),
                      " for running sequences to end");
}

}  // namespace

// One node's Join stream.
class ClusterService::JoinHandler final
    : public StreamHandler<v1::JoinRequest> {
 public:
  JoinHandler(ClusterService* service, Sender sender)
      : service_(service), sender_(std::move(sender)) {
    if (!service_->AddStream(this, sender_)) {
      sender_->Finish(
          absl::UnavailableError("the coordinator is shutting down"));
    }
    watched_ = service_->watch_.Add([sender = sender_](absl::Status status) {
      sender->Cancel(std::move(status));
    });
  }

  void OnMessage(v1::JoinRequest request) override {
    watched_->OnHeard();
    if (!registration_.has_value()) {
      Register(request);
    } else if (request.has_load()) {
      OnLoad(request.load());
    } else if (request.has_draining()) {
      CheckCurrent(
          service_->membership_->OnDraining(*registration_,
                                            DrainReason(request.draining()),
                                            DrainGrace(request.draining())));
    } else {
      sender_->Finish(absl::InvalidArgumentError(
          "event: after the first message only load or draining is expected"));
    }
  }

  void OnClosed(absl::Status status) override {
    service_->RemoveStream(this);
    if (!registration_.has_value()) return;
    service_->membership_->Leave(
        *registration_,
        status.ok()
            ? std::string("it has left")
            : absl::StrCat("its Join stream ended: ", status.message()));
  }

 private:
  void Register(const v1::JoinRequest& request) {
    if (!request.has_registration()) {
      sender_->Finish(absl::InvalidArgumentError(
          "event: the first message must be a registration"));
      return;
    }
    absl::StatusOr<NodeIdentity> identity = FromProto(request.registration());
    if (!identity.ok()) {
      sender_->Finish(identity.status());
      return;
    }
    absl::StatusOr<Registry::Registration> registration =
        service_->membership_->Join(*identity);
    if (!registration.ok()) {
      SPECWIRE_LOG(Warning,
                   "refused node '",
                   identity->name,
                   "' at ",
                   identity->address,
                   ": ",
                   registration.status().message());
      sender_->Finish(registration.status());
      return;
    }
    registration_ = *std::move(registration);
    service_->SetStreamNode(this, registration_->node_id);
    v1::JoinResponse response;
    v1::JoinAccepted* accepted = response.mutable_accepted();
    accepted->set_node_id(registration_->node_id);
    accepted->set_report_interval_ms(static_cast<int32_t>(
        absl::ToInt64Milliseconds(service_->options_.report_interval)));
    accepted->set_max_silence_ms(static_cast<int32_t>(
        absl::ToInt64Milliseconds(service_->options_.stream_deadline)));
    sender_->Send(std::move(response));
  }

  void OnLoad(const v1::NodeLoad& message) {
    const NodeLoad load = {message.num_sequences(),
                           message.kv_blocks_used(),
                           message.kv_blocks_total(),
                           message.progress(),
                           message.num_waiting(),
                           message.kv_blocks_cached(),
                           message.working(),
                           message.slowdown()};
    if (!CheckCurrent(service_->membership_->OnLoad(*registration_, load))) {
      return;
    }
    v1::JoinResponse response;
    response.mutable_alive();
    sender_->Send(std::move(response));
  }

  // Returns `current`.
  bool CheckCurrent(bool current) {
    if (!current) {
      sender_->Finish(absl::AbortedError(
          "this stream's registration was replaced; register again"));
    }
    return current;
  }

  ClusterService* const service_;
  const Sender sender_;
  std::shared_ptr<StreamWatch::Watched> watched_;
  // Touched by OnMessage, which never overlaps itself, and by OnClosed, which
  // comes last.
  std::optional<Registry::Registration> registration_;
};

ClusterService::ClusterService(const CoordinatorOptions& options,
                               const Registry* registry,
                               const MetricsRegistry* metrics,
                               const CoordinatorMetrics* requests,
                               Membership* membership)
    : options_(options),
      registry_(registry),
      metrics_(metrics),
      requests_(requests),
      membership_(membership),
      watch_(options.stream_deadline) {}

grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse>*
ClusterService::Join(grpc::CallbackServerContext* context) {
  return StartServerStream<v1::JoinRequest, v1::JoinResponse>(
      context, StreamLimits{.max_queued_messages = 16}, [this](Sender sender) {
        return std::make_shared<JoinHandler>(this, std::move(sender));
      });
}

grpc::ServerUnaryReactor* ClusterService::ListNodes(
    grpc::CallbackServerContext* context,
    const v1::ListNodesRequest* /*request*/,
    v1::ListNodesResponse* response) {
  for (const NodeInfo& node : registry_->Nodes()) {
    *response->add_nodes() = ToProto(node);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::DrainNode(
    grpc::CallbackServerContext* context,
    const v1::DrainNodeRequest* request,
    v1::DrainNodeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(Drain(*request, response->mutable_node())));
  return reactor;
}

absl::Status ClusterService::Drain(const v1::DrainNodeRequest& request,
                                   v1::Node* node) {
  if (request.has_grace_ms() &&
      (request.grace_ms() < 0 || request.grace_ms() > kMaxGraceMs)) {
    return absl::InvalidArgumentError(absl::StrCat("grace_ms: ",
                                                   request.grace_ms(),
                                                   " is not between 0 and ",
                                                   kMaxGraceMs));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const NodeInfo found,
                            registry_->FindLive(request.node()));
  SPECWIRE_RETURN_IF_ERROR(
      membership_->Drain(found.node_id, "an operator asked for it"));
  v1::JoinResponse command;
  v1::DrainCommand* const drain = command.mutable_drain();
  if (request.has_grace_ms()) drain->set_grace_ms(request.grace_ms());
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, stream] : streams_) {
      // A node that reconnects may have two for a moment.
      if (stream.node_id == found.node_id) stream.sender->Send(command);
    }
  }
  SPECWIRE_ASSIGN_OR_RETURN(const NodeInfo drained,
                            registry_->FindById(found.node_id));
  *node = ToProto(drained);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ClusterService::GetStats(
    grpc::CallbackServerContext* context,
    const v1::GetStatsRequest* /*request*/,
    v1::GetStatsResponse* response) {
  *response = MakeStatsResponse(metrics_->ReadCounters());
  // Gauges are read one by one, while they move.
  response->set_num_requests_running(
      static_cast<int32_t>(std::max(requests_->NumRunning(), 0.0)));
  response->set_num_requests_waiting(
      static_cast<int32_t>(std::max(requests_->waiting->value(), 0.0)));
  response->set_uptime_ms(absl::ToInt64Milliseconds(clock_.Now() - started_));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void ClusterService::Shutdown() {
  std::map<const void*, Stream> streams;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    stream.sender->Finish(
        absl::UnavailableError("the coordinator is shutting down"));
  }
}

bool ClusterService::AddStream(const void* key, const Sender& sender) {
  MutexLock lock(&mutex_);
  if (stopping_) return false;
  streams_[key].sender = sender;
  return true;
}

void ClusterService::SetStreamNode(const void* key,
                                   const std::string& node_id) {
  MutexLock lock(&mutex_);
  const auto it = streams_.find(key);
  if (it != streams_.end()) it->second.node_id = node_id;
}

void ClusterService::RemoveStream(const void* key) {
  MutexLock lock(&mutex_);
  streams_.erase(key);
}

}  // namespace specwire::coordinator
