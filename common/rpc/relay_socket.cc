// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

int NewSocket(const SocketAddress& address) {
  return socket(
      address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int PortOf(SocketAddress* address) {
  return ntohs(address->storage.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(address->get())->sin6_port
                   : reinterpret_cast<sockaddr_in*>(address->get())->sin_port);
}

}  // namespace

absl::StatusOr<SocketAddress> ParseSocketAddress(const std::string& text,
                                                 absl::string_view field) {
  SPECWIRE_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(text, field));
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed.host.c_str(),
                  absl::StrCat(parsed.port).c_str(),
                  &hints,
                  &found) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text, " is no numeric address"));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

absl::StatusOr<ListeningSocket> ListenAt(const std::string& listen_at) {
  constexpr char kField[] = "listen";
  SPECWIRE_ASSIGN_OR_RETURN(SocketAddress address,
                            ParseSocketAddress(listen_at, kField));
  SPECWIRE_ASSIGN_OR_RETURN(HostPort told, ParseHostPort(listen_at, kField));
  ListeningSocket socket;
  socket.fd = NewSocket(address);
  const int on = 1;
  setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.fd, address.get(), address.length) != 0 ||
      listen(socket.fd, SOMAXCONN) != 0 ||
      getsockname(socket.fd, address.get(), &address.length) != 0) {
    const absl::Status status = absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen_at, ": ", std::strerror(errno)));
    if (socket.fd >= 0) close(socket.fd);
    return status;
  }
  told.port = PortOf(&address);
  socket.address = told.ToString();
  return socket;
}

int AcceptFrom(int listener) {
  const int fd =
      accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) SendAtOnce(fd);
  return fd;
}

ConnectingSocket ConnectTo(const SocketAddress& address) {
  ConnectingSocket made;
  made.fd = NewSocket(address);
  if (made.fd < 0) return made;
  SendAtOnce(made.fd);
  if (connect(made.fd, address.get(), address.length) == 0) return made;
  made.connecting = errno == EINPROGRESS;
  if (!made.connecting) {
    close(made.fd);
    made.fd = -1;
  }
  return made;
}

void CloseSocket(int fd, bool reset) {
  const linger at_once = {1, 0};
  if (reset) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  close(fd);
}

}  // namespace specwire
