// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace specwire {
namespace {

// A socket that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  void Send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count =
          send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      ASSERT_GT(count, 0) << std::strerror(errno);
      sent += static_cast<size_t>(count);
    }
  }
  void EndSending() const { shutdown(fd_, SHUT_WR); }

  // Up to `size` bytes, fewer at the end.
  std::string Receive(size_t size) const {
    std::string bytes(size, '\0');
    size_t held = 0;
    while (held < size) {
      const ssize_t count = recv(fd_, bytes.data() + held, size - held, 0);
      if (count <= 0) break;
      held += static_cast<size_t>(count);
    }
    bytes.resize(held);
    return bytes;
  }
  std::string ReceiveAll() const {
    std::string all;
    for (;;) {
      const std::string part = Receive(1 << 16);
      if (part.empty()) return all;
      all += part;
    }
  }
  // Something, or the end, arrives within `ms`.
  bool IsReadable(int ms) const {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, ms) > 0;
  }

 private:
  int fd_;
};

sockaddr_in Local(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Listens on a free port.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Local(0);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_.fd(), generic, length), 0);
    EXPECT_EQ(listen(socket_.fd(), 512), 0);
    EXPECT_EQ(getsockname(socket_.fd(), generic, &length), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  const std::string& address() const { return address_; }
  Socket Accept() const {
    return Socket(accept(socket_.fd(), nullptr, nullptr));
  }
  bool IsWaitedFor(int ms) const { return socket_.IsReadable(ms); }

 private:
  Socket socket_;
  std::string address_;
};

Socket Dial(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  Socket dialled(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = Local(std::stoi(parts[1]));
  EXPECT_EQ(
      connect(dialled.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
      0)
      << std::strerror(errno);
  return dialled;
}

std::string RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Sends in pieces of 1 byte to 40 KiB.
void SendInPieces(const Socket& socket,
                  const std::string& bytes,
                  uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size();) {
    const size_t most = random() % 3 == 0 ? 40960 : 200;
    const size_t size = std::min(bytes.size() - at, 1 + random() % most);
    socket.Send(bytes.substr(at, size));
    at += size;
  }
  socket.EndSending();
}

class RelayTest : public testing::Test {
 protected:
  void StartRelay(RelayOptions options = {}) {
    options.target = listener_.address();
    auto relay = Relay::Start(options);
    ASSERT_TRUE(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
  }
  void SetConditions(const LinkConditions& forward,
                     const LinkConditions& backward) {
    ASSERT_TRUE(relay_->SetConditions(forward, backward).ok());
  }
  std::pair<Socket, Socket> Connect() {
    Socket client = Dial(relay_->address());
    return {std::move(client), listener_.Accept()};
  }

  Listener listener_;
  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, BytesPassUnchangedBothWaysAtOnce) {
  RelayOptions options;
  // Small, so that reading stops and goes on many times.
  options.buffer_bytes = 100000;
  StartRelay(options);
  SetConditions(
      {.delay = absl::Microseconds(300), .jitter = absl::Milliseconds(1)},
      {.jitter = absl::Microseconds(200)});
  const auto [client, server] = Connect();
  const std::string there = RandomBytes(3'000'000, 1);
  const std::string back = RandomBytes(2'000'000, 2);
  std::string got_there;
  std::string got_back;
  std::vector<std::thread> threads;
  threads.emplace_back([&, &from = client] { SendInPieces(from, there, 3); });
  threads.emplace_back([&, &from = server] { SendInPieces(from, back, 4); });
  threads.emplace_back([&, &to = server] { got_there = to.ReceiveAll(); });
  threads.emplace_back([&, &to = client] { got_back = to.ReceiveAll(); });
  for (std::thread& thread : threads) thread.join();
  // Not EXPECT_EQ, which would print them.
  EXPECT_TRUE(got_there == there);
  EXPECT_TRUE(got_back == back);
}

TEST_F(RelayTest, NothingComesEarlierThanTheDelayOfItsDirection) {
  using Clock = std::chrono::steady_clock;
  using Ms = std::chrono::milliseconds;
  StartRelay();
  SetConditions({.delay = absl::Milliseconds(7)},
                {.delay = absl::Milliseconds(3)});
  const auto [client, server] = Connect();
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    client.Send("a");
    EXPECT_EQ(server.Receive(1), "a");
    const auto turn = Clock::now();
    EXPECT_GE(turn - start, Ms(7));
    server.Send("b");
    EXPECT_EQ(client.Receive(1), "b");
    EXPECT_GE(Clock::now() - turn, Ms(3));
  }
}

TEST_F(RelayTest, AShorterDelayOvertakesNothing) {
  StartRelay();
  SetConditions({.delay = absl::Milliseconds(20)}, {});
  const auto [client, server] = Connect();
  client.Send("slow");
  // Until the relay has taken it there is nothing to overtake.
  server.Send("x");
  EXPECT_EQ(client.Receive(1), "x");
  SetConditions({}, {});
  client.Send("fast");
  EXPECT_EQ(server.Receive(8), "slowfast");
}

TEST_F(RelayTest, TheEndOfOneDirectionLeavesTheOtherOpen) {
  StartRelay();
  SetConditions({.delay = absl::Milliseconds(2)},
                {.delay = absl::Milliseconds(2)});
  auto [client, server] = Connect();
  client.Send("question");
  client.EndSending();
  EXPECT_EQ(server.ReceiveAll(), "question");
  server.Send("answer");
  EXPECT_EQ(client.Receive(6), "answer");
  EXPECT_EQ(relay_->num_open(), 1);
  server.EndSending();
  EXPECT_EQ(client.ReceiveAll(), "");
}

TEST_F(RelayTest, CarriesManyConnectionsAtOnce) {
  constexpr int kConnections = 150;
  StartRelay();
  SetConditions({.jitter = absl::Milliseconds(2)},
                {.jitter = absl::Milliseconds(2)});
  std::vector<Socket> clients;
  std::vector<Socket> servers;
  for (int i = 0; i < kConnections; ++i) {
    auto [client, server] = Connect();
    clients.push_back(std::move(client));
    servers.push_back(std::move(server));
  }
  for (int i = 0; i < kConnections; ++i) {
    clients[static_cast<size_t>(i)].Send(absl::StrCat(1000 + i));
  }
  for (const Socket& server : servers) server.Send(server.Receive(4));
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_EQ(clients[static_cast<size_t>(i)].Receive(4),
              absl::StrCat(1000 + i));
  }
  EXPECT_EQ(relay_->num_accepted(), kConnections);
}

