// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The sockets of a Relay. None of them blocks, or outlives an exec.

namespace specwire {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

// INVALID_ARGUMENT, naming `field`, unless `text` is HOST:PORT with a numeric
// host.
absl::StatusOr<SocketAddress> ParseSocketAddress(const std::string& text,
                                                 absl::string_view field);

struct ListeningSocket {
  int fd = -1;
  // As asked for, with the port that it has got.
  std::string address;
};
// Listens at `listen_at`, see RelayOptions. INVALID_ARGUMENT as
// ParseSocketAddress; UNAVAILABLE if that is not possible.
absl::StatusOr<ListeningSocket> ListenAt(const std::string& listen_at);

// A connection from `listener` with its bytes sent at once; -1, with errno, if
// there is none.
int AcceptFrom(int listener);

struct ConnectingSocket {
  // -1: it failed.
  int fd = -1;
  // It will be writable once it is connected.
  bool connecting = false;
};
ConnectingSocket ConnectTo(const SocketAddress& address);

// `reset`: the other end sees a broken connection, not an end.
void CloseSocket(int fd, bool reset);

}  // namespace specwire
