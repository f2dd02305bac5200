// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/base/thread_name.h"

namespace specwire {
namespace {

// Descriptors that connections leave to everything else.
constexpr int kReservedDescriptors = 64;
// Served even where a process may have almost no descriptors.
constexpr int kLeastConnections = 4;
// Between two looks at whether to stop.
constexpr int kMostAtOnce = 256;
// Before another try where the process could not accept.
constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr absl::Duration kLogInterval = absl::Seconds(10);

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const HostPort& address, int error) {
  std::string reason = std::strerror(error);
  if (!reason.empty() && reason[0] >= 'A' && reason[0] <= 'Z') {
    reason[0] = static_cast<char>(reason[0] - 'A' + 'a');
  }
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", reason));
}

void Switch(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// A listening socket, or a negative error number.
int Listen(const addrinfo& info, const ListenerOptions& options, int port) {
  const int fd = socket(info.ai_family,
                        SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        info.ai_protocol);
  if (fd < 0) return -errno;
  Switch(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // These two are inherited by what is accepted.
  Switch(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Switch(fd,
         IPPROTO_TCP,
         TCP_USER_TIMEOUT,
         static_cast<int>(absl::ToInt64Milliseconds(options.user_timeout)));
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  if (info.ai_family == AF_INET6) {
    // The wildcard takes both families, as everybody is used to.
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    Switch(fd,
           IPPROTO_IPV6,
           IPV6_V6ONLY,
           IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ? 0 : 1);
    v6->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port =
        htons(static_cast<uint16_t>(port));
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), info.ai_addrlen) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// How many descriptors the process may have, raised to `wanted` where that is
// allowed.
int DescriptorLimit(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const auto want = static_cast<rlim_t>(wanted);
  if (limit.rlim_cur < want && limit.rlim_cur < limit.rlim_max) {
    const rlimit raised = {std::min(want, limit.rlim_max), limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int>(std::min(limit.rlim_cur, want));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(
    const ListenerOptions& options) {
  std::unique_ptr<Listener> listener(new Listener());
  SPECWIRE_RETURN_IF_ERROR(listener->BindAll(options));
  listener->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->wake_fd_ < 0) return CannotListen(options.address, errno);
  const int first = listener->wake_fd_ + 1;
  const int limit =
      DescriptorLimit(first + options.max_connections + kReservedDescriptors);
  listener->max_connections_ =
      std::clamp(limit - first - kReservedDescriptors,
                 std::min(kLeastConnections, options.max_connections),
                 options.max_connections);
  listener->end_fd_ = first + listener->max_connections_;
  return listener;
}

absl::Status Listener::BindAll(const ListenerOptions& options) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(options.address.host.c_str(), nullptr, &hints, &found);
  if (resolved != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                               options.address.ToString(),
                                               ": ",
                                               gai_strerror(resolved)));
  }
  const AddressInfo addresses(found, &freeaddrinfo);
  port_ = options.address.port;
  int error = 0;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int fd = Listen(*info, options, port_);
    if (fd < 0) {
      error = -fd;
      if (error == EADDRINUSE || error == EACCES) break;
      // A name may have an address of a family that this machine lacks.
      continue;
    }
    listening_fds_.push_back(fd);
    port_ = PortOf(fd);
  }
  if (error == EADDRINUSE || error == EACCES || listening_fds_.empty()) {
    return CannotListen(options.address, error);
  }
  return absl::OkStatus();
}

Listener::~Listener() {
  Stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Listener::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(wake_fd_, 1);
    thread_.join();
  }
  for (const int fd : listening_fds_) close(fd);
  listening_fds_.clear();
}

void Listener::Run() {
  SetThreadName("listener");
  std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
  for (const int fd : listening_fds_) fds.push_back({fd, POLLIN, 0});
  bool pause = false;
  for (;;) {
    // Where nothing can be accepted the sockets stay readable: look away.
    const int ready =
        poll(fds.data(),
             pause ? 1 : fds.size(),
             pause ? static_cast<int>(absl::ToInt64Milliseconds(kPause)) : -1);
    if (fds[0].revents != 0) return;
    const bool looked = !pause;
    pause = false;
    if (ready <= 0 || !looked) continue;
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && !AcceptSome(fds[i].fd)) pause = true;
    }
  }
}

bool Listener::AcceptSome(int listening_fd) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    const int fd =
        accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= end_fd_) {
      close(fd);
      LogRefused(absl::StrCat("more than ", max_connections_));
      continue;
    }
    if (fd >= 0) {
      on_connection_(listening_fd, fd);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return true;
      // Of one connection, which has gone.
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENETUNREACH:
      case EHOSTUNREACH:
      case EHOSTDOWN:
        continue;
      default:
        LogRefused(std::strerror(errno));
        return false;
    }
  }
  return true;
}

void Listener::LogRefused(const std::string& why) {
  ++num_refused_;
  const absl::Time now = absl::Now();
  if (now < last_log_ + kLogInterval) return;
  SPECWIRE_LOG(Warning,
               "port ",
               port_,
               ": refused ",
               num_refused_,
               num_refused_ == 1 ? " connection: " : " connections: ",
               why);
  last_log_ = now;
  num_refused_ = 0;
}

}  // namespace specwire
