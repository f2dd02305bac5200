// SPDX-License-Identifier: Apache-2.0

// scale_bench: what more nodes bring, with synthetic ones in processes of their
// own. Two parts:
//
//   scale    one verifier, then more, each with as many requests at once as it
//            can take and more: tokens a second of all together;
//   balance  many verifiers and draft nodes under a steady load: the sequences
//            of each.
//
// See docs/performance.md.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/load_client.h"
#include "bench/processes.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "nlohmann/json.hpp"

namespace specwire::bench {
namespace {

constexpr absl::Duration kWaitForAll = absl::Minutes(3);
constexpr absl::Duration kLook = absl::Seconds(1);

struct Flags {
  // Scale.
  std::vector<int> num_verifiers = {1, 2};
  int64_t step_us = 20'000;
  int64_t row_us = 1'000;
  int max_num_sequences = 8;
  int streams_of_a_verifier = 24;
  int max_tokens = 64;
  double seconds = 10;
  int repeats = 3;
  bool no_scale = false;
  // Balance.
  int num_nodes = 64;
  int streams_of_a_node = 20;
  int64_t balance_step_us = 2'000'000;
  double balance_seconds = 60;
  bool no_balance = false;
  bool json = false;
};

struct ScaleFigures {
  int num_verifiers = 0;
  // Of the repeats, the median and the extremes.
  double tokens_per_second = 0;
  double least = 0;
  double most = 0;
  // To the first number of verifiers, within a repeat; the median.
  double ratio = 0;
};

// A node's mean over the looks, by the mean of all nodes.
struct BalanceFigures {
  double mean = 0;
  double fewest_of_mean = 0;
  double most_of_mean = 0;
};

// Keeps so many requests at once at work, each of another length.
class SteadyLoad {
 public:
  SteadyLoad(const std::string& address,
             int num_streams,
             int max_tokens,
             bool speculation)
      : client_(address, 4),
        num_streams_(num_streams),
        max_tokens_(max_tokens),
        speculation_(speculation) {}

