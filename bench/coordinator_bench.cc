// SPDX-License-Identifier: Apache-2.0

// coordinator_bench: the coordinator under load from synthetic nodes. Two
// parts, both with real processes on this machine:
//
//   load    thousands of Generate calls at once: processor time of the
//           coordinator for each commit, its memory for each call, its threads;
//   rounds  a few calls in lock-step: what a verify round takes beyond its
//           step, against a bare gRPC relay in the coordinator's place, in
//           turns.
//
// See docs/performance.md.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/load_client.h"
#include "bench/processes.h"
#include "bench/relay.h"
#include "common/base/logging.h"
#include "common/base/signals.h"
#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "nlohmann/json.hpp"

namespace specwire::bench {
namespace {

constexpr absl::Duration kWaitForAll = absl::Minutes(3);

struct Flags {
  // Load.
  int num_streams = 5000;
  int num_channels = 4;
  // Enough that a pass has room for all sequences of a node and for drafts.
  int num_verifiers = 25;
  int num_drafters = 2;
  // One token needs no pass before the first that decodes.
  int prompt_length = 1;
  double commits_per_second = 2000;
  double seconds = 15;
  // Rounds.
  int num_round_streams = 2;
  int num_blocks = 8;
  int tokens_per_block = 400;
  int64_t step_us = 2000;
  // Both.
  int run_length = 4;
  std::string acceptance = "0.8";
  bool json = false;
  bool no_load = false;
  bool no_rounds = false;
};

struct LoadFigures {
  int64_t streams = 0;
  int64_t failed = 0;
  double commits_per_second = 0;
  double tokens_per_second = 0;
  double cpu_us_per_commit = 0;
  double idle_mib = 0;
  double peak_mib = 0;
  double after_mib = 0;
  double kib_per_stream = 0;
  int threads = 0;
};

struct RoundFigures {
  // Beyond the step, in microseconds.
  double coordinator_p50_us = 0;
  double coordinator_p99_us = 0;
  double relay_p50_us = 0;
  double relay_p99_us = 0;
  // Of the p50s of neighbouring blocks, the median.
  double above_relay_p50_us = 0;
  int64_t rounds = 0;
};

v1::GenerateRequest MakeRequest(const Flags& flags, int64_t seed) {
  v1::GenerateRequest request;
  for (int i = 0; i < flags.prompt_length; ++i) {
    // Bytes of the synthetic vocabulary; other prompts have other texts.
    request.mutable_token_ids()->add_ids(
        1 + static_cast<int>((seed * 31 + i * 7) % 256));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_speculation()->set_max_draft_tokens(flags.run_length);
  return request;
}

std::vector<std::string> DrafterFlags(const Flags& flags) {
  return {"--drafter",
          "synthetic",
          "--synthetic_acceptance",
          flags.acceptance,
          "--max_num_sequences",
          "4096"};
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(part * last)];
}

absl::StatusOr<LoadFigures> MeasureLoad(const Flags& flags,
                                        const std::string& folder) {
  ClusterOptions options;
  options.folder = folder;
  options.num_verifiers = flags.num_verifiers;
  options.num_drafters = flags.num_drafters;
  options.coordinator_flags = {"--max_requests",
                               absl::StrCat(flags.num_streams + 100)};
  // A node's pass serves all its sequences.
  const double step_us = 1e6 * flags.num_streams / flags.commits_per_second;
  options.verifier_flags = {"--engine",
                            "synthetic",
                            "--synthetic_step_us",
                            absl::StrCat(static_cast<int64_t>(step_us)),
                            "--max_num_sequences",
                            "4096"};
  options.drafter_flags = DrafterFlags(flags);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                            StartCluster(options));
  const pid_t pid = cluster->coordinator->pid();
  LoadFigures figures;
  SPECWIRE_ASSIGN_OR_RETURN(const ProcessFigures idle, ReadProcess(pid));
  figures.idle_mib = idle.resident_mib;

