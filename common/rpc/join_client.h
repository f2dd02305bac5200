// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/timer.h"
#include "common/rpc/channel.h"
#include "common/rpc/name_watch.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire {

struct JoinClientOptions {
  // HOST:PORT of each coordinator, or "dns:///HOST:PORT", a name each of whose
  // addresses is one; at least one. See ParseTargetList.
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
  // How names are looked up; its `names` are set here.
  NameWatchOptions names = {};
};

// A node's membership: keeps one Join stream open to every coordinator and
// reports its load there, for ever. Coordinators may come, go and restart in
// any order; changes are logged once, retries are not. An address that a name
// comes to have is joined, one that it has no more is left.
//
// Thread safety: any thread.
// Lifetime: Stop() (or the destructor) leaves all coordinators; when it has
// returned no callback runs. Callbacks must call none of its methods.
class JoinClient {
 public:
  // Called at the interval that each coordinator names. Must be quick.
  using LoadCallback = std::function<v1::NodeLoad()>;
  // A coordinator asks the node to drain; may be called more than once.
  // Nothing: it names no grace.
  using DrainCallback =
      std::function<void(std::optional<absl::Duration> grace)>;

  // Starts at once. `drain` may be empty.
  JoinClient(JoinClientOptions options, LoadCallback load, DrainCallback drain);
  ~JoinClient();
  JoinClient(const JoinClient&) = delete;
  JoinClient& operator=(const JoinClient&) = delete;

  // Coordinators that have accepted the node and hold its stream now.
  int num_joined() const;

  // Tells all coordinators, those that are joined later too, that the node
  // drains: it takes nothing new, and ends what runs when `grace` is over.
  void TellDraining(absl::string_view reason, absl::Duration grace);

  void Stop();

 private:
  class Link;
  struct Draining {
    std::string reason;
    absl::Time deadline;
  };

  // Joins those that are new, leaves those that are not among `addresses` and
  // the fixed ones.
  void SetAddresses(const std::set<std::string>& addresses);
  std::optional<v1::JoinRequest> DrainingMessage() const;

  const JoinClientOptions options_;
  const LoadCallback load_;
  const DrainCallback drain_;
  // Coordinators that were named by address.
  std::set<std::string> fixed_;
  // Declared before the links, whose callbacks it runs.
  std::unique_ptr<TimerThread> timer_;
  mutable Mutex draining_mutex_;
  std::optional<Draining> draining_ ABSL_GUARDED_BY(draining_mutex_);
  // Not taken by what links run.
  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // By address.
  std::map<std::string, std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  // Null if all are named by address.
  std::unique_ptr<NameWatch> names_;
};

}  // namespace specwire
