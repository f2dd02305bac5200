// SPDX-License-Identifier: Apache-2.0

// hop_bench: what a message takes from one program to the next, and what a
// round of speculation takes beside its computation. Real processes on this
// machine, with gRPC streams over loopback:
//
//   rpc     a message there and back, answered and taken by gRPC's threads;
//   worker  the same, answered and taken by the programs' own threads;
//   round   verifier, coordinator, draft node and back: from a commit to the
//           start of the next pass, the drafter's computation included.
//
// Contenders are compared in turns, so that what else runs on the machine
// disturbs all alike. One is this program, of this or another build, with
// flags:
//
//   hop_bench --contender "build/old/bin/hop_bench"
//             --contender "build/new/bin/hop_bench --rpc_threads 0"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/busy_processes.h"
#include "bench/hop_roles.h"
#include "bench/processes.h"
#include "common/base/logging.h"
#include "common/base/signals.h"
#include "common/base/status_macros.h"
#include "common/rpc/pollers.h"
#include "common/rpc/server.h"

namespace specwire::bench {
namespace {

// Rounds at the start of a turn that do not count: all is cold.
constexpr size_t kNumColdRounds = 30;

struct Flags {
  std::vector<std::string> contenders;
  std::vector<std::string> kinds = {"rpc", "worker", "round"};
  int num_turns = 10;
  int num_busy = 0;
  // Of a turn.
  size_t num_rounds = 300;
  int64_t pass_us = 2000;
  int64_t draft_us = 500;
  int rpc_threads = 1;
  int coordinator_rpc_threads = 1;
  // Of the programs that a turn starts.
  std::string verifier;
  std::string drafter;
  bool worker = false;
};

struct Figures {
  std::vector<double> rounds;
  // For each turn, processor time of a round in microseconds.
  std::vector<double> cpu_us;
};

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(
                           part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

std::string ThisProgram() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// 0: as many as gRPC starts.
std::unique_ptr<Pollers> LimitPollers(int num_threads) {
  return num_threads > 0 ? std::make_unique<Pollers>(num_threads) : nullptr;
}

// Serves until it is told to end. Standard output is for the address.
void ServeUntilSignal(const std::string& address) {
  std::cout << "listening on " << address << std::endl;
  WaitForShutdownSignal();
}

absl::Status RunDrafter(const Flags& flags) {
  const auto pollers = LimitPollers(flags.rpc_threads);
  std::optional<HopWorker> worker;
  if (flags.worker) worker.emplace(absl::Microseconds(flags.draft_us));
  HopDrafter service(worker.has_value() ? &*worker : nullptr);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                            RpcServer::Start({}, {&service}));
  ServeUntilSignal(server->address());
  return absl::OkStatus();
}

absl::Status RunCoordinator(const Flags& flags) {
  const auto pollers = LimitPollers(flags.coordinator_rpc_threads);
  StartHopCoordinator(flags.verifier, flags.drafter);
  ServeUntilSignal("nothing");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Server>> StartDrafter(const Flags& flags,
                                                     bool worker,
                                                     int64_t draft_us) {
  std::vector<std::string> arguments = {"drafter",
                                        "--rpc_threads",
                                        absl::StrCat(flags.rpc_threads),
                                        "--draft_us",
                                        absl::StrCat(draft_us)};
  if (worker) arguments.push_back("--worker");
  return Server::Start("drafter", ThisProgram(), arguments);
}

// Processor time of a process so far; finer than the ticks of its figures.
absl::Duration ProcessorTime(pid_t pid) {
  int64_t sum = 0;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", pid, "/task"), ignored)) {
    int64_t nanoseconds = 0;
    std::ifstream(thread.path() / "schedstat") >> nanoseconds;
    sum += nanoseconds;
  }
  return absl::Nanoseconds(sum);
}

// Prints the processor time of a round, the verifier's passes left out, and the
// rounds.
[[noreturn]] void PrintTurn(const Flags& flags,
                            const std::vector<Server*>& others,
                            absl::Duration computed,
                            RoundTimes* times) {
  times->Take(kNumColdRounds);
  const auto processor_time = [&others] {
    absl::Duration sum = ProcessorTime(getpid());
    for (const Server* other : others) sum += ProcessorTime(other->pid());
    return sum;
  };
  const absl::Duration begin = processor_time();
  const std::vector<double> rounds = times->Take(flags.num_rounds);
  const absl::Duration used = processor_time() - begin;
  if (rounds.size() < flags.num_rounds) {
    std::cerr << "hop_bench: the connection was lost" << std::endl;
    std::_Exit(1);
  }
  std::printf(
      "%.1f",
      absl::ToDoubleMicroseconds(used) / static_cast<double>(rounds.size()) -
          absl::ToDoubleMicroseconds(computed));
  for (const double round : rounds) std::printf(" %.1f", round);
  std::printf("\n");
  std::fflush(stdout);
  // Nothing is worth an orderly end.
  std::_Exit(0);
}

absl::Status RunCalls(const Flags& flags, bool worker) {
  const auto pollers = LimitPollers(flags.rpc_threads);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Server> drafter,
                            StartDrafter(flags, worker, 0));
  RoundTimes times;
  HopWorker own(absl::ZeroDuration());
  const auto sender =
      StartHopCaller(drafter->address(), worker ? &own : nullptr, &times);
  PrintTurn(flags, {drafter.get()}, absl::ZeroDuration(), &times);
}

absl::Status RunRounds(const Flags& flags) {
  const auto pollers = LimitPollers(flags.rpc_threads);
  RoundTimes times;
  HopWorker worker(absl::ZeroDuration());
  HopVerifier service(&worker, absl::Microseconds(flags.pass_us), &times);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                            RpcServer::Start({}, {&service}));
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> drafter,
      StartDrafter(flags, /*worker=*/true, flags.draft_us));
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> coordinator,
      Server::Start("coordinator",
                    ThisProgram(),
                    {"coordinator",
                     "--coordinator_rpc_threads",
                     absl::StrCat(flags.coordinator_rpc_threads),
                     "--verifier",
                     server->address(),
                     "--drafter",
                     drafter->address()}));
  PrintTurn(flags,
            {drafter.get(), coordinator.get()},
            absl::Microseconds(flags.pass_us + flags.draft_us),
            &times);
}