  LoadClient client(cluster->coordinator->address(), flags.num_channels);
  for (int i = 0; i < flags.num_streams; ++i) {
    client.Open(MakeRequest(flags, i + 1));
  }
  if (!client.WaitForFirstDeltas(flags.num_streams, kWaitForAll)) {
    return absl::DeadlineExceededError(
        absl::StrCat(client.num_started(),
                     " of ",
                     flags.num_streams,
                     " streams had a token in time"));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const ProcessFigures begin, ReadProcess(pid));
  const absl::Time begin_time = absl::Now();
  const int64_t begin_deltas = client.num_deltas();
  const int64_t begin_tokens = client.num_tokens();
  absl::SleepFor(absl::Seconds(flags.seconds));
  SPECWIRE_ASSIGN_OR_RETURN(const ProcessFigures end, ReadProcess(pid));
  const double elapsed = absl::ToDoubleSeconds(absl::Now() - begin_time);
  const auto commits = static_cast<double>(client.num_deltas() - begin_deltas);
  figures.streams = client.num_opened() - client.num_done();
  figures.failed = client.num_failed();
  figures.commits_per_second = commits / elapsed;
  figures.tokens_per_second =
      static_cast<double>(client.num_tokens() - begin_tokens) / elapsed;
  figures.cpu_us_per_commit =
      absl::ToDoubleMicroseconds(end.cpu - begin.cpu) / std::max(commits, 1.0);
  figures.peak_mib = end.resident_mib;
  figures.kib_per_stream =
      (end.resident_mib - idle.resident_mib) * 1024 / flags.num_streams;
  figures.threads = end.num_threads;
  if (figures.failed > 0) {
    std::fprintf(stderr, "a stream failed: %s\n", client.failure().c_str());
  }
  if (client.num_marked() != flags.num_streams) {
    return absl::InternalError("not every reply was marked as synthetic");
  }
  client.CancelAll();
  // For the coordinator to have ended them too.
  absl::SleepFor(absl::Seconds(2));
  SPECWIRE_ASSIGN_OR_RETURN(const ProcessFigures after, ReadProcess(pid));
  figures.after_mib = after.resident_mib;
  return figures;
}

// Rounds of one block: microseconds between deltas beyond the step.
absl::StatusOr<std::vector<double>> MeasureBlock(const Flags& flags,
                                                 const std::string& address) {
  LoadClient client(address, 1);
  for (int i = 0; i < flags.num_round_streams; ++i) {
    v1::GenerateRequest request = MakeRequest(flags, i + 1);
    request.mutable_speculation()->set_patience_us(-1);
    request.mutable_speculation()->set_window(flags.run_length);
    request.mutable_stop()->set_max_tokens(flags.tokens_per_block);
    client.Open(request, /*keep_times=*/true);
  }
  if (!client.WaitForEnds(kWaitForAll)) {
    return absl::DeadlineExceededError("rounds take too long");
  }
  if (client.num_failed() > 0) return absl::InternalError(client.failure());
  // Until the nodes have reported that they are idle: else the next streams may
  // be put on one of them.
  absl::SleepFor(absl::Milliseconds(1200));
  std::vector<double> rounds;
  for (const std::vector<absl::Time>& times : client.Times()) {
    // The first rounds meet cold connections.
    for (size_t i = 10; i < times.size(); ++i) {
      rounds.push_back(absl::ToDoubleMicroseconds(times[i] - times[i - 1]) -
                       static_cast<double>(flags.step_us));
    }
  }
  return rounds;
}

absl::StatusOr<RoundFigures> MeasureRounds(const Flags& flags,
                                           const std::string& folder,
                                           const std::string& program) {
  ClusterOptions options;
  options.folder = folder;
  // Each stream has nodes of its own, so none waits for another's pass.
  options.num_verifiers = flags.num_round_streams;
  options.num_drafters = flags.num_round_streams;
  options.verifier_flags = {"--engine",
                            "synthetic",
                            "--synthetic_step_us",
                            absl::StrCat(flags.step_us)};
  options.drafter_flags = DrafterFlags(flags);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                            StartCluster(options));
  std::vector<std::string> relay_flags = {"relay"};
  for (const auto& node : cluster->verifiers) {
    relay_flags.insert(relay_flags.end(), {"--verifier", node->address()});
  }
  for (const auto& node : cluster->drafters) {
    relay_flags.insert(relay_flags.end(), {"--drafter", node->address()});
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Server> relay,
                            Server::Start("relay", program, relay_flags));
  std::vector<double> by_coordinator;
  std::vector<double> by_relay;
  std::vector<double> differences;
  for (int block = 0; block < flags.num_blocks; ++block) {
    SPECWIRE_ASSIGN_OR_RETURN(
        const std::vector<double> first,
        MeasureBlock(flags, cluster->coordinator->address()));
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<double> second,
                              MeasureBlock(flags, relay->address()));
    differences.push_back(Percentile(first, 0.5) - Percentile(second, 0.5));
    by_coordinator.insert(by_coordinator.end(), first.begin(), first.end());
    by_relay.insert(by_relay.end(), second.begin(), second.end());
  }
  RoundFigures figures;
  figures.coordinator_p50_us = Percentile(by_coordinator, 0.5);
  figures.coordinator_p99_us = Percentile(by_coordinator, 0.99);
  figures.relay_p50_us = Percentile(by_relay, 0.5);
  figures.relay_p99_us = Percentile(by_relay, 0.99);
  figures.above_relay_p50_us = Percentile(differences, 0.5);
  figures.rounds = static_cast<int64_t>(by_coordinator.size());
  return figures;
}

nlohmann::ordered_json ToJson(const LoadFigures& figures) {
  return {{"streams", figures.streams},
          {"failed", figures.failed},
          {"commits_per_second", figures.commits_per_second},
          {"tokens_per_second", figures.tokens_per_second},
          {"cpu_us_per_commit", figures.cpu_us_per_commit},
          {"threads", figures.threads},
          {"idle_mib", figures.idle_mib},
          {"peak_mib", figures.peak_mib},
          {"after_mib", figures.after_mib},
          {"kib_per_stream", figures.kib_per_stream}};
}

