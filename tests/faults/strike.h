// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/relay.h"
#include "tests/faults/cell.h"
#include "tests/faults/fault_cluster.h"

namespace specwire::faults {

// Conditions of links by name, forward and backward.
using LinkState =
    std::map<std::string, std::pair<LinkConditions, LinkConditions>>;

// One fault while it lasts.
//
// Thread safety: one thread. Lifetime: `cluster` must outlive it.
class Strike {
 public:
  // `victim` is a program or a link of the cluster; links are in `state`, or as
  // they should be.
  Strike(Fault fault,
         std::string victim,
         LinkState state,
         FaultCluster* cluster);

  // Strikes a process that is not the cluster's.
  void AimAt(pid_t pid) { pid_ = pid; }

  absl::Status Begin();
  // How long it lasts.
  absl::Duration hold() const;
  // Ends what ends by itself: a stop, a limit, conditions of a link.
  void End();

 private:
  // Not positive if there is none any more.
  pid_t Pid() const;
  void Signal(int signal) const;
  absl::Status BeginOnProcess();
  absl::Status BeginOnLink();

  const Fault fault_;
  const std::string victim_;
  const LinkState state_;
  FaultCluster* const cluster_;
  pid_t pid_ = -1;
};

}  // namespace specwire::faults
