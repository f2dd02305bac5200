// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/status_macros.h"

namespace specwire {

RelayLoop::Connection::Connection(const LinkConditions* forward_conditions,
                                  const LinkConditions* backward_conditions,
                                  size_t buffer_bytes,
                                  uint64_t seed,
                                  std::atomic<int64_t>* num_flips)
    : forward(forward_conditions, buffer_bytes, 2 * seed, num_flips),
      backward(backward_conditions, buffer_bytes, 2 * seed + 1, num_flips) {
  client.connection = server.connection = this;
  client.outgoing = server.incoming = &forward;
  client.incoming = server.outgoing = &backward;
}

int64_t RelayLoop::Connection::due_ns() const {
  // What is for the server waits until it is connected.
  return connecting ? backward.due_ns()
                    : std::min(forward.due_ns(), backward.due_ns());
}

absl::StatusOr<std::unique_ptr<RelayLoop>> RelayLoop::Open(
    const RelayOptions& options) {
  auto loop = std::unique_ptr<RelayLoop>(new RelayLoop(options));
  SPECWIRE_ASSIGN_OR_RETURN(ListeningSocket listening,
                            ListenAt(options.listen));
  loop->listener_.fd = listening.fd;
  loop->address_ = std::move(listening.address);
  SPECWIRE_RETURN_IF_ERROR(loop->poller_.Open());
  return loop;
}

RelayLoop::~RelayLoop() {
  for (const auto& [connection, _] : connections_) {
    for (const Endpoint* end : {&connection->client, &connection->server}) {
      if (end->fd >= 0) close(end->fd);
    }
  }
  if (listener_.fd >= 0) close(listener_.fd);
}

void RelayLoop::SetTarget(const SocketAddress& target) {
  {
    MutexLock lock(&mutex_);
    wanted_.has_target = true;
    wanted_.target = target;
    ++num_settings_;
  }
  poller_.Wake();
}

void RelayLoop::SetConditions(const LinkConditions& forward,
                              const LinkConditions& backward) {
  {
    MutexLock lock(&mutex_);
    wanted_.forward = forward;
    wanted_.backward = backward;
    ++num_settings_;
  }
  poller_.Wake();
}

void RelayLoop::Stop() {
  stopping_ = true;
  poller_.Wake();
}

void RelayLoop::Run() {
  while (!stopping_) {
    const absl::Span<const RelayPoller::Event> events = poller_.Wait();
    // First: bytes that were sent after a change are under it.
    if (num_settings_ != num_taken_) TakeSettings();
    for (const RelayPoller::Event& event : events) {
      OnEvent(static_cast<Endpoint*>(event.watched), event.events);
    }
    const int64_t now_ns = RelayNowNs();
    while (!agenda_.empty() && agenda_.begin()->first <= now_ns) {
      Serve(agenda_.begin()->second, now_ns);
    }
    // Not earlier: later events of the round may have been about them.
    if (!ended_.empty()) WatchListener();
    ended_.clear();
    poller_.SetTimer(agenda_.empty() ? RelayPoller::kNever
                                     : agenda_.begin()->first);
  }
}

void RelayLoop::TakeSettings() {
  {
    MutexLock lock(&mutex_);
    num_taken_ = num_settings_;
    settings_ = wanted_;
  }
  WatchListener();
  std::vector<Connection*> all;
  for (const auto& [connection, _] : connections_) all.push_back(connection);
  const int64_t now_ns = RelayNowNs();
  for (Connection* connection : all) Serve(connection, now_ns);
}

void RelayLoop::WatchListener() {
  // Until there is a target they wait where the system keeps them.
  poller_.Watch(&listener_, settings_.has_target ? EPOLLIN : 0U);
}

void RelayLoop::Accept() {
  for (;;) {
    const int fd = AcceptFrom(listener_.fd);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors: until a connection has ended there is no point in
      // trying again.
      if (errno != EAGAIN) poller_.Watch(&listener_, 0);
      return;
    }
    const auto number = static_cast<uint64_t>(num_accepted_++);
    ++num_open_;
    auto made = std::make_unique<Connection>(&settings_.forward,
                                             &settings_.backward,
                                             options_.buffer_bytes,
                                             options_.seed + number,
                                             &num_flips_);
    Connection* const connection = made.get();
    connections_.emplace(connection, std::move(made));
    connection->client.fd = fd;
    const ConnectingSocket server = ConnectTo(settings_.target);
    connection->server.fd = server.fd;
    connection->connecting = server.connecting;
    if (server.fd >= 0) {
      Serve(connection, RelayNowNs());
    } else {
      Cut(connection, /*reset=*/true);
    }
  }
}