nlohmann::ordered_json ToJson(const RoundFigures& figures) {
  return {{"rounds", figures.rounds},
          {"coordinator_p50_us", figures.coordinator_p50_us},
          {"coordinator_p99_us", figures.coordinator_p99_us},
          {"relay_p50_us", figures.relay_p50_us},
          {"relay_p99_us", figures.relay_p99_us},
          {"above_relay_p50_us", figures.above_relay_p50_us}};
}

void Print(const LoadFigures& figures) {
  std::printf(
      "load: %ld streams at once (%ld failed), %.0f commits/s, %.0f tokens/s\n"
      "  coordinator: %.1f us of processor time a commit (goal: 120)\n"
      "  coordinator: %d threads\n"
      "  coordinator: %.1f MiB idle, %.1f MiB at the peak, %.1f MiB after the "
      "end; %.1f KiB a stream\n",
      static_cast<long>(figures.streams),
      static_cast<long>(figures.failed),
      figures.commits_per_second,
      figures.tokens_per_second,
      figures.cpu_us_per_commit,
      figures.threads,
      figures.idle_mib,
      figures.peak_mib,
      figures.after_mib,
      figures.kib_per_stream);
}

void Print(const RoundFigures& figures) {
  std::printf(
      "rounds: beyond the step, %ld rounds each\n"
      "  coordinator: p50 %.0f us, p99 %.0f us\n"
      "  bare relay:  p50 %.0f us, p99 %.0f us\n"
      "  above the relay: p50 %.0f us (goal: 300)\n",
      static_cast<long>(figures.rounds),
      figures.coordinator_p50_us,
      figures.coordinator_p99_us,
      figures.relay_p50_us,
      figures.relay_p99_us,
      figures.above_relay_p50_us);
}

absl::Status Run(const Flags& flags) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = program.parent_path().string();
  nlohmann::ordered_json json;
  if (!flags.no_load) {
    SPECWIRE_ASSIGN_OR_RETURN(const LoadFigures figures,
                              MeasureLoad(flags, folder));
    json["load"] = ToJson(figures);
    if (!flags.json) Print(figures);
  }
  if (!flags.no_rounds) {
    SPECWIRE_ASSIGN_OR_RETURN(const RoundFigures figures,
                              MeasureRounds(flags, folder, program.string()));
    json["rounds"] = ToJson(figures);
    if (!flags.json) Print(figures);
  }
  if (flags.json) std::printf("%s\n", json.dump(2).c_str());
  return absl::OkStatus();
}

absl::Status RunRelay(const std::vector<std::string>& verifiers,
                      const std::vector<std::string>& drafters) {
  // Standard output is for the address.
  InitLogging("relay", LogLevel::kError);
  Relay relay(verifiers, drafters);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                            RpcServer::Start({}, {&relay}));
  std::cout << "listening on " << server->address() << std::endl;
  WaitForShutdownSignal();
  return absl::OkStatus();
}

void AddFlags(CLI::App* app, Flags* flags) {
  const auto add = [app](const char* name, auto* value, const char* help) {
    app->add_option(name, *value, help)->capture_default_str();
  };
  add("--streams", &flags->num_streams, "load: calls at once");
  add("--channels", &flags->num_channels, "load: the client's connections");
  add("--verifiers", &flags->num_verifiers, "load: verifier nodes");
  add("--draft_nodes", &flags->num_drafters, "load: draft nodes");
  add("--prompt_length", &flags->prompt_length, "tokens of a prompt");
  add("--commits_per_second",
      &flags->commits_per_second,
      "load: of all streams together");
  add("--seconds", &flags->seconds, "load: time measured");
  add("--round_streams", &flags->num_round_streams, "rounds: calls at once");
  add("--blocks", &flags->num_blocks, "rounds: turns of each kind");
  add("--block_tokens",
      &flags->tokens_per_block,
      "rounds: tokens of a call in a turn");
  add("--step_us", &flags->step_us, "rounds: microseconds of a pass");
  add("--run_length", &flags->run_length, "draft tokens in a proposal");
  add("--acceptance", &flags->acceptance, "law of acceptance, P,P,...");
  app->add_flag("--no_load", flags->no_load, "only rounds");
  app->add_flag("--no_rounds", flags->no_rounds, "only load");
  app->add_flag("--json", flags->json, "one JSON object");
}

int Main(int argc, char** argv) {
  BlockShutdownSignals();
  CLI::App app("The coordinator under load from synthetic nodes.");
  Flags flags;
  AddFlags(&app, &flags);
  CLI::App* const relay = app.add_subcommand(
      "relay", "what stands in the coordinator's place; used by rounds");
  std::vector<std::string> verifiers;
  std::vector<std::string> drafters;
  relay->add_option("--verifier", verifiers)->required();
  relay->add_option("--drafter", drafters)->required();
  CLI11_PARSE(app, argc, argv);
  const bool relays = relay->parsed();
  if (!relays) UnblockShutdownSignals();
  const absl::Status status =
      relays ? RunRelay(verifiers, drafters) : Run(flags);
  if (status.ok()) return 0;
  std::cerr << "coordinator_bench: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace specwire::bench

int main(int argc, char** argv) { return specwire::bench::Main(argc, argv); }
