// SPDX-License-Identifier: Apache-2.0
#include "cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/client.h"
#include "cli/command.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
// How long the coordinator may take to end after SIGTERM, its own grace for
// running requests included; and then the nodes.
constexpr absl::Duration kStopGrace = absl::Seconds(5);
// A drafter that fits nobody is judged anew when a verifier has come; only one
// that stays so is a mistake.
constexpr absl::Duration kMisfitGrace = absl::Seconds(1);

}  // namespace

void BlockSupervisorSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Supervisor::Supervisor(UpPlan plan,
                       absl::Duration ready_timeout,
                       OnListening on_listening)
    : plan_(std::move(plan)),
      ready_timeout_(ready_timeout),
      on_listening_(std::move(on_listening)),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {}

Supervisor::~Supervisor() {
  for (const int fd : output_fds_) close(fd);
}

int Supervisor::Run() {
  const absl::Status started = Start();
  int exit_code = kExitDone;
  if (!started.ok()) {
    PrintError(started.message());
    exit_code = kExitFailed;
  } else if (!stopping_) {
    AnnounceReady();
    exit_code = Watch();
  }
  Stop();
  return exit_code;
}

absl::Status Supervisor::Start() {
  const absl::Time deadline = absl::Now() + ready_timeout_;
  SPECWIRE_RETURN_IF_ERROR(StartCoordinator(deadline));
  for (ChildSpec node : plan_.nodes) {
    if (stopping_) {
      return absl::OkStatus();
    }
    node.arguments.insert(node.arguments.end(),
                          {"--coordinator", DialAddress(addresses_.rpc)});
    SPECWIRE_RETURN_IF_ERROR(StartNode(std::move(node), deadline));
  }
  while (!stopping_) {
    SPECWIRE_ASSIGN_OR_RETURN(const std::string missing, FindMissing());
    if (missing.empty()) break;
    SPECWIRE_RETURN_IF_ERROR(WaitBeforeReady(deadline, missing));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::StartCoordinator(absl::Time deadline) {
  SPECWIRE_RETURN_IF_ERROR(StartAndRead(
      plan_.coordinator, deadline, [this](const std::string& output) {
        addresses_ = ParseCoordinatorOutput(output);
        return !addresses_.rpc.empty() &&
               (!plan_.has_http || !addresses_.http.empty());
      }));
  if (!stopping_) {
    channel_ = MakeChannel(DialAddress(addresses_.rpc),
                           CoordinatorChannelOptions(plan_.tls));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::StartNode(ChildSpec spec, absl::Time deadline) {
  if (on_listening_ == nullptr) return StartChild(spec);
  std::string address;
  const std::string name = spec.name;
  SPECWIRE_RETURN_IF_ERROR(StartAndRead(
      std::move(spec), deadline, [&address](const std::string& output) {
        address = ParseCoordinatorOutput(output).rpc;
        return !address.empty();
      }));
  return stopping_ ? absl::OkStatus() : on_listening_(name, address);
}

absl::Status Supervisor::StartAndRead(
    ChildSpec spec,
    absl::Time deadline,
    const std::function<bool(const std::string& output)>& done) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::InternalError("cannot make a pipe");
  }
  output_fds_.push_back(pipe_fds[0]);
  spec.output_fd = pipe_fds[1];
  const absl::Status status = StartChild(spec);
  close(pipe_fds[1]);
  SPECWIRE_RETURN_IF_ERROR(status);
  std::string output;
  while (!stopping_) {
    char bytes[512];
    const ssize_t count = read(pipe_fds[0], bytes, sizeof(bytes));
    if (count > 0) output.append(bytes, static_cast<size_t>(count));
    if (done(output)) break;
    SPECWIRE_RETURN_IF_ERROR(WaitBeforeReady(
        deadline, absl::StrCat(spec.name, " does not listen yet")));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::StartChild(const ChildSpec& spec) {
  absl::StatusOr<ChildProcess> child = ChildProcess::Start(spec);
  if (!child.ok()) {
    return child.status();
  }
  SPECWIRE_LOG(Info, "started ", spec.name, " (pid ", child->pid(), ")");
  children_.push_back(*std::move(child));
  return absl::OkStatus();
}

absl::Status Supervisor::ListNodes(v1::ListNodesResponse* nodes) {
  grpc::ClientContext context;
  SetTimeout(absl::Seconds(1), &context);
  return FromGrpcStatus(
      v1::ClusterService::NewStub(channel_)->ListNodes(&context, {}, nodes));
}

absl::StatusOr<std::string> Supervisor::FindMissing() {
  v1::ListNodesResponse nodes;
  if (!ListNodes(&nodes).ok()) {
    return std::string("the coordinator does not answer");
  }
  std::string missing;
  std::string misfit;
  for (size_t i = 1; i < children_.size(); ++i) {
    const ChildProcess& child = children_[i];
    v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;
    for (const v1::Node& node : nodes.nodes()) {
      if (node.registration().pid() == child.pid() &&
          node.registration().name() == child.name()) {
        state = node.state();
        misfit = absl::StrCat(child.name(), ": ", node.reason());
      }
    }
    // Verifiers come first: until they serve, a drafter may fit nobody yet.
    if (state == v1::NODE_STATE_INCOMPATIBLE && missing.empty()) {
      const absl::Time now = absl::Now();
      if (now - misfit_since_.value_or(now) > kMisfitGrace) {
        return absl::FailedPreconditionError(misfit);
      }
      misfit_since_ = misfit_since_.value_or(now);
      return misfit;
    }
    if (state != v1::NODE_STATE_SERVING && missing.empty()) {
      missing = absl::StrCat(child.name(), " does not serve yet");
    }
  }
  misfit_since_.reset();
  return missing;
}

absl::Status Supervisor::WaitBeforeReady(absl::Time deadline,
                                         const std::string& missing) {
  WaitForSignal(kPollInterval);
  if (stopping_) {
    return absl::OkStatus();
  }
  for (ChildProcess& child : children_) {
    if (child.Reap()) {
      return absl::UnavailableError(
          absl::StrCat(child.name(),
                       " ",
                       child.EndText(),
                       " before the cluster was ready; its message is above"));
    }
  }
  if (absl::Now() > deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat(missing,
                     " after ",
                     absl::FormatDuration(ready_timeout_),
                     "; see the messages above, or raise --ready_timeout_s"));
  }
  return absl::OkStatus();
}

void Supervisor::AnnounceReady() {
  const std::string address = DialAddress(addresses_.rpc);
  std::printf("coordinator %s\n", address.c_str());
  if (!addresses_.http.empty()) {
    std::printf("http %s://%s\n",
                plan_.http_tls ? "https" : "http",
                DialAddress(addresses_.http).c_str());
  }
  std::printf("READY\n");
  std::fflush(stdout);
  std::fprintf(stderr,
               "Try: specwire generate --coordinator %s --temperature 0 "
               "--chat \"What is a token?\"\nCtrl-C ends the cluster.\n",
               address.c_str());
}

int Supervisor::Watch() {
  while (!stopping_) {
    bool any_running = false;
    for (ChildProcess& child : children_) {
      if (child.Reap()) {
        SPECWIRE_LOG(Warning,
                     child.name(),
                     " (pid ",
                     child.pid(),
                     ") ",
                     child.EndText(),
                     "; it is not restarted, the others stay up");
      }
      any_running = any_running || child.running();
    }
    if (!any_running) {
      PrintError("all processes of the cluster have ended");
      return kExitFailed;
    }
    WaitForSignal(absl::InfiniteDuration());
  }
  return kExitDone;
}

void Supervisor::Stop() {
  stopping_ = false;
  if (!children_.empty()) {
    StopAndWait(0, 1);
    StopAndWait(1, children_.size());
  }
  for (ChildProcess& child : children_) {
    child.Signal(SIGKILL);
  }
  while (AnyRunning(0, children_.size())) {
    WaitForSignal(kPollInterval);
  }
}

void Supervisor::StopAndWait(size_t begin, size_t end) {
  const absl::Time deadline = absl::Now() + kStopGrace;
  for (size_t i = begin; i < end; ++i) {
    children_[i].Signal(SIGTERM);
  }
  while (AnyRunning(begin, end) && !stopping_ && absl::Now() < deadline) {
    WaitForSignal(kPollInterval);
  }
}

bool Supervisor::AnyRunning(size_t begin, size_t end) {
  bool any = false;
  for (size_t i = begin; i < end; ++i) {
    children_[i].Reap();
    any = any || children_[i].running();
  }
  return any;
}

void Supervisor::WaitForSignal(absl::Duration timeout) {
  pollfd fd = {signals_.fd(), POLLIN, 0};
  const int64_t milliseconds = timeout == absl::InfiniteDuration()
                                   ? -1
                                   : absl::ToInt64Milliseconds(timeout);
  poll(&fd, 1, static_cast<int>(milliseconds));
  while (const std::optional<int> signal = signals_.Take()) {
    stopping_ = stopping_ || *signal != SIGCHLD;
  }
}

}  // namespace specwire::cli
