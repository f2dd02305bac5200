// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_cluster.h"

#include <signal.h>
#include <sys/wait.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"
#include "common/rpc/credentials.h"
#include "common/rpc/status.h"
#include "httplib.h"
#include "tests/testing/generate_call.h"

namespace specwire::faults {
namespace {

// Nothing that is not broken takes so long.
constexpr absl::Duration kStartTime = absl::Seconds(60);
constexpr absl::Duration kAnswerTime = absl::Seconds(5);

std::string Numbered(absl::string_view what, int number) {
  return absl::StrCat(what, "-", number);
}

absl::StatusOr<std::string> After(absl::string_view prefix,
                                  ChildProcess* program) {
  const std::string line = program->ReadLine();
  absl::string_view rest = line;
  if (absl::ConsumePrefix(&rest, prefix)) return std::string(rest);
  return absl::InternalError(
      absl::StrCat("no \"", prefix, "\" but \"", line, "\""));
}

}  // namespace

FaultCluster::FaultCluster(std::string bin,
                           uint64_t seed,
                           ClusterTimes times,
                           bool tls)
    : bin_(std::move(bin)),
      seed_(seed),
      authority_(tls ? std::make_unique<TestAuthority>() : nullptr),
      client_tls_(tls ? authority_->Issue("user", "user") : TlsFiles()) {
  coordinators_.resize(kCoordinators);
  for (int i = 0; i < kCoordinators; ++i) {
    Program& program = programs_[Numbered("coordinator", i)];
    program.command = {absl::StrCat(bin_, "/coordinator"),
                       "--listen=127.0.0.1:0",
                       "--http=127.0.0.1:0",
                       // Shorter than usual, so that cells are.
                       "--stream_deadline=5",
                       "--log_level=warning"};
    for (const std::string& flag : TlsFlags(kCoordinatorCertificate)) {
      program.command.push_back(flag);
    }
    AddRelay(Numbered("client", i));
    program.relays = {Numbered("client", i)};
  }
  for (int i = 0; i < kVerifiers; ++i) {
    AddNode(Numbered("verifier", i),
            {absl::StrCat(bin_, "/verifier_node"),
             "--engine=synthetic",
             "--allow_synthetic",
             absl::StrCat("--synthetic_step_us=",
                          absl::ToInt64Microseconds(times.step)),
             absl::StrCat("--synthetic_row_us=",
                          absl::ToInt64Microseconds(times.row))});
  }
  for (int i = 0; i < kDrafters; ++i) {
    AddNode(Numbered("draft", i),
            {absl::StrCat(bin_, "/draft_node"),
             "--drafter=synthetic",
             "--allow_synthetic",
             "--synthetic_acceptance=0.7"});
  }
}

std::vector<std::string> FaultCluster::TlsFlags(const std::string& name) const {
  if (authority_ == nullptr) return {};
  const TlsFiles files = authority_->Issue(name, name);
  return {absl::StrCat("--tls_cert=", files.cert),
          absl::StrCat("--tls_key=", files.key),
          absl::StrCat("--tls_ca=", files.ca)};
}

RpcChannelOptions FaultCluster::ChannelOptions() const {
  RpcChannelOptions options;
  if (authority_ == nullptr) return options;
  options.credentials = MakeChannelCredentials(
      authority_->Issue(kOperatorCertificate, kOperatorCertificate));
  options.peer_name = kCoordinatorCertificate;
  return options;
}

std::string FaultCluster::AddRelay(const std::string& name) {
  RelayOptions options;
  options.seed = seed_ + relays_.size();
  absl::StatusOr<std::unique_ptr<Relay>> relay = Relay::Start(options);
  if (!relay.ok()) std::abort();
  const std::string address = (*relay)->address();
  relays_[name] = *std::move(relay);
  return address;
}

void FaultCluster::AddNode(const std::string& name,
                           std::vector<std::string> command) {
  std::vector<std::string> joins;
  for (int i = 0; i < kCoordinators; ++i) {
    const std::string join = Numbered(absl::StrCat("join-", name), i);
    joins.push_back(AddRelay(join));
    programs_[Numbered("coordinator", i)].relays.push_back(join);
  }
  command.insert(command.end(),
                 {absl::StrCat("--name=", name),
                  absl::StrCat("--advertise=", AddRelay(name)),
                  absl::StrCat("--coordinator=", absl::StrJoin(joins, ",")),
                  "--threads=1",
                  "--log_level=warning"});
  for (const std::string& flag : TlsFlags(kNodeCertificate)) {
    command.push_back(flag);
  }
  programs_[name].command = std::move(command);
  programs_[name].relays = {name};
}

absl::Status FaultCluster::Start() {
  for (const auto& [name, program] : programs_) {
    SPECWIRE_RETURN_IF_ERROR(StartProgram(name));
  }
  absl::Status idle;
  if (Eventually([&] { return (idle = CheckIdle()).ok(); }, kStartTime)) {
    return absl::OkStatus();
  }
  return idle;
}

absl::Status FaultCluster::StartProgram(const std::string& name) {
  Program& program = programs_.at(name);
  program.ended = false;
  program.process = std::make_unique<ChildProcess>(program.command);
  SPECWIRE_ASSIGN_OR_RETURN(const std::string address,
                            After("listening on ", program.process.get()));
  for (const std::string& relay : program.relays) {
    SPECWIRE_RETURN_IF_ERROR(relays_.at(relay)->SetTarget(address));
  }
  for (int i = 0; i < kCoordinators; ++i) {
    if (name != Numbered("coordinator", i)) continue;
    Coordinator& coordinator = coordinators_[static_cast<size_t>(i)];
    SPECWIRE_ASSIGN_OR_RETURN(coordinator.http,
                              After("http on ", program.process.get()));
    const auto channel = MakeChannel(address, ChannelOptions());
    coordinator.generation = v1::GenerationService::NewStub(channel);
    coordinator.cluster = v1::ClusterService::NewStub(channel);
  }
  return absl::OkStatus();
}

pid_t FaultCluster::pid(const std::string& name) const {
  return programs_.at(name).process->pid();
}

void FaultCluster::Signal(const std::string& name, int signal) {
  programs_.at(name).process->Signal(signal);
}

bool FaultCluster::HasEnded(const std::string& name) const {
  if (programs_.at(name).ended) return true;
  siginfo_t info = {};
  return waitid(P_PID,
                static_cast<id_t>(pid(name)),
                &info,
                WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

int FaultCluster::WaitEnded(const std::string& name, absl::Duration timeout) {
  if (!Eventually([&] { return HasEnded(name); }, timeout)) return -1000;
  Program& program = programs_.at(name);
  if (!std::exchange(program.ended, true)) {
    program.exit_code = program.process->Wait();
  }
  return program.exit_code;
}

std::vector<std::string> FaultCluster::names() const {
  std::vector<std::string> names;
  for (const auto& [name, program] : programs_) names.push_back(name);
  return names;
}

absl::Status FaultCluster::SetLink(const std::string& link,
                                   const LinkConditions& forward,
                                   const LinkConditions& backward) {
  return relays_.at(link)->SetConditions(forward, backward);
}

void FaultCluster::HealLinks() {
  for (const auto& [name, relay] : relays_) {
    relay->SetConditions({}, {}).IgnoreError();
  }
}

std::string FaultCluster::client_addresses() const {
  std::vector<std::string> addresses;
  for (int i = 0; i < kCoordinators; ++i) {
    addresses.push_back(relays_.at(Numbered("client", i))->address());
  }
  return absl::StrJoin(addresses, ",");
}

v1::GenerationService::Stub* FaultCluster::generation(int coordinator) const {
  return coordinators_[static_cast<size_t>(coordinator)].generation.get();
}

absl::Status FaultCluster::CheckIdle() const {
  sequences_ = 0;
  blocks_ = 0;
  for (int i = 0; i < kCoordinators; ++i) {
    const absl::Status status = CheckCoordinator(i);
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat(Numbered("coordinator", i), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ListNodesResponse> FaultCluster::ListNodes(
    int coordinator) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTime));
  v1::ListNodesResponse nodes;
  SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(
      coordinators_[static_cast<size_t>(coordinator)].cluster->ListNodes(
          &context, v1::ListNodesRequest(), &nodes)));
  return nodes;
}

std::vector<std::string> FaultCluster::BusyNodes() const {
  std::vector<std::string> busy;
  const absl::StatusOr<v1::ListNodesResponse> nodes = ListNodes(0);
  if (!nodes.ok()) return busy;
  for (const v1::Node& node : nodes->nodes()) {
    if (node.state() == v1::NODE_STATE_SERVING &&
        node.load().num_sequences() > 0) {
      busy.push_back(node.registration().name());
    }
  }
  return busy;
}

absl::Status FaultCluster::CheckNodes(int number) const {
  SPECWIRE_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes,
                            ListNodes(number));
  std::set<std::string> serving;
  std::string busy;
  std::string others;
  for (const v1::Node& node : nodes.nodes()) {
    if (node.state() != v1::NODE_STATE_SERVING) {
      absl::StrAppend(&others,
                      "; ",
                      node.registration().name(),
                      ": ",
                      v1::NodeState_Name(node.state()),
                      " ",
                      node.reason());
      continue;
    }
    const std::string& name = node.registration().name();
    serving.insert(name);
    sequences_ += node.load().num_sequences();
    blocks_ += node.load().kv_blocks_used();
    if (node.load().num_sequences() + node.load().kv_blocks_used() > 0) {
      absl::StrAppend(&busy,
                      name,
                      " has ",
                      node.load().num_sequences(),
                      " sequences and ",
                      node.load().kv_blocks_used(),
                      " blocks; ");
    }
  }
  if (serving.size() != kVerifiers + kDrafters) {
    return absl::UnavailableError(absl::StrCat(
        "only these serve: ", absl::StrJoin(serving, ", "), others));
  }
  return busy.empty() ? absl::OkStatus() : absl::FailedPreconditionError(busy);
}

absl::Status FaultCluster::CheckCoordinator(int number) const {
  SPECWIRE_RETURN_IF_ERROR(CheckNodes(number));
  const Coordinator& coordinator = coordinators_[static_cast<size_t>(number)];
  httplib::Client http("http://" + coordinator.http);
  const httplib::Result page = http.Get("/metrics");
  if (!page) return absl::UnavailableError("no answer from /metrics");
  if (SumSeries(page->body, metric::kNumRequestsRunning) +
          SumSeries(page->body, metric::kNumRequestsWaiting) !=
      0) {
    return absl::FailedPreconditionError("requests are still running");
  }
  grpc::ClientContext stats_context;
  stats_context.set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTime));
  v1::GetStatsResponse stats;
  SPECWIRE_RETURN_IF_ERROR(FromGrpcStatus(coordinator.cluster->GetStats(
      &stats_context, v1::GetStatsRequest(), &stats)));
  const v1::SpeculationStats& total = stats.total();
  if (total.num_drafted_tokens() !=
      total.num_draft_tokens() + total.num_overlapped_tokens() +
          total.num_stale_tokens() + total.num_trimmed_tokens() +
          total.num_unused_tokens()) {
    return absl::InternalError(absl::StrCat("drafted tokens do not add up: ",
                                            total.ShortDebugString()));
  }
  return absl::OkStatus();
}

}  // namespace specwire::faults