TEST_F(RelayTest, AFullBufferStopsTheSender) {
  constexpr size_t kBuffer = 200000;
  RelayOptions options;
  options.buffer_bytes = kBuffer;
  StartRelay(options);
  const auto [client, server] = Connect();
  fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  // Until the sender has been stopped for a while: what the system and the
  // relay hold is full.
  const std::string bytes = RandomBytes(1 << 16, 5);
  std::string sent;
  pollfd room = {client.fd(), POLLOUT, 0};
  while (poll(&room, 1, 200) > 0) {
    const ssize_t count =
        send(client.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) sent += bytes.substr(0, static_cast<size_t>(count));
    ASSERT_LT(sent.size(), size_t{1} << 28) << "nobody stops the sender";
  }
  client.EndSending();
  EXPECT_TRUE(server.ReceiveAll() == sent);
}

TEST_F(RelayTest, AResetIsPassedOn) {
  StartRelay();
  auto [client, server] = Connect();
  client.Send("a");
  EXPECT_EQ(server.Receive(1), "a");
  const linger at_once = {1, 0};
  setsockopt(server.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  server = Socket();
  ASSERT_TRUE(client.IsReadable(10000));
  char byte = 0;
  EXPECT_EQ(recv(client.fd(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(RelayTest, NobodyAtTheTargetEndsTheConnection) {
  std::string nobody;
  {
    const Listener gone;
    nobody = gone.address();
  }
  StartRelay();
  ASSERT_TRUE(relay_->SetTarget(nobody).ok());
  const Socket client = Dial(relay_->address());
  EXPECT_TRUE(client.IsReadable(10000));
  EXPECT_EQ(client.ReceiveAll(), "");
}

TEST_F(RelayTest, ConnectionsWaitUntilThereIsATarget) {
  auto relay = Relay::Start({});
  ASSERT_TRUE(relay.ok()) << relay.status();
  const Socket client = Dial((*relay)->address());
  client.Send("early");
  EXPECT_FALSE(listener_.IsWaitedFor(30));
  ASSERT_TRUE((*relay)->SetTarget(listener_.address()).ok());
  EXPECT_EQ(listener_.Accept().Receive(5), "early");
}

TEST_F(RelayTest, AStalledLinkGoesOnWhereItStopped) {
  StartRelay();
  const auto [client, server] = Connect();
  client.Send("a");
  EXPECT_EQ(server.Receive(1), "a");
  SetConditions({.stalled = true}, {});
  client.Send("b");
  EXPECT_FALSE(server.IsReadable(50));
  // The other direction passes.
  server.Send("c");
  EXPECT_EQ(client.Receive(1), "c");
  SetConditions({}, {});
  EXPECT_EQ(server.Receive(1), "b");
}

TEST_F(RelayTest, ItsEndCutsWhatIsConnected) {
  StartRelay();
  SetConditions({.delay = absl::Seconds(60)}, {});
  const auto [client, server] = Connect();
  client.Send("never");
  relay_.reset();
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_EQ(server.ReceiveAll(), "");
}

TEST_F(RelayTest, RefusesWhatItCannotDo) {
  const auto start = [](const std::string& listen, const std::string& target) {
    RelayOptions options;
    options.listen = listen;
    options.target = target;
    return Relay::Start(options).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(start("nonsense", "127.0.0.1:1")));
  EXPECT_TRUE(absl::IsInvalidArgument(start("127.0.0.1:0", "a.name:1")));
  EXPECT_TRUE(absl::IsUnavailable(start(listener_.address(), "127.0.0.1:1")));
  StartRelay();
  EXPECT_TRUE(absl::IsInvalidArgument(
      relay_->SetConditions({.delay = absl::Seconds(61)}, {})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      relay_->SetConditions({}, {.jitter = absl::Seconds(-1)})));
  EXPECT_TRUE(absl::IsInvalidArgument(relay_->SetTarget("127.0.0.1")));
}

}  // namespace
}  // namespace specwire
