// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/rpc/relay_direction.h"

namespace specwire {
namespace {

constexpr absl::Duration kLongestDelay = absl::Seconds(60);

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

absl::StatusOr<Address> ParseAddress(const std::string& text,
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
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

absl::Status CheckConditions(const LinkConditions& conditions) {
  for (const absl::Duration time : {conditions.delay, conditions.jitter}) {
    if (time < absl::ZeroDuration() || time > kLongestDelay) {
      return absl::InvalidArgumentError(
          absl::StrCat("delay and jitter must be in [0, ",
                       absl::FormatDuration(kLongestDelay),
                       "], not ",
                       absl::FormatDuration(time)));
    }
  }
  return absl::OkStatus();
}

struct Connection;

// What epoll tells about: one end of a connection, or a descriptor of the loop
// itself (no connection).
struct Endpoint {
  int fd = -1;
  uint32_t events = 0;
  Connection* connection = nullptr;
  // What is read here, and what is written here.
  RelayDirection* outgoing = nullptr;
  RelayDirection* incoming = nullptr;
};

struct Connection {
  Connection(const LinkConditions* forward_conditions,
             const LinkConditions* backward_conditions,
             size_t buffer_bytes,
             uint64_t seed)
      : forward(forward_conditions, buffer_bytes, 2 * seed),
        backward(backward_conditions, buffer_bytes, 2 * seed + 1) {
    client = {-1, 0, this, &forward, &backward};
    server = {-1, 0, this, &backward, &forward};
  }

  int64_t due_ns() const {
    return std::min(forward.due_ns(), backward.due_ns());
  }

  RelayDirection forward;
  RelayDirection backward;
  Endpoint client;
  Endpoint server;
  // The server's end is not connected yet.
  bool connecting = true;
  // As it is noted in the loop's agenda.
  int64_t noted_ns = RelayDirection::kNever;
  bool over = false;
};

}  // namespace

// The thread's own. Descriptors for which there is nothing to wait for are
// taken out of epoll: it tells of hang-ups whether they are asked for or not.
class Relay::Loop {
 public:
  Loop(Relay* relay, const RelayOptions& options)
      : relay_(relay), options_(options), buffer_(RelayDirection::kReadBytes) {}
  ~Loop();

  absl::Status Open();
  std::string address() const { return address_; }
  void Run();

 private:
  void TakeSettings();
  void Accept();
  bool Connect(Connection* connection);
  void OnEvent(Endpoint* endpoint, uint32_t events);
  // Delivers what is due on both ways and notes what comes next.
  void Serve(Connection* connection, int64_t now_ns);
  void Watch(Endpoint* endpoint, uint32_t events);
  void WatchListener();
  void Note(Connection* connection, int64_t due_ns);
  // Cuts it; the object lives until the end of the round.
  void Cut(Connection* connection, bool reset);
  void SetTimer();

  Relay* const relay_;
  const RelayOptions options_;
  std::string address_;
  Endpoint listener_;
  Endpoint wake_;
  Endpoint timer_;
  int epoll_ = -1;
  int64_t timer_ns_ = RelayDirection::kNever;
  std::vector<char> buffer_;

