// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/timer.h"
#include "common/rpc/channel.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire {

struct JoinClientOptions {
  // HOST:PORT of each coordinator, at least one.
  std::vector<std::string> coordinators;
  // How they are reached.
  RpcChannelOptions channel;
  // Sent first on every stream.
  v1::NodeRegistration registration;
  // Pause before trying again: starts at `min_backoff`, doubles up to
  // `max_backoff`, each time with up to half of it taken off at random.
  absl::Duration min_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(1);
  // How long a coordinator may take to accept.
  absl::Duration accept_timeout = absl::Seconds(5);
};

// A node's membership: keeps one Join stream open to every coordinator and
// reports its load there, for ever. Coordinators may come, go and restart in
// any order; changes are logged once, retries are not.
//
// Thread safety: any thread.
// Lifetime: Stop() (or the destructor) leaves all coordinators; when it has
// returned no callback runs. It must not be called from a callback.
class JoinClient {
 public:
  // Called at the interval that each coordinator names. Must be quick.
  using LoadCallback = std::function<v1::NodeLoad()>;
  // A coordinator asks for no new work; may be called more than once.
  using DrainCallback = std::function<void(absl::Duration grace)>;

  // Starts at once. `drain` may be empty.
  JoinClient(JoinClientOptions options, LoadCallback load, DrainCallback drain);
  ~JoinClient();
  JoinClient(const JoinClient&) = delete;
  JoinClient& operator=(const JoinClient&) = delete;

  // Coordinators that have accepted the node and hold its stream now.
  int num_joined() const;

  void Stop();

 private:
  class Link;

  const JoinClientOptions options_;
  const LoadCallback load_;
  const DrainCallback drain_;
  // Declared before the links, whose callbacks it runs.
  std::unique_ptr<TimerThread> timer_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace specwire
