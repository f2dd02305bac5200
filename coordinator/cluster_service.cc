// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster_service.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "coordinator/stats.h"

namespace specwire::coordinator {
namespace {

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

grpc::ServerUnaryReactor* Unimplemented(grpc::CallbackServerContext* context,
                                        absl::string_view method) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(
      absl::UnimplementedError(absl::StrCat(method, " is not served yet"))));
  return reactor;
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
  }

  void OnMessage(v1::JoinRequest request) override {
    if (!registration_.has_value()) {
      Register(request);
    } else if (request.has_load()) {
      OnLoad(request.load());
    } else {
      sender_->Finish(absl::InvalidArgumentError(
          "event: after the first message only load is expected"));
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
    v1::JoinResponse response;
    v1::JoinAccepted* accepted = response.mutable_accepted();
    accepted->set_node_id(registration_->node_id);
    accepted->set_report_interval_ms(static_cast<int32_t>(
        absl::ToInt64Milliseconds(service_->options_.report_interval)));
    sender_->Send(std::move(response));
  }

  void OnLoad(const v1::NodeLoad& message) {
    const NodeLoad load = {message.num_sequences(),
                           message.kv_blocks_used(),
                           message.kv_blocks_total(),
                           message.progress(),
                           message.num_waiting(),
                           message.kv_blocks_cached()};
    if (!service_->membership_->OnLoad(*registration_, load)) {
      sender_->Finish(absl::AbortedError(
          "this stream's registration was replaced; register again"));
    }
  }

  ClusterService* const service_;
  const Sender sender_;
  // Touched by OnMessage, which never overlaps itself, and by OnClosed, which
  // comes last.
  std::optional<Registry::Registration> registration_;
};

ClusterService::ClusterService(const CoordinatorOptions& options,
                               const Registry* registry,
                               const MetricsRegistry* metrics,
                               Membership* membership)
    : options_(options),
      registry_(registry),
      metrics_(metrics),
      membership_(membership) {}

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
    const v1::DrainNodeRequest* /*request*/,
    v1::DrainNodeResponse* /*response*/) {
  return Unimplemented(context, "DrainNode");
}

grpc::ServerUnaryReactor* ClusterService::GetStats(
    grpc::CallbackServerContext* context,
    const v1::GetStatsRequest* /*request*/,
    v1::GetStatsResponse* response) {
  *response = MakeStatsResponse(metrics_->ReadCounters());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void ClusterService::Shutdown() {
  std::map<const void*, Sender> streams;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    streams = streams_;
  }
  for (const auto& [key, sender] : streams) {
    sender->Finish(absl::UnavailableError("the coordinator is shutting down"));
  }
}

bool ClusterService::AddStream(const void* key, const Sender& sender) {
  MutexLock lock(&mutex_);
  if (stopping_) return false;
  streams_[key] = sender;
  return true;
}

void ClusterService::RemoveStream(const void* key) {
  MutexLock lock(&mutex_);
  streams_.erase(key);
}

}  // namespace specwire::coordinator
