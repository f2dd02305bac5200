// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/relay.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "tests/testing/certificates.h"
#include "tests/testing/child_process.h"

namespace specwire::faults {

// What passes takes, so that a test can hit it.
struct ClusterTimes {
  absl::Duration step = absl::Milliseconds(10);
  absl::Duration row = absl::Microseconds(100);
};

// A cluster of real processes with synthetic nodes and a relay on every link:
//   client -> "client-N" -> coordinator-N
//   node -> "join-NODE-N" -> coordinator-N
//   coordinators -> "NODE" -> NODE, for verifier-N and draft-N
// Programs that are started again listen elsewhere; the relays follow them.
//
// Thread safety: one thread. Lifetime: the destructor kills all processes.
class FaultCluster {
 public:
  static constexpr int kCoordinators = 2;
  static constexpr int kVerifiers = 3;
  static constexpr int kDrafters = 2;

  // `bin` is the folder of the programs. With `tls` all of them speak nothing
  // else, nodes and coordinators with certificates of their own.
  FaultCluster(std::string bin,
               uint64_t seed,
               ClusterTimes times = {},
               bool tls = false);

  // All processes, and waits until all serve.
  absl::Status Start();
  // One of them, by name: for the first time, or again after its end.
  absl::Status StartProgram(const std::string& name);
  // Not positive if it has been waited for.
  pid_t pid(const std::string& name) const;
  // Nothing if it has been waited for.
  void Signal(const std::string& name, int signal);
  bool HasEnded(const std::string& name) const;
  // Of a program that has ended, or will within `timeout`; -1000 if it does
  // not.
  int WaitEnded(const std::string& name, absl::Duration timeout);
  std::vector<std::string> names() const;

  absl::Status SetLink(const std::string& link,
                       const LinkConditions& forward,
                       const LinkConditions& backward);
  void HealLinks();

  // Where clients connect, by commas, and the files that they do so with.
  std::string client_addresses() const;
  const TlsFiles& client_tls() const { return client_tls_; }
  v1::GenerationService::Stub* generation(int coordinator) const;

  // Nodes that have a sequence, as far as they have told.
  std::vector<std::string> BusyNodes() const;
  // OK if at every coordinator all nodes serve, none has a sequence or holds a
  // block, no request runs, and what was drafted adds up.
  absl::Status CheckIdle() const;
  // The figures of the latest CheckIdle().
  int64_t sequences() const { return sequences_; }
  int64_t blocks() const { return blocks_; }

 private:
  struct Program {
    std::vector<std::string> command;
    std::unique_ptr<ChildProcess> process;
    // Relays that lead to it.
    std::vector<std::string> relays;
    bool ended = false;
    int exit_code = 0;
  };
  struct Coordinator {
    std::string http;
    std::unique_ptr<v1::GenerationService::Stub> generation;
    std::unique_ptr<v1::ClusterService::Stub> cluster;
  };

  // The flags of a program with this name in its certificate.
  std::vector<std::string> TlsFlags(const std::string& name) const;
  // How this process reaches coordinators.
  RpcChannelOptions ChannelOptions() const;
  std::string AddRelay(const std::string& name);
  void AddNode(const std::string& name, std::vector<std::string> command);
  absl::StatusOr<v1::ListNodesResponse> ListNodes(int coordinator) const;
  absl::Status CheckNodes(int number) const;
  absl::Status CheckCoordinator(int number) const;

  const std::string bin_;
  const uint64_t seed_;
  // Null without TLS.
  const std::unique_ptr<TestAuthority> authority_;
  const TlsFiles client_tls_;
  std::map<std::string, std::unique_ptr<Relay>> relays_;
  std::map<std::string, Program> programs_;
  std::vector<Coordinator> coordinators_;
  mutable int64_t sequences_ = 0;
  mutable int64_t blocks_ = 0;
};

}  // namespace specwire::faults