void RelayLoop::OnEvent(Endpoint* endpoint, uint32_t events) {
  if (endpoint == &listener_) return Accept();
  Connection* const connection = endpoint->connection;
  if (connection->over || endpoint->fd < 0) return;
  int error = 0;
  socklen_t length = sizeof(error);
  if ((events & EPOLLERR) != 0 &&
      (getsockopt(endpoint->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ||
       error != 0)) {
    return OnBroken(endpoint);
  }
  if ((events & EPOLLOUT) != 0) {
    connection->connecting =
        connection->connecting && endpoint != &connection->server;
    endpoint->incoming->Unblock();
  }
  if ((events & (EPOLLIN | EPOLLHUP)) != 0 &&
      endpoint->outgoing->wants_bytes() &&
      !endpoint->outgoing->Read(endpoint->fd, buffer_.data())) {
    return OnBroken(endpoint);
  }
  Serve(connection, RelayNowNs());
}

void RelayLoop::OnBroken(Endpoint* endpoint) {
  Connection* const connection = endpoint->connection;
  if (!endpoint->outgoing->loses()) return Cut(connection, /*reset=*/true);
  endpoint->outgoing->LoseSender();
  endpoint->incoming->LoseReceiver();
  connection->connecting =
      connection->connecting && endpoint != &connection->server;
  poller_.Watch(endpoint, 0);
  CloseSocket(endpoint->fd, /*reset=*/false);
  endpoint->fd = -1;
  Serve(connection, RelayNowNs());
}

void RelayLoop::Serve(Connection* connection, int64_t now_ns) {
  Endpoint* const client = &connection->client;
  Endpoint* const server = &connection->server;
  connection->forward.Settle();
  connection->backward.Settle();
  if (!connection->backward.Deliver(client->fd, now_ns) ||
      (!connection->connecting &&
       !connection->forward.Deliver(server->fd, now_ns))) {
    return Cut(connection, /*reset=*/true);
  }
  if (connection->forward.done() && connection->backward.done()) {
    return Cut(connection, /*reset=*/false);
  }
  for (Endpoint* endpoint : {client, server}) {
    if (endpoint->fd < 0) continue;
    const bool connecting = endpoint == server && connection->connecting;
    uint32_t events = 0;
    if (!connecting && endpoint->outgoing->wants_bytes()) events |= EPOLLIN;
    if (connecting || endpoint->incoming->blocked()) events |= EPOLLOUT;
    poller_.Watch(endpoint, events);
  }
  Note(connection, connection->due_ns());
}

void RelayLoop::Note(Connection* connection, int64_t due_ns) {
  if (connection->noted_ns == due_ns) return;
  if (connection->noted_ns != RelayDirection::kNever) {
    agenda_.erase({connection->noted_ns, connection});
  }
  if (due_ns != RelayDirection::kNever) agenda_.emplace(due_ns, connection);
  connection->noted_ns = due_ns;
}

void RelayLoop::Cut(Connection* connection, bool reset) {
  Note(connection, RelayDirection::kNever);
  for (Endpoint* endpoint : {&connection->client, &connection->server}) {
    if (endpoint->fd < 0) continue;
    poller_.Watch(endpoint, 0);
    CloseSocket(endpoint->fd, reset);
  }
  connection->over = true;
  --num_open_;
  auto found = connections_.find(connection);
  ended_.push_back(std::move(found->second));
  connections_.erase(found);
}

}  // namespace specwire
