// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/bench/sweep_options.h"
#include "cli/supervisor.h"
#include "cli/up_plan.h"
#include "common/rpc/relay.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire::cli::bench {

// A cluster on this machine whose links can be stretched while it runs: a relay
// lies between the coordinator and each node of the stretched kind.
//
// Thread safety: one thread, as Supervisor.
// REQUIRES: as Supervisor.
class SweepCluster {
 public:
  // Starts one verifier and the drafter that `up` names and waits until they
  // serve. CANCELLED if a signal asks to stop meanwhile; else what is wrong.
  static absl::StatusOr<std::unique_ptr<SweepCluster>> Start(
      const UpOptions& up, StretchedLink link, absl::Duration ready_timeout);
  ~SweepCluster();
  SweepCluster(const SweepCluster&) = delete;
  SweepCluster& operator=(const SweepCluster&) = delete;

  std::string coordinator() const { return supervisor_->coordinator(); }

  // Stretches the links so that the round trip through all of them takes so
  // much longer, half of it in each direction, with a jitter of each direction
  // of up to `jitter` times its delay. For what is sent from now on.
  absl::Status SetRoundTrip(absl::Duration round_trip, double jitter);

  // What the verifier's passes cost.
  absl::StatusOr<std::vector<v1::StepCost>> StepCosts() const;
  // What a draft token costs, as the draft node has measured it so far; 0 if it
  // has not, or there is none.
  absl::StatusOr<absl::Duration> DraftTokenTime() const;

 private:
  SweepCluster() = default;

  // By the node's name.
  std::map<std::string, std::unique_ptr<Relay>> relays_;
  // Where nodes listen, not their relays.
  std::map<std::string, std::string> addresses_;
  StretchedLink link_ = StretchedLink::kDraft;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace specwire::cli::bench
