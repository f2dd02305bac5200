// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/up_plan.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

namespace specwire::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
// How long children may take to end after SIGTERM, the coordinator's own grace
// for running requests included.
constexpr absl::Duration kStopGrace = absl::Seconds(8);

// Runs a plan: starts the children, watches them, stops them.
// Thread safety: one thread, the process's first.
class Supervisor {
 public:
  Supervisor(UpPlan plan, absl::Duration ready_timeout)
      : plan_(std::move(plan)),
        ready_timeout_(ready_timeout),
        signals_({SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {}
  ~Supervisor() {
    if (coordinator_output_fd_ >= 0) {
      close(coordinator_output_fd_);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int Run() {
    const absl::Status started = Start();
    int exit_code = kExitDone;
    if (!started.ok()) {
      PrintError(started.message());
      exit_code = kExitFailed;
    } else if (!stopping_) {
      exit_code = Watch();
    }
    StopChildren();
    return exit_code;
  }

 private:
  // Starts everything and waits until it serves. OK too if a signal asks to
  // stop meanwhile.
  absl::Status Start() {
    const absl::Time deadline = absl::Now() + ready_timeout_;
    SPECWIRE_RETURN_IF_ERROR(StartCoordinator(deadline));
    for (ChildSpec node : plan_.nodes) {
      if (stopping_) {
        return absl::OkStatus();
      }
      node.arguments.insert(node.arguments.end(),
                            {"--coordinator", DialAddress(addresses_.rpc)});
      SPECWIRE_RETURN_IF_ERROR(StartChild(node));
    }
    std::string missing;
    while (!stopping_ && !(missing = NodeNotServing()).empty()) {
      if (!misfit_.empty()) {
        return absl::FailedPreconditionError(misfit_);
      }
      SPECWIRE_RETURN_IF_ERROR(WaitBeforeReady(deadline, missing));
    }
    if (!stopping_) {
      AnnounceReady();
    }
    return absl::OkStatus();
  }

  // Starts the coordinator and waits until it has told its addresses.
  absl::Status StartCoordinator(absl::Time deadline) {
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
      return absl::InternalError("cannot make a pipe");
    }
    // Stays open: a later line of the coordinator must not end it.
    coordinator_output_fd_ = pipe_fds[0];
    ChildSpec spec = plan_.coordinator;
    spec.output_fd = pipe_fds[1];
    const absl::Status status = StartChild(spec);
    close(pipe_fds[1]);
    SPECWIRE_RETURN_IF_ERROR(status);
    std::string output;
    while (!stopping_) {
      char bytes[512];
      const ssize_t count = read(coordinator_output_fd_, bytes, sizeof(bytes));
      if (count > 0) {
        output.append(bytes, static_cast<size_t>(count));
      }
      addresses_ = ParseCoordinatorOutput(output);
      if (!addresses_.rpc.empty() &&
          (!plan_.has_http || !addresses_.http.empty())) {
        channel_ = MakeChannel(DialAddress(addresses_.rpc));
        return absl::OkStatus();
      }
      SPECWIRE_RETURN_IF_ERROR(
          WaitBeforeReady(deadline, "the coordinator does not listen yet"));
    }
    return absl::OkStatus();
  }

  absl::Status StartChild(const ChildSpec& spec) {
    absl::StatusOr<ChildProcess> child = ChildProcess::Start(spec);
    if (!child.ok()) {
      return child.status();
    }
    SPECWIRE_LOG(Info, "started ", spec.name, " (pid ", child->pid(), ")");
    children_.push_back(*std::move(child));
    return absl::OkStatus();
  }

  // The coordinator's nodes, in `nodes_`.
  absl::Status Ask() {
    grpc::ClientContext context;
    SetTimeout(absl::Seconds(1), &context);
    const grpc::Status status =
        v1::ClusterService::NewStub(channel_)->ListNodes(&context, {}, &nodes_);
    return status.ok() ? absl::OkStatus()
                       : absl::UnavailableError(status.error_message());
  }

  // What is still missing, in words; empty if every node serves. A node that
  // fits no model never will: `misfit_` then says why.
  std::string NodeNotServing() {
    if (!Ask().ok()) {
      return "the coordinator does not answer";
    }
    std::string missing;
    std::string misfit;
    bool verifiers_serve = true;
    for (size_t i = 1; i < children_.size(); ++i) {
      const ChildProcess& child = children_[i];
      v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;
      bool is_verifier = child.name().starts_with("verifier");
      for (const v1::Node& node : nodes_.nodes()) {
        if (node.registration().pid() == child.pid() &&
            node.registration().name() == child.name()) {
          state = node.state();
          if (state == v1::NODE_STATE_INCOMPATIBLE) {
            misfit = absl::StrCat(child.name(), ": ", node.reason());
          }
        }
      }
      if (state != v1::NODE_STATE_SERVING) {
        missing = absl::StrCat(child.name(), " does not serve yet");
        verifiers_serve = verifiers_serve && !is_verifier;
      }
    }
    if (verifiers_serve) {
      misfit_ = misfit;
    }
    return missing;
  }

  // Waits a moment. An error if a child has ended, or the time is up.
  absl::Status WaitBeforeReady(absl::Time deadline,
                               const std::string& missing) {
    WaitForSignal(kPollInterval);
    if (stopping_) {
      return absl::OkStatus();
    }
    for (ChildProcess& child : children_) {
      if (child.Reap()) {
        return absl::UnavailableError(absl::StrCat(
            child.name(),
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

  void AnnounceReady() {
    const std::string address = DialAddress(addresses_.rpc);
    std::printf("coordinator %s\n", address.c_str());
    if (!addresses_.http.empty()) {
      std::printf("http http://%s\n", DialAddress(addresses_.http).c_str());
    }
    std::printf("READY\n");
    std::fflush(stdout);
    std::fprintf(stderr,
                 "Try: specwire generate --coordinator %s --temperature 0 "
                 "--chat \"What is a token?\"\nCtrl-C ends the cluster.\n",
                 address.c_str());
  }

  // Until a signal asks to stop; an error exit code if all children have ended.
  int Watch() {
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

  // Ends the coordinator first, so that its running requests can use the grace
  // that it gives them, then the nodes. A further signal, or the grace's end,
  // kills what is left.
  void StopChildren() {
    stopping_ = false;
    const absl::Time deadline = absl::Now() + kStopGrace;
    if (!children_.empty()) {
      StopAndWait(0, 1, deadline);
      StopAndWait(1, children_.size(), deadline);
    }
    for (ChildProcess& child : children_) {
      child.Signal(SIGKILL);
    }
    while (AnyRunning(0, children_.size())) {
      WaitForSignal(kPollInterval);
    }
  }

  void StopAndWait(size_t begin, size_t end, absl::Time deadline) {
    for (size_t i = begin; i < end; ++i) {
      children_[i].Signal(SIGTERM);
    }
    while (AnyRunning(begin, end) && !stopping_ && absl::Now() < deadline) {
      WaitForSignal(kPollInterval);
    }
  }

  bool AnyRunning(size_t begin, size_t end) {
    bool any = false;
    for (size_t i = begin; i < end; ++i) {
      children_[i].Reap();
      any = any || children_[i].running();
    }
    return any;
  }

  // Returns at the next signal (a child's end among them) or after `timeout`;
  // sets `stopping_` if it asks to stop.
  void WaitForSignal(absl::Duration timeout) {
    pollfd fd = {signals_.fd(), POLLIN, 0};
    const int64_t milliseconds = timeout == absl::InfiniteDuration()
                                     ? -1
                                     : absl::ToInt64Milliseconds(timeout);
    poll(&fd, 1, static_cast<int>(milliseconds));
    while (const std::optional<int> signal = signals_.Take()) {
      stopping_ = stopping_ || *signal != SIGCHLD;
    }
  }

  const UpPlan plan_;
  const absl::Duration ready_timeout_;
  SignalSource signals_;
  // The coordinator, then the nodes as in the plan.
  std::vector<ChildProcess> children_;
  int coordinator_output_fd_ = -1;
  CoordinatorAddresses addresses_;
  std::shared_ptr<grpc::Channel> channel_;
  v1::ListNodesResponse nodes_;
  std::string misfit_;
  bool stopping_ = false;
};

struct UpFlags {
  UpOptions options;
  int ready_timeout_s = 300;
};

int RunUp(const UpFlags& flags) {
  // Blocked before any thread exists, as the other signals are.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);

  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    PrintError("cannot tell where this program lies: /proc is not mounted");
    return kExitFailed;
  }
  absl::StatusOr<UpPlan> plan =
      MakeUpPlan(flags.options, program.parent_path().string());
  if (!plan.ok()) {
    PrintError(plan.status().message());
    return absl::IsInvalidArgument(plan.status()) ? kExitUsage : kExitFailed;
  }
  SPECWIRE_LOG(Info,
               "engine ",
               flags.options.engine,
               ", drafter ",
               flags.options.drafter,
               ", ",
               plan->nodes.size(),
               " nodes with ",
               flags.options.num_threads,
               " thread(s) each on ",
               sysconf(_SC_NPROCESSORS_ONLN),
               " processors; --threads changes that");
  return Supervisor(*std::move(plan), absl::Seconds(flags.ready_timeout_s))
      .Run();
}

void AddUpFlags(CLI::App* command, UpFlags* flags) {
  UpOptions* options = &flags->options;
  command->add_option("--engine", options->engine, "The verifiers' engine")
      ->check(CLI::IsMember({"reference"}))
      ->capture_default_str();
  command->add_option("--drafter", options->drafter, "What drafts")
      ->check(CLI::IsMember({"ngram", "oracle", "none"}))
      ->capture_default_str();
  command->add_option("--verifiers", options->num_verifiers, "Verifier nodes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--draft_nodes", options->num_draft_nodes, "Draft nodes")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command->add_option("--threads", options->num_threads, "Threads of each node")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--listen",
                   options->listen,
                   "HOST:PORT of the coordinator; port 0 takes a free one")
      ->capture_default_str();
  command
      ->add_option("--http",
                   options->http,
                   "HOST:PORT for /health and /metrics; port 0 takes a free "
                   "one, 'none' serves none")
      ->capture_default_str();
  command->add_option("--metrics",
                      options->metrics,
                      "HOST:PORT for the first node's /metrics; the others "
                      "take the ports after it");
  command->add_option("--model",
                      options->model,
                      "The target's file (default: SmolLM2-135M-Instruct in "
                      "models/)");
  command->add_option("--draft_model",
                      options->draft_model,
                      "The drafter's file (default for oracle: the target's)");
  command->add_option("--max_model_len",
                      options->max_model_len,
                      "Longest sequence in tokens (default: the model's)");
  command->add_option("--kv_cache_mib",
                      options->kv_cache_mib,
                      "KV cache of each node that has a model");
  command->add_option("--log_level", options->log_level, "For all processes")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  command
      ->add_option("--ready_timeout_s",
                   flags->ready_timeout_s,
                   "Give up if the cluster is not ready by then")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

}  // namespace

void AddUpCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "up",
      "A whole cluster on this machine, until Ctrl-C; prints READY once it "
      "serves");
  auto flags = std::make_shared<UpFlags>();
  AddUpFlags(command, flags.get());
  AddEnvironmentNames(command);
  command->callback([command, flags, runner] {
    // The children get what they need as flags; the same variables would mean
    // something else to them.
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_envname().empty()) {
        unsetenv(option->get_envname().c_str());
      }
    }
    *runner = [flags] { return RunUp(*flags); };
  });
}

}  // namespace specwire::cli