  // As of the latest TakeSettings.
  int64_t num_settings_ = 0;
  std::string target_text_;
  Address target_;
  LinkConditions forward_;
  LinkConditions backward_;
  uint64_t num_accepted_ = 0;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  // Ended in this round.
  std::vector<std::unique_ptr<Connection>> ended_;
  // By when they have something to deliver.
  std::set<std::pair<int64_t, Connection*>> agenda_;
};

Relay::Loop::~Loop() {
  for (const auto& [connection, _] : connections_) {
    close(connection->client.fd);
    close(connection->server.fd);
  }
  for (const int fd : {listener_.fd, timer_.fd, epoll_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status Relay::Loop::Open() {
  const auto fail = [&](absl::string_view what) {
    return absl::UnavailableError(
        absl::StrCat(what, " ", options_.listen, ": ", std::strerror(errno)));
  };
  SPECWIRE_ASSIGN_OR_RETURN(Address address,
                            ParseAddress(options_.listen, "listen"));
  listener_.fd = socket(
      address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener_.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener_.fd, address.get(), address.length) != 0 ||
      listen(listener_.fd, SOMAXCONN) != 0 ||
      getsockname(listener_.fd, address.get(), &address.length) != 0) {
    return fail("cannot listen on");
  }
  SPECWIRE_ASSIGN_OR_RETURN(HostPort told,
                            ParseHostPort(options_.listen, "listen"));
  told.port =
      ntohs(address.storage.ss_family == AF_INET6
                ? reinterpret_cast<sockaddr_in6*>(address.get())->sin6_port
                : reinterpret_cast<sockaddr_in*>(address.get())->sin_port);
  address_ = told.ToString();
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  timer_.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  wake_.fd = relay_->wake_fd_;
  if (epoll_ < 0 || timer_.fd < 0 || wake_.fd < 0) {
    return fail("cannot relay from");
  }
  Watch(&timer_, EPOLLIN);
  Watch(&wake_, EPOLLIN);
  TakeSettings();
  return absl::OkStatus();
}

void Relay::Loop::Run() {
  std::array<epoll_event, 64> events;
  while (!relay_->stopping_) {
    const int count =
        epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    // First: bytes that were sent after a change are under it.
    if (relay_->num_settings_ != num_settings_) TakeSettings();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      OnEvent(static_cast<Endpoint*>(event.data.ptr), event.events);
    }
    const int64_t now_ns = RelayNowNs();
    while (!agenda_.empty() && agenda_.begin()->first <= now_ns) {
      Serve(agenda_.begin()->second, now_ns);
    }
    // Not earlier: later events of the round may have been about them.
    if (!ended_.empty()) WatchListener();
    ended_.clear();
    SetTimer();
  }
}

void Relay::Loop::OnEvent(Endpoint* endpoint, uint32_t events) {
  if (endpoint == &listener_) return Accept();
  if (endpoint == &wake_ || endpoint == &timer_) {
    uint64_t number = 0;
    [[maybe_unused]] const ssize_t count =
        read(endpoint->fd, &number, sizeof(number));
    if (endpoint == &timer_) timer_ns_ = RelayDirection::kNever;
    return;
  }
  Connection* const connection = endpoint->connection;
  if (connection->over) return;
  int error = 0;
  socklen_t length = sizeof(error);
  if ((events & EPOLLERR) != 0 &&
      (getsockopt(endpoint->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ||
       error != 0)) {
    return Cut(connection, /*reset=*/true);
  }
  if ((events & EPOLLOUT) != 0) {
    connection->connecting =
        connection->connecting && endpoint != &connection->server;
    endpoint->incoming->Unblock();
  }
  if ((events & (EPOLLIN | EPOLLHUP)) != 0 &&
      endpoint->outgoing->wants_bytes() &&
      !endpoint->outgoing->Read(endpoint->fd, buffer_.data())) {
    return Cut(connection, /*reset=*/true);
  }
  Serve(connection, RelayNowNs());
}

void Relay::Loop::Serve(Connection* connection, int64_t now_ns) {
  Endpoint* const client = &connection->client;
  Endpoint* const server = &connection->server;
  if (!connection->backward.Deliver(client->fd, now_ns) ||
      (!connection->connecting &&
       !connection->forward.Deliver(server->fd, now_ns))) {
    return Cut(connection, /*reset=*/true);
  }
  if (connection->forward.done() && connection->backward.done()) {
    return Cut(connection, /*reset=*/false);
  }
  for (Endpoint* endpoint : {client, server}) {
    const bool connecting = endpoint == server && connection->connecting;
    uint32_t events = 0;
    if (!connecting && endpoint->outgoing->wants_bytes()) events |= EPOLLIN;
    if (connecting || endpoint->incoming->blocked()) events |= EPOLLOUT;
    Watch(endpoint, events);
  }
  Note(connection,
       connection->connecting ? connection->backward.due_ns()
                              : connection->due_ns());
}

void Relay::Loop::Watch(Endpoint* endpoint, uint32_t events) {
  if (endpoint->events == events) return;
  epoll_event event = {};
  event.events = events;
  event.data.ptr = endpoint;
  const int operation = endpoint->events == 0 ? EPOLL_CTL_ADD
                        : events == 0         ? EPOLL_CTL_DEL
                                              : EPOLL_CTL_MOD;
  epoll_ctl(epoll_, operation, endpoint->fd, &event);
  endpoint->events = events;
}

void Relay::Loop::WatchListener() {
  // Until there is a target they wait where the system keeps them.
  Watch(&listener_, target_text_.empty() ? 0U : EPOLLIN);
}

void Relay::Loop::Note(Connection* connection, int64_t due_ns) {
  if (connection->noted_ns == due_ns) return;
  if (connection->noted_ns != RelayDirection::kNever) {
    agenda_.erase({connection->noted_ns, connection});
  }
  if (due_ns != RelayDirection::kNever) agenda_.emplace(due_ns, connection);
  connection->noted_ns = due_ns;
}

void Relay::Loop::SetTimer() {
  const int64_t due_ns =
      agenda_.empty() ? RelayDirection::kNever : agenda_.begin()->first;
  if (due_ns == timer_ns_) return;
  timer_ns_ = due_ns;
  itimerspec time = {};
  if (due_ns != RelayDirection::kNever) {
    time.it_value.tv_sec = due_ns / 1'000'000'000;
    time.it_value.tv_nsec = due_ns % 1'000'000'000;
  }
  timerfd_settime(timer_.fd, TFD_TIMER_ABSTIME, &time, nullptr);
}

void Relay::Loop::TakeSettings() {
  {
    MutexLock lock(&relay_->mutex_);
    num_settings_ = relay_->num_settings_;
    forward_ = relay_->forward_;
    backward_ = relay_->backward_;
    if (target_text_ != relay_->target_) {
      target_text_ = relay_->target_;
      target_ = *ParseAddress(target_text_, "target");
    }
  }
  WatchListener();
  std::vector<Connection*> all;
  for (const auto& [connection, _] : connections_) all.push_back(connection);
  const int64_t now_ns = RelayNowNs();
  for (Connection* connection : all) Serve(connection, now_ns);
}

void Relay::Loop::Accept() {
  for (;;) {
    const int fd =
        accept4(listener_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors: until a connection has ended there is no point in
      // trying again.
      if (errno != EAGAIN) Watch(&listener_, 0);
      return;
    }
    auto made = std::make_unique<Connection>(&forward_,
                                             &backward_,
                                             options_.buffer_bytes,
                                             options_.seed + num_accepted_++);
    Connection* const connection = made.get();
    connection->client.fd = fd;
    connections_.emplace(connection, std::move(made));
    ++relay_->num_accepted_;
    ++relay_->num_open_;
    if (Connect(connection)) {
      Serve(connection, RelayNowNs());
    } else {
      Cut(connection, /*reset=*/true);
    }
  }
}

bool Relay::Loop::Connect(Connection* connection) {
  const int fd = socket(
      target_.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  connection->server.fd = fd;
  if (fd < 0) return false;
  const int on = 1;
  for (const int end : {connection->client.fd, fd}) {
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (connect(fd, target_.get(), target_.length) == 0) {
    connection->connecting = false;
    return true;
  }
  return errno == EINPROGRESS;
}

void Relay::Loop::Cut(Connection* connection, bool reset) {
  Note(connection, RelayDirection::kNever);
  for (Endpoint* endpoint : {&connection->client, &connection->server}) {
    if (endpoint->fd < 0) continue;
    Watch(endpoint, 0);
    const linger at_once = {1, 0};
    if (reset) {
      setsockopt(
          endpoint->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    close(endpoint->fd);
  }
  connection->over = true;
  --relay_->num_open_;
  auto found = connections_.find(connection);
  ended_.push_back(std::move(found->second));
  connections_.erase(found);
}

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(
    const RelayOptions& options) {
  auto relay = std::unique_ptr<Relay>(new Relay());
  if (!options.target.empty()) {
    SPECWIRE_RETURN_IF_ERROR(relay->SetTarget(options.target));
  }
  relay->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  relay->loop_ = std::make_unique<Loop>(relay.get(), options);
  SPECWIRE_RETURN_IF_ERROR(relay->loop_->Open());
  relay->address_ = relay->loop_->address();
  relay->thread_ = std::thread([loop = relay->loop_.get()] { loop->Run(); });
  return relay;
}

Relay::~Relay() {
  stopping_ = true;
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  loop_.reset();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Relay::Wake() {
  const uint64_t one = 1;
  // Fails only where the loop is to wake already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

absl::Status Relay::SetTarget(const std::string& target) {
  SPECWIRE_RETURN_IF_ERROR(ParseAddress(target, "target").status());
  {
    MutexLock lock(&mutex_);
    target_ = target;
    ++num_settings_;
  }
  if (wake_fd_ >= 0) Wake();
  return absl::OkStatus();
}

absl::Status Relay::SetConditions(const LinkConditions& forward,
                                  const LinkConditions& backward) {
  SPECWIRE_RETURN_IF_ERROR(CheckConditions(forward));
  SPECWIRE_RETURN_IF_ERROR(CheckConditions(backward));
  {
    MutexLock lock(&mutex_);
    forward_ = forward;
    backward_ = backward;
    ++num_settings_;
  }
  Wake();
  return absl::OkStatus();
}

}  // namespace specwire
