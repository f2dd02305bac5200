// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/logging.h"
#include "common/metrics/metrics.h"
#include "common/metrics/names.h"
#include "common/rpc/server_security.h"
#include "grpcpp/impl/service_type.h"
#include "specwire/v1/cluster.pb.h"

// CLI11 stays in the programs' main.cc and in node_main.cc.
namespace CLI {
class App;
}

// What the two node programs have in common: their flags, and the life of a
// node from its start to a signal. ParseFlags, AddSecurityFlags and
// ExitWithError serve the coordinator too.

namespace specwire {

// What the flags that every node has mean, checked.
struct NodeOptions {
  // HOST:PORT of each coordinator, or dns:///HOST:PORT.
  std::vector<std::string> coordinators;
  std::string listen;
  // HOST:PORT that coordinators are told; port 0 stands for the one that is
  // listened on. Empty: `listen`.
  std::string advertise;
  // HOST:PORT of the metrics' HTTP server; empty: none.
  std::string metrics;
  // Metrics that vLLM has too are told under its names as well.
  bool metrics_vllm_aliases = false;
  std::string name;
  ServerSecurity security;
  LogLevel log_level = LogLevel::kInfo;
  bool reflection = true;
  // Threads for the model, at least 1.
  int num_threads = 1;
};

// Parses the command line, then a configuration file (--config), then
// environment variables ("SPECWIRE_" and the flag's name in capitals). Returns
// an exit code if the program should end: 0 after --help, 2 for bad usage,
// which is told on standard error.
std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv);

// Adds --metrics_vllm_aliases.
void AddAliasesFlag(CLI::App* app, bool* aliases);

// Adds --tls_cert, --tls_key, --tls_ca, --allow_insecure, --max_connections.
void AddSecurityFlags(CLI::App* app, ServerSecurity* security);

// Whether the node can listen where it is to: asked before a model is loaded,
// so that a mistake shows at once.
absl::Status CheckAddressesFree(const NodeOptions& options);

// One line on standard error; returns the exit code: 2 for INVALID_ARGUMENT
// while flags are checked (`usage`), else 1.
int ExitWithError(absl::string_view program,
                  const absl::Status& status,
                  bool usage);

// A node program, for NodeMain.
struct NodeProgram {
  // "draft_node".
  std::string name;
  // For --help.
  std::string description;
  // Begins the name of a node that was given none.
  std::string role;
  // Adds the flags that only this program has.
  std::function<void(CLI::App* app)> add_flags;
  // INVALID_ARGUMENT names the flag.
  std::function<absl::Status()> check_flags;
  // Makes the node's parts and hands them to RunNode.
  std::function<absl::Status(const NodeOptions& options)> serve;
};

// All of main(): flags, logging, the node, the exit code.
int NodeMain(const NodeProgram& program, int argc, char** argv);

// The parts of a node.
struct NodeParts {
  v1::NodeRole role = v1::NODE_ROLE_UNSPECIFIED;
  // Full name, for health: "specwire.v1.DraftService".
  std::string service_name;
  std::vector<grpc::Service*> services;
  const MetricsRegistry* metrics = nullptr;
  // Called often, from any thread.
  std::function<v1::NodeLoad()> load;
  // How long running sequences have to end when the node drains, unless who
  // asks for it says otherwise. Nothing: they are ended at once, whatever is
  // said, because it costs them nothing to go on elsewhere.
  std::optional<absl::Duration> grace;
  // From then on new streams are refused; those that are open go on.
  std::function<void()> drain;
  // Ends all streams; new ones are refused from then on.
  std::function<void()> stop;
};

// Fills in what comes from the node's thread, and from `cache`, which holds its
// KV blocks if it has any: an Engine or a Drafter.
// Lifetime: both must outlive `parts`.
template <typename Thread, typename Cache>
void SetThread(Thread* thread, const Cache* cache, NodeParts* parts) {
  parts->load = [thread, cache] {
    v1::NodeLoad load;
    load.set_num_sequences(thread->num_sequences());
    load.set_num_waiting(thread->num_waiting());
    load.set_kv_blocks_used(cache->kv_blocks_used());
    load.set_kv_blocks_total(cache->kv_blocks_total());
    load.set_kv_blocks_cached(cache->kv_blocks_cached());
    load.set_progress(thread->progress());
    load.set_working(thread->worker()->working());
    return load;
  };
  parts->drain = [thread] { thread->worker()->Drain(); };
  parts->stop = [thread] { thread->Stop(); };
}

// The gauges of a KV cache, where there is one.
// Lifetime: `cache` must outlive `registry`.
template <typename Cache>
void AddKvCacheGauges(const Cache* cache, MetricsRegistry* registry) {
  if (cache->kv_blocks_total() == 0) return;
  registry->AddCallbackGauge(
      metric::kKvCacheUsage, "Used part of the KV cache.", {}, [cache] {
        return static_cast<double>(cache->kv_blocks_used()) /
               static_cast<double>(cache->kv_blocks_total());
      });
  registry->AddCallbackGauge(
      metric::kKvCacheKept,
      "Part of the KV cache that is kept for prefixes only.",
      {},
      [cache] {
        return static_cast<double>(cache->kv_blocks_cached()) /
               static_cast<double>(cache->kv_blocks_total());
      });
  registry->AddCallbackGauge(
      metric::kKvCacheBlocks, "Blocks of the KV cache.", {}, [cache] {
        return static_cast<double>(cache->kv_blocks_total());
      });
}

// Whether --max_num_sequences is in range; INVALID_ARGUMENT if not.
absl::Status CheckMaxNumSequences(int max_num_sequences);

// Serves and joins the coordinators until a signal or a coordinator asks it to
// drain; returns OK when everything has ended. A part that hangs then ends the
// process with exit code 1. UNAVAILABLE if an address is taken. The first line
// on standard output tells the address: "listening on HOST:PORT". REQUIRES:
// called by NodeProgram::serve.
absl::Status RunNode(const NodeOptions& options, const NodeParts& parts);

}  // namespace specwire
