// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"

namespace specwire {

struct ListenerOptions {
  // Port 0 takes a free one. A name stands for all of its addresses.
  HostPort address;
  // Connections beyond this are closed at once; less where the process may not
  // have so many descriptors. What the process opens otherwise after the start
  // counts too, so connections that it makes itself take of the same number.
  int max_connections = 0;
  // Data that the peer does not acknowledge for so long ends a connection.
  absl::Duration user_timeout;
};

// Accepts TCP connections and hands them on.
//
// gRPC 1.51 has a loop of its own for that, but it has no bound, and the first
// time that no descriptor is left it closes the port for good (CVE-2023-4785).
// The count here is by the descriptors' numbers: the kernel gives out the
// lowest free one, so a new connection with number n says that n others are
// open, whoever closes them and when.
//
// Thread safety: any thread.
// Lifetime: the destructor stops.
class Listener {
 public:
  // Called on the listener's thread, with a socket that does not block and
  // belongs to the callee, and the one that listens.
  using OnConnection = std::function<void(int listening_fd, int fd)>;

  // Listens; connections wait until Start. UNAVAILABLE "cannot listen on
  // ADDRESS: ...".
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const ListenerOptions& options);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // What became of ListenerOptions::max_connections.
  int max_connections() const { return max_connections_; }

  // REQUIRES: called once.
  void Start(OnConnection on_connection);
  // Nothing is accepted any more and no callback runs. A second call does
  // nothing. REQUIRES: not called from the callback.
  void Stop();

 private:
  Listener() = default;
  absl::Status BindAll(const ListenerOptions& options);
  void Run();
  // Takes connections that wait at the socket. False if the process cannot take
  // one for now.
  bool AcceptSome(int listening_fd);
  void LogRefused(const std::string& why);

  int port_ = 0;
  int max_connections_ = 0;
  // The first number that a connection may not have.
  int end_fd_ = 0;
  std::vector<int> listening_fds_;
  // Readable once Stop is called.
  int wake_fd_ = -1;
  OnConnection on_connection_;
  std::thread thread_;
  // Of the thread: since the latest line in the log.
  int num_refused_ = 0;
  absl::Time last_log_ = absl::InfinitePast();
};

}  // namespace specwire
