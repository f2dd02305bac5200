// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "cli/interrupt.h"
#include "cli/up_plan.h"
#include "grpcpp/channel.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire::cli {

// Blocks the signals that a Supervisor waits for. REQUIRES: there is no other
// thread yet.
void BlockSupervisorSignals();

// Runs a plan: starts the children, tells when all serve, watches them, ends
// them.
//
// Thread safety: one thread, the process's first, since children die with it.
// REQUIRES: SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked in every thread.
class Supervisor {
 public:
  // Told where a node listens, as soon as it does and before the next is
  // started. An error ends the start.
  using OnListening = std::function<absl::Status(const std::string& node,
                                                 const std::string& address)>;

  Supervisor(UpPlan plan,
             absl::Duration ready_timeout,
             OnListening on_listening = nullptr);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Returns the exit code, when a signal has asked to stop, the cluster could
  // not be brought up, or all children have ended. No child is left then.
  int Run();

  // Run in parts, for a process that has something to do with the cluster. Stop
  // must be called whatever Start has returned.
  //
  // Starts everything and waits until it serves. OK too if a signal asks to
  // stop meanwhile.
  absl::Status Start();
  bool stopping() const { return stopping_; }
  // Where the coordinator is. REQUIRES: Start returned OK, and not stopping().
  std::string coordinator() const { return DialAddress(addresses_.rpc); }
  // Ends the coordinator first, so that its running requests can use the grace
  // that it gives them, then the nodes. A further signal, or the grace's end,
  // kills what is left.
  void Stop();

 private:
  // Starts the coordinator and waits until it has told its addresses.
  absl::Status StartCoordinator(absl::Time deadline);
  absl::Status StartNode(ChildSpec spec, absl::Time deadline);
  absl::Status StartChild(const ChildSpec& spec);
  // Starts a child and reads its standard output until `done` has what it wants
  // of it, or a signal asks to stop.
  absl::Status StartAndRead(
      ChildSpec spec,
      absl::Time deadline,
      const std::function<bool(const std::string& output)>& done);

  // Asks the coordinator for its nodes.
  absl::Status ListNodes(v1::ListNodesResponse* nodes);
  // What is still missing, in words; empty if every node serves. An error if a
  // node fits no model: it never will.
  absl::StatusOr<std::string> FindMissing();
  // Waits a moment. An error if a child has ended, or the time is up.
  absl::Status WaitBeforeReady(absl::Time deadline, const std::string& missing);
  void AnnounceReady();

  // Until a signal asks to stop; an error exit code if all children have ended.
  int Watch();

  void StopAndWait(size_t begin, size_t end);
  bool AnyRunning(size_t begin, size_t end);

  // Returns at the next signal (a child's end among them) or after `timeout`;
  // sets `stopping_` if it asks to stop.
  void WaitForSignal(absl::Duration timeout);

  const UpPlan plan_;
  const absl::Duration ready_timeout_;
  const OnListening on_listening_;
  SignalSource signals_;
  // The coordinator, then the nodes as in the plan.
  std::vector<ChildProcess> children_;
  // Of children whose output was read. They stay open: a later line must not
  // end the child.
  std::vector<int> output_fds_;
  CoordinatorAddresses addresses_;
  std::shared_ptr<grpc::Channel> channel_;
  // Since when a node has been incompatible.
  std::optional<absl::Time> misfit_since_;
  bool stopping_ = false;
};

}  // namespace specwire::cli
