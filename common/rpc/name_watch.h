// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/resolve.h"

namespace specwire {

struct NameWatchOptions {
  // Looked up again and again; at least one.
  std::vector<HostPort> names;
  // Between two look-ups, and at least, however often Hurry() is called.
  absl::Duration period = absl::Seconds(5);
  absl::Duration least_pause = absl::Milliseconds(500);
  // An address that a name no longer has still counts for so long: an answer
  // may be cut short. A name that cannot be looked up keeps what it had.
  absl::Duration keep = absl::Seconds(15);
  // Replaced by tests. May block; no lock is held.
  std::function<absl::StatusOr<std::vector<std::string>>(const HostPort&)>
      resolve = ResolveAddresses;
};

// Tells which addresses some names have, whenever that changes. Looks them up
// on a thread of its own, which is left behind if it hangs in a look-up.
//
// Thread safety: any thread.
// Lifetime: when Stop() (or the destructor) has returned no callback runs. It
// must not be called inside the callback, nor twice at a time.
class NameWatch {
 public:
  // Gets all addresses of all names. Called on the thread.
  using OnChange = std::function<void(const std::set<std::string>& addresses)>;

  // Does nothing before Start(), which is called at most once.
  NameWatch(NameWatchOptions options, OnChange on_change);
  void Start();
  void Stop();
  ~NameWatch();
  NameWatch(const NameWatch&) = delete;
  NameWatch& operator=(const NameWatch&) = delete;

  // Has it look up again soon: one of the addresses does not answer.
  void Hurry();

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  // Shared with the thread, which may be left behind.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace specwire
