// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/progress_watch.h"
#include "common/base/timer.h"
#include "common/rpc/server.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire {

struct NodeHealthOptions {
  // A node that has work and has got nowhere for longer is not healthy.
  absl::Duration max_stall = absl::Milliseconds(1500);
  absl::Duration period = absl::Milliseconds(250);
};

// A node's own health, which is its engine's progress: watches the node's load
// and tells gRPC's health service when the engine hangs, and when it goes on.
//
// Thread safety: any thread.
// Lifetime: `server` and what `load` uses outlive it.
class NodeHealth {
 public:
  // `service` is the full name of what the node serves.
  NodeHealth(RpcServer* server,
             std::string service,
             std::function<v1::NodeLoad()> load,
             NodeHealthOptions options = {});
  ~NodeHealth();
  NodeHealth(const NodeHealth&) = delete;
  NodeHealth& operator=(const NodeHealth&) = delete;

  // False while the engine hangs.
  bool healthy() const { return healthy_; }
  bool draining() const { return draining_; }
  // The node drains: not serving from now on, whatever its engine does.
  void SetDraining();

 private:
  void Look();
  void SetServing(bool serving);

  RpcServer* const server_;
  const std::string service_;
  const std::function<v1::NodeLoad()> load_;
  const NodeHealthOptions options_;
  const SteadyClock clock_;
  std::atomic<bool> healthy_ = true;
  std::atomic<bool> draining_ = false;
  // Held while the server is told, so that what is told last is true.
  Mutex mutex_;
  // Belongs to the timer's thread.
  ProgressWatch watch_;
  std::unique_ptr<TimerThread> timer_;
};

}  // namespace specwire