  // Replaces what ends, for so long, or until one has failed: calls to nobody
  // would follow each other without end.
  void Run(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end && client_.num_failed() == 0) {
      while (client_.num_opened() - client_.num_done() < num_streams_) {
        client_.Open(NextRequest());
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  LoadClient& client() { return client_; }
  absl::Status Check() const {
    return client_.num_failed() == 0 ? absl::OkStatus()
                                     : absl::InternalError(client_.failure());
  }

 private:
  v1::GenerateRequest NextRequest() {
    const int64_t number = ++num_requests_;
    v1::GenerateRequest request;
    // Bytes of the synthetic vocabulary; prompts begin alike by eights.
    for (int i = 0; i < 24; ++i) {
      request.mutable_token_ids()->add_ids(
          1 + static_cast<int>((number / 8 * 31 + i * 7) % 256));
    }
    request.mutable_sampling()->set_temperature(0);
    request.mutable_sampling()->set_seed(number);
    request.mutable_speculation()->set_enabled(speculation_);
    // From half of the mean to one and a half.
    const int64_t spread = number * 37 % (max_tokens_ + 1);
    request.mutable_stop()->set_max_tokens(
        std::max(1, max_tokens_ / 2 + static_cast<int>(spread)));
    return request;
  }

  LoadClient client_;
  const int num_streams_;
  const int max_tokens_;
  const bool speculation_;
  int64_t num_requests_ = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<double> MeasureRate(const Flags& flags,
                                   const std::string& folder,
                                   int num_verifiers) {
  ClusterOptions options;
  options.folder = folder;
  options.num_verifiers = num_verifiers;
  options.num_drafters = 0;
  options.verifier_flags = {"--engine",
                            "synthetic",
                            "--synthetic_step_us",
                            absl::StrCat(flags.step_us),
                            "--synthetic_row_us",
                            absl::StrCat(flags.row_us),
                            "--max_num_sequences",
                            absl::StrCat(flags.max_num_sequences)};
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                            StartCluster(options));
  SteadyLoad load(cluster->coordinator->address(),
                  flags.streams_of_a_verifier * num_verifiers,
                  flags.max_tokens,
                  /*speculation=*/false);
  load.Run(absl::Seconds(2));
  const absl::Time begin = absl::Now();
  const int64_t tokens = load.client().num_tokens();
  load.Run(absl::Seconds(flags.seconds));
  const double rate = static_cast<double>(load.client().num_tokens() - tokens) /
                      absl::ToDoubleSeconds(absl::Now() - begin);
  load.client().CancelAll();
  SPECWIRE_RETURN_IF_ERROR(load.Check());
  return rate;
}

absl::StatusOr<std::vector<ScaleFigures>> MeasureScale(
    const Flags& flags, const std::string& folder) {
  std::vector<std::vector<double>> rates(flags.num_verifiers.size());
  std::vector<std::vector<double>> ratios(flags.num_verifiers.size());
  for (int repeat = 0; repeat < flags.repeats; ++repeat) {
    for (size_t i = 0; i < rates.size(); ++i) {
      SPECWIRE_ASSIGN_OR_RETURN(
          const double rate,
          MeasureRate(flags, folder, flags.num_verifiers[i]));
      rates[i].push_back(rate);
      ratios[i].push_back(rate / rates[0].back());
    }
  }
  std::vector<ScaleFigures> figures;
  for (size_t i = 0; i < rates.size(); ++i) {
    const auto [least, most] =
        std::minmax_element(rates[i].begin(), rates[i].end());
    figures.push_back({.num_verifiers = flags.num_verifiers[i],
                       .tokens_per_second = Median(rates[i]),
                       .least = *least,
                       .most = *most,
                       .ratio = Median(ratios[i])});
  }
  return figures;
}

// By role, then by node: its sequences, over all looks.
using Looks = std::map<v1::NodeRole, std::map<std::string, double>>;

absl::Status Look(v1::ClusterService::Stub* stub, Looks* looks) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  v1::ListNodesResponse response;
  if (!stub->ListNodes(&context, {}, &response).ok()) {
    return absl::UnavailableError("the coordinator lists no nodes");
  }
  for (const v1::Node& node : response.nodes()) {
    (*looks)[node.registration().role()][node.node_id()] +=
        node.load().num_sequences();
  }
  return absl::OkStatus();
}

BalanceFigures Balance(const std::map<std::string, double>& sums,
                       int num_looks) {
  double all = 0;
  double fewest = sums.begin()->second;
  double most = fewest;
  for (const auto& [node, sum] : sums) {
    all += sum;
    fewest = std::min(fewest, sum);
    most = std::max(most, sum);
  }
  const double mean = all / static_cast<double>(sums.size());
  return {.mean = mean / num_looks,
          .fewest_of_mean = fewest / mean,
          .most_of_mean = most / mean};
}

absl::StatusOr<std::map<v1::NodeRole, BalanceFigures>> MeasureBalance(
    const Flags& flags, const std::string& folder) {
  const int num_streams = flags.num_nodes * flags.streams_of_a_node;
  ClusterOptions options;
  options.folder = folder;
  options.num_verifiers = flags.num_nodes;
  options.num_drafters = flags.num_nodes;
  options.coordinator_flags = {"--max_requests",
                               absl::StrCat(num_streams + 100)};
  options.verifier_flags = {"--engine",
                            "synthetic",
                            "--synthetic_step_us",
                            absl::StrCat(flags.balance_step_us),
                            "--max_num_sequences",
                            "4096"};
  options.drafter_flags = {"--drafter",
                           "synthetic",
                           "--synthetic_acceptance",
                           "0.8",
                           "--max_num_sequences",
                           "4096"};
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                            StartCluster(options));
  SteadyLoad load(cluster->coordinator->address(),
                  num_streams,
                  flags.max_tokens,
                  /*speculation=*/true);
  load.Run(absl::Milliseconds(1));
  if (!load.client().WaitForFirstDeltas(num_streams, kWaitForAll)) {
    return absl::DeadlineExceededError("not all streams have a token in time");
  }
  // For requests that begin together to end apart.
  load.Run(absl::Seconds(flags.balance_seconds / 2));
  const auto stub =
      v1::ClusterService::NewStub(MakeChannel(cluster->coordinator->address()));
  Looks looks;
  int num_looks = 0;
  const absl::Time end = absl::Now() + absl::Seconds(flags.balance_seconds / 2);
  while (absl::Now() < end) {
    load.Run(kLook);
    SPECWIRE_RETURN_IF_ERROR(load.Check());
    SPECWIRE_RETURN_IF_ERROR(Look(stub.get(), &looks));
    ++num_looks;
  }
  load.client().CancelAll();
  SPECWIRE_RETURN_IF_ERROR(load.Check());
  std::map<v1::NodeRole, BalanceFigures> figures;
  for (const auto& [role, sums] : looks) {
    figures[role] = Balance(sums, num_looks);
  }
  return figures;
}

const char* RoleName(v1::NodeRole role) {
  return role == v1::NODE_ROLE_DRAFT ? "draft" : "verifier";
}

absl::Status Run(const Flags& flags) {
  const std::string folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  nlohmann::ordered_json json;
  if (!flags.no_scale) {
    SPECWIRE_ASSIGN_OR_RETURN(const std::vector<ScaleFigures> all,
                              MeasureScale(flags, folder));
    for (const ScaleFigures& one : all) {
      json["scale"].push_back({{"verifiers", one.num_verifiers},
                               {"tokens_per_second", one.tokens_per_second},
                               {"least", one.least},
                               {"most", one.most},
                               {"ratio", one.ratio}});
      if (flags.json) continue;
      std::printf("scale: %d verifiers: %.0f tokens/s [%.0f, %.0f], x %.2f\n",
                  one.num_verifiers,
                  one.tokens_per_second,
                  one.least,
                  one.most,
                  one.ratio);
    }
  }
  if (!flags.no_balance) {
    SPECWIRE_ASSIGN_OR_RETURN(const auto all, MeasureBalance(flags, folder));
    for (const auto& [role, one] : all) {
      json["balance"][RoleName(role)] = {{"nodes", flags.num_nodes},
                                         {"mean_sequences", one.mean},
                                         {"fewest_of_mean", one.fewest_of_mean},
                                         {"most_of_mean", one.most_of_mean}};
      if (flags.json) continue;
      std::printf(
          "balance: %d %s nodes: %.1f sequences each, from %.3f to %.3f of "
          "the mean\n",
          flags.num_nodes,
          RoleName(role),
          one.mean,
          one.fewest_of_mean,
          one.most_of_mean);
    }
  }
  if (flags.json) std::printf("%s\n", json.dump(2).c_str());
  return absl::OkStatus();
}

void AddFlags(CLI::App* app, Flags* flags) {
  const auto add = [app](const char* name, auto* value, const char* help) {
    return app->add_option(name, *value, help)
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
  };
  add("--verifiers", &flags->num_verifiers, "scale: verifiers, one turn each")
      ->delimiter(',');
  add("--step_us", &flags->step_us, "scale: microseconds of a pass");
  add("--row_us", &flags->row_us, "scale: microseconds that a row adds");
  add("--max_num_sequences",
      &flags->max_num_sequences,
      "scale: sequences that a verifier computes at once");
  add("--streams",
      &flags->streams_of_a_verifier,
      "scale: requests at once for each verifier");
  add("--max_tokens", &flags->max_tokens, "mean length of a completion");
  add("--seconds", &flags->seconds, "scale: time measured");
  add("--repeats", &flags->repeats, "scale: turns of each number");
  add("--nodes", &flags->num_nodes, "balance: verifiers, and draft nodes");
  add("--node_streams",
      &flags->streams_of_a_node,
      "balance: requests at once for each verifier");
  add("--balance_step_us",
      &flags->balance_step_us,
      "balance: microseconds of a pass");
  add("--balance_seconds",
      &flags->balance_seconds,
      "balance: time, half of it before the measurement");
  app->add_flag("--no_scale", flags->no_scale, "only balance");
  app->add_flag("--no_balance", flags->no_balance, "only scale");
  app->add_flag("--json", flags->json, "one JSON object");
}

int Main(int argc, char** argv) {
  CLI::App app("What more nodes bring, with synthetic ones.");
  Flags flags;
  AddFlags(&app, &flags);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}

}  // namespace
}  // namespace specwire::bench

int main(int argc, char** argv) { return specwire::bench::Main(argc, argv); }
