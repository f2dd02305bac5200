// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep_cluster.h"

#include <utility>

#include "absl/strings/match.h"
#include "cli/client.h"
#include "cli/up_flags.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "specwire/v1/verifier.grpc.pb.h"

namespace specwire::cli::bench {
namespace {

bool IsVerifier(const std::string& node) {
  return absl::StartsWith(node, "verifier-");
}

bool IsStretched(const std::string& node, StretchedLink link) {
  switch (link) {
    case StretchedLink::kDraft:
      return !IsVerifier(node);
    case StretchedLink::kVerifier:
      return IsVerifier(node);
    case StretchedLink::kBoth:
      return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SweepCluster>> SweepCluster::Start(
    const UpOptions& up, StretchedLink link, absl::Duration ready_timeout) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::string folder, ProgramFolder());
  SPECWIRE_ASSIGN_OR_RETURN(UpPlan plan, MakeUpPlan(up, folder));
  auto cluster = std::unique_ptr<SweepCluster>(new SweepCluster());
  SweepCluster* const raw = cluster.get();
  raw->link_ = link;
  for (ChildSpec& node : plan.nodes) {
    if (!IsStretched(node.name, link)) continue;
    RelayOptions options;
    options.seed = raw->relays_.size();
    SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Relay> relay,
                              Relay::Start(options));
    node.arguments.insert(node.arguments.end(),
                          {"--advertise", relay->address()});
    raw->relays_[node.name] = std::move(relay);
  }
  raw->supervisor_ = std::make_unique<Supervisor>(
      std::move(plan),
      ready_timeout,
      [raw](const std::string& node, const std::string& address) {
        raw->addresses_[node] = address;
        const auto relay = raw->relays_.find(node);
        return relay == raw->relays_.end() ? absl::OkStatus()
                                           : relay->second->SetTarget(address);
      });
  SPECWIRE_RETURN_IF_ERROR(raw->supervisor_->Start());
  if (raw->supervisor_->stopping()) return absl::CancelledError("interrupted");
  return cluster;
}

SweepCluster::~SweepCluster() {
  if (supervisor_ != nullptr) supervisor_->Stop();
}

absl::Status SweepCluster::SetRoundTrip(absl::Duration round_trip,
                                        double jitter) {
  const int num_directions = link_ == StretchedLink::kBoth ? 4 : 2;
  LinkConditions conditions;
  conditions.delay = round_trip / num_directions;
  conditions.jitter = conditions.delay * jitter;
  for (const auto& [_, relay] : relays_) {
    SPECWIRE_RETURN_IF_ERROR(relay->SetConditions(conditions, conditions));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::StepCost>> SweepCluster::StepCosts() const {
  for (const auto& [node, address] : addresses_) {
    if (!IsVerifier(node)) continue;
    const auto stub = v1::VerifierService::NewStub(MakeChannel(address));
    grpc::ClientContext context;
    SetTimeout(kAnswerTimeout, &context);
    const auto reader = stub->GetModel(&context, {});
    v1::GetModelResponse first;
    if (!reader->Read(&first)) {
      SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
      return absl::InternalError("the verifier does not tell its model");
    }
    // The tokenizer behind it is of no use here.
    context.TryCancel();
    reader->Finish();
    return std::vector<v1::StepCost>(first.step_costs().begin(),
                                     first.step_costs().end());
  }
  return absl::InternalError("there is no verifier");
}

absl::StatusOr<absl::Duration> SweepCluster::DraftTokenTime() const {
  for (const auto& [node, address] : addresses_) {
    if (IsVerifier(node)) continue;
    grpc::ClientContext context;
    SetTimeout(kAnswerTimeout, &context);
    v1::GetDrafterResponse drafter;
    SPECWIRE_RETURN_IF_ERROR(
        FromGrpcStatus(v1::DraftService::NewStub(MakeChannel(address))
                           ->GetDrafter(&context, {}, &drafter)));
    return absl::Nanoseconds(drafter.draft_token_ns());
  }
  return absl::ZeroDuration();
}

}  // namespace specwire::cli::bench