absl::Status RunTurn(const Flags& flags) {
  if (flags.kinds.front() == "round") return RunRounds(flags);
  return RunCalls(flags, flags.kinds.front() == "worker");
}

absl::Status AddTurn(const std::string& contender,
                     const std::string& kind,
                     const Flags& flags,
                     Figures* figures) {
  const std::string command = absl::StrCat(contender,
                                           " --kinds ",
                                           kind,
                                           " --rounds ",
                                           flags.num_rounds,
                                           " --pass_us ",
                                           flags.pass_us,
                                           " --draft_us ",
                                           flags.draft_us,
                                           " turn");
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return absl::InternalError("cannot start a process");
  double value = 0;
  const bool ran = std::fscanf(output, "%lf", &value) == 1;
  if (ran) figures->cpu_us.push_back(value);
  while (std::fscanf(output, "%lf", &value) == 1) {
    figures->rounds.push_back(value);
  }
  pclose(output);
  // A turn that lost a connection, as happens on an overloaded machine, is
  // left out.
  if (!ran) std::cerr << "failed: " << command << std::endl;
  return absl::OkStatus();
}

absl::Status RunAll(Flags flags) {
  if (flags.contenders.empty()) flags.contenders.push_back(ThisProgram());
  const BusyProcesses busy(flags.num_busy);
  for (const std::string& kind : flags.kinds) {
    std::vector<Figures> figures(flags.contenders.size());
    for (int turn = 0; turn < flags.num_turns; ++turn) {
      for (size_t i = 0; i < figures.size(); ++i) {
        SPECWIRE_RETURN_IF_ERROR(
            AddTurn(flags.contenders[i], kind, flags, &figures[i]));
      }
    }
    for (size_t i = 0; i < figures.size(); ++i) {
      std::printf("%-7s p50 %5.0f us, p90 %5.0f us, processor %5.0f us  %s\n",
                  kind.c_str(),
                  Percentile(figures[i].rounds, 0.5),
                  Percentile(figures[i].rounds, 0.9),
                  Percentile(figures[i].cpu_us, 0.5),
                  flags.contenders[i].c_str());
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App* app, Flags* flags) {
  const auto add = [app](const char* name, auto* value, const char* help) {
    return app->add_option(name, *value, help)->capture_default_str();
  };
  add("--contender", &flags->contenders, "program with flags, may be repeated");
  add("--kinds", &flags->kinds, "what is measured")->delimiter(',');
  add("--turns", &flags->num_turns, "turns of each contender");
  add("--busy", &flags->num_busy, "processes that compute beside it");
  add("--rounds", &flags->num_rounds, "rounds of a turn");
  add("--pass_us", &flags->pass_us, "round: microseconds of a pass");
  add("--draft_us", &flags->draft_us, "round: microseconds of a draft");
  add("--rpc_threads",
      &flags->rpc_threads,
      "gRPC's polling threads in a node; 0: all that it starts");
  add("--coordinator_rpc_threads",
      &flags->coordinator_rpc_threads,
      "the same in the coordinator");
}

int Main(int argc, char** argv) {
  BlockShutdownSignals();
  CLI::App app("What messages between programs take.");
  Flags flags;
  AddFlags(&app, &flags);
  // These are started by the program itself.
  CLI::App* const turn = app.add_subcommand("turn", "one turn of one kind");
  CLI::App* const drafter = app.add_subcommand("drafter", "the draft node");
  drafter->add_flag("--worker", flags.worker);
  drafter->add_option("--draft_us", flags.draft_us);
  drafter->add_option("--rpc_threads", flags.rpc_threads);
  CLI::App* const coordinator =
      app.add_subcommand("coordinator", "the coordinator");
  coordinator->add_option("--verifier", flags.verifier);
  coordinator->add_option("--drafter", flags.drafter);
  coordinator->add_option("--coordinator_rpc_threads",
                          flags.coordinator_rpc_threads);
  CLI11_PARSE(app, argc, argv);
  InitLogging("hop_bench", LogLevel::kError);
  const bool serves = drafter->parsed() || coordinator->parsed();
  if (!serves) UnblockShutdownSignals();
  const absl::Status status = drafter->parsed()       ? RunDrafter(flags)
                              : coordinator->parsed() ? RunCoordinator(flags)
                              : turn->parsed()        ? RunTurn(flags)
                                                      : RunAll(flags);
  if (status.ok()) return 0;
  std::cerr << "hop_bench: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace specwire::bench

int main(int argc, char** argv) { return specwire::bench::Main(argc, argv); }
