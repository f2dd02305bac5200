// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire::bench {

// What the kernel says of a process.
struct ProcessFigures {
  // User and system time so far.
  absl::Duration cpu;
  double resident_mib = 0;
  int num_threads = 0;
};
absl::StatusOr<ProcessFigures> ReadProcess(pid_t pid);

// A program that tells on standard output where it serves.
class Server {
 public:
  // Waits for the line "listening on ADDRESS".
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const std::string& name,
      const std::string& program,
      const std::vector<std::string>& arguments);
  // Ends it and waits.
  ~Server();

  pid_t pid() const { return child_.pid(); }
  const std::string& address() const { return address_; }

 private:
  Server(cli::ChildProcess child, std::string address)
      : child_(std::move(child)), address_(std::move(address)) {}

  cli::ChildProcess child_;
  const std::string address_;
};

// A coordinator and its nodes.
struct Cluster {
  std::unique_ptr<Server> coordinator;
  std::vector<std::unique_ptr<Server>> verifiers;
  std::vector<std::unique_ptr<Server>> drafters;

  ~Cluster();
};

struct ClusterOptions {
  // Where the programs lie.
  std::string folder;
  int num_verifiers = 1;
  int num_drafters = 1;
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> verifier_flags;
  std::vector<std::string> drafter_flags;
};

// Starts them and waits until all nodes serve.
absl::StatusOr<std::unique_ptr<Cluster>> StartCluster(
    const ClusterOptions& options);

}  // namespace specwire::bench
