// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace specwire {

// Keeps the number of threads down on which gRPC's callback API polls in this
// process. It starts two or more; all wait on the same sockets, and each event
// that one of them takes makes it wake another. With small messages on many
// streams that is a good part of all processor time; handlers that never block
// are served as well by one thread.
//
// A thread is taken out by a callback that does not return. How many there are
// is found out by taking all and giving back those that are wanted, so those
// are left however many gRPC has started.
//
// Thread safety: any thread.
// Lifetime: the threads return when it is destroyed. At most one for a process.
class Pollers {
 public:
  // Leaves `num_threads`, or as many as there are. Takes a quarter of a second,
  // in which nothing else is served. REQUIRES: num_threads >= 1.
  explicit Pollers(int num_threads);
  ~Pollers();
  Pollers(const Pollers&) = delete;
  Pollers& operator=(const Pollers&) = delete;

  // Threads that were taken out.
  int num_parked() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
