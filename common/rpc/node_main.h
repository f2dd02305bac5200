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
#include "grpcpp/impl/service_type.h"
#include "specwire/v1/cluster.pb.h"

// CLI11 stays in the programs' main.cc and in node_main.cc.
namespace CLI {
class App;
}

// What the two node programs have in common: their flags, and the life of a
// node from its start to a signal.

namespace specwire {

// Flags as they were given.
struct NodeFlags {
  std::string coordinator;
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string metrics;
  std::string name;
  std::string log_level = "info";
  bool no_reflection = false;
  int num_threads = 0;
};

// What they mean, checked.
struct NodeOptions {
  // HOST:PORT of each coordinator.
  std::vector<std::string> coordinators;
  std::string listen;
  // HOST:PORT that coordinators are told; port 0 stands for the one that is
  // listened on. Empty: `listen`.
  std::string advertise;
  // HOST:PORT of the metrics' HTTP server; empty: none.
  std::string metrics;
  std::string name;
  LogLevel log_level = LogLevel::kInfo;
  bool reflection = true;
  // Threads for the model, at least 1.
  int num_threads = 1;
};

// Adds the flags that every node has.
void AddNodeFlags(CLI::App* app, NodeFlags* flags);

// Parses the command line, then a configuration file (--config), then
// environment variables ("SPECWIRE_" and the flag's name in capitals). Returns
// an exit code if the program should end: 0 after --help, 2 for bad usage,
// which is told on standard error.
std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv);

// INVALID_ARGUMENT names the flag. `role` begins the name of a node that was
// given none.
absl::StatusOr<NodeOptions> CheckNodeFlags(const NodeFlags& flags,
                                           absl::string_view role);

// Whether the node can listen where it is to: asked before a model is loaded,
// so that a mistake shows at once.
absl::Status CheckAddressesFree(const NodeOptions& options);

// One line on standard error; returns the exit code: 2 for INVALID_ARGUMENT
// while flags are checked (`usage`), else 1.
int ExitWithError(absl::string_view program,
                  const absl::Status& status,
                  bool usage);

// The parts of a node.
struct NodeParts {
  v1::NodeRole role = v1::NODE_ROLE_UNSPECIFIED;
  // Full name, for health: "specwire.v1.DraftService".
  std::string service_name;
  grpc::Service* service = nullptr;
  const MetricsRegistry* metrics = nullptr;
  // Called often, from any thread.
  std::function<v1::NodeLoad()> load;
  // How long the node's thread has been at one piece of work.
  std::function<absl::Duration()> working_for;
  // Ends all streams; new ones are refused from then on.
  std::function<void()> stop;
};

// Serves, joins the coordinators and returns OK after SIGINT or SIGTERM, when
// everything has ended. UNAVAILABLE if an address is taken. The first line on
// standard output tells the address: "listening on HOST:PORT".
// REQUIRES: BlockShutdownSignals() was called first in main().
absl::Status RunNode(const NodeOptions& options, const NodeParts& parts);

}  // namespace specwire
