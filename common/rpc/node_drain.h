// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace specwire {

// When and how a node ends: it drains at SIGINT, SIGTERM or a coordinator's
// word, for a grace at most; a second signal ends the grace.
//
// Thread safety: any thread; Wait and WaitIdle on the one that takes signals
// (see common/base/signals.h), one after the other.
class NodeDrain {
 public:
  // The grace where who asks names none.
  explicit NodeDrain(absl::Duration grace) : grace_(grace) {}
  NodeDrain(const NodeDrain&) = delete;
  NodeDrain& operator=(const NodeDrain&) = delete;

  // Somebody asks the node to drain. Said again, it may only shorten the grace.
  void Ask(std::optional<absl::Duration> grace);

  // Waits until the node is to drain; returns why.
  std::string Wait();
  // The time that is left of the grace. REQUIRES: Wait() has returned.
  absl::Duration left() const;
  // Waits until `idle`, the end of the grace or a further signal. False if it
  // has not become idle.
  bool WaitIdle(const std::function<bool()>& idle);

 private:
  const absl::Duration grace_;
  const SteadyClock clock_;
  mutable Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace specwire
