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
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rpc/relay_conditions.h"

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

TEST_F(RelayTest, ARateSpreadsBytesOverTime) {
  using Clock = std::chrono::steady_clock;
  StartRelay();
  SetConditions({.rate = 100000}, {});
  const auto [client, server] = Connect();
  const std::string bytes = RandomBytes(20000, 6);
  const auto start = Clock::now();
  client.Send(bytes);
  EXPECT_TRUE(server.Receive(bytes.size()) == bytes);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
  // The other way is as fast as ever.
  SetConditions({.rate = 100}, {});
  client.Send(bytes);
  server.Send("b");
  EXPECT_EQ(client.Receive(1), "b");
  EXPECT_FALSE(server.IsReadable(50));
}

TEST_F(RelayTest, AHalfCloseEndsOneWayBehindWhatWasUnderWay) {
  StartRelay();
  SetConditions({.delay = absl::Milliseconds(20)}, {});
  const auto [client, server] = Connect();
  client.Send("before");
  server.Send("x");
  EXPECT_EQ(client.Receive(1), "x");
  SetConditions({.delay = absl::Milliseconds(20), .ended = true}, {});
  EXPECT_EQ(server.ReceiveAll(), "before");
  // The sender does not know, and the other way goes on.
  client.Send("after");
  server.Send("answer");
  EXPECT_EQ(client.Receive(6), "answer");
  EXPECT_EQ(relay_->num_open(), 1);
  // What has ended stays so.
  SetConditions({}, {});
  client.Send("again");
  EXPECT_EQ(server.Receive(1), "");
}

TEST_F(RelayTest, ABlackholeSwallowsOneWayForGood) {
  StartRelay();
  const auto [client, server] = Connect();
  client.Send("a");
  EXPECT_EQ(server.Receive(1), "a");
  SetConditions({.blackhole = true}, {});
  client.Send("lost");
  server.Send("b");
  EXPECT_EQ(client.Receive(1), "b");
  EXPECT_FALSE(server.IsReadable(50));
  // Behind a gap nothing may pass; a new connection is sound.
  SetConditions({}, {});
  client.Send("c");
  EXPECT_FALSE(server.IsReadable(50));
  const auto [later, its_server] = Connect();
  later.Send("d");
  EXPECT_EQ(its_server.Receive(1), "d");
}

TEST_F(RelayTest, ABlackholeTellsNobodyThatAnEndHasGone) {
  StartRelay();
  SetConditions({.blackhole = true}, {.blackhole = true});
  auto [client, server] = Connect();
  client.Send("question");
  client.EndSending();
  EXPECT_FALSE(server.IsReadable(50));
  // A reset is no news either.
  server.Send("unread");
  const linger at_once = {1, 0};
  setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  client = Socket();
  EXPECT_FALSE(server.IsReadable(50));
  server.Send("into the void");
  EXPECT_EQ(relay_->num_open(), 1);
  // Nothing is held for ever.
  server = Socket();
  for (int i = 0; i < 1000 && relay_->num_open() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(relay_->num_open(), 0);
}

TEST_F(RelayTest, ABlackholeAcceptsAndNeverAnswers) {
  StartRelay();
  SetConditions({.blackhole = true}, {.blackhole = true});
  const Socket client = Dial(relay_->address());
  client.Send("hello");
  EXPECT_FALSE(client.IsReadable(50));
}

TEST_F(RelayTest, CutsBehindTheByteThatItWasToldTo) {
  StartRelay();
  SetConditions({.cut_after = 5}, {});
  const auto [client, server] = Connect();
  client.Send("abc");
  EXPECT_EQ(server.Receive(3), "abc");
  server.Send("x");
  EXPECT_EQ(client.Receive(1), "x");
  client.Send("defg");
  EXPECT_EQ(server.Receive(2), "de");
  char byte = 0;
  EXPECT_EQ(recv(server.fd(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  ASSERT_TRUE(client.IsReadable(10000));
  EXPECT_EQ(recv(client.fd(), &byte, 1, 0), -1);
}

TEST_F(RelayTest, ResetsWhatIsConnectedAndWhoeverComes) {
  StartRelay();
  const auto [client, server] = Connect();
  client.Send("a");
  EXPECT_EQ(server.Receive(1), "a");
  SetConditions({}, {.cut_after = 0});
  for (const Socket* end : {&client, &server}) {
    ASSERT_TRUE(end->IsReadable(10000));
    char byte = 0;
    EXPECT_EQ(recv(end->fd(), &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
  }
  const Socket later = Dial(relay_->address());
  EXPECT_TRUE(later.IsReadable(10000));
  EXPECT_EQ(later.Receive(1), "");
}

TEST_F(RelayTest, FlipsOneBitOfTheByteThatItWasToldTo) {
  StartRelay();
  SetConditions({}, {.flip_at = 4});
  const auto [client, server] = Connect();
  const std::string bytes = "0123456789";
  server.Send(bytes.substr(0, 3));
  EXPECT_EQ(client.Receive(3), "012");
  server.Send(bytes.substr(3));
  const std::string rest = client.Receive(7);
  ASSERT_EQ(rest.size(), size_t{7});
  EXPECT_EQ(rest.substr(0, 1) + rest.substr(2), "356789");
  const auto difference = static_cast<unsigned char>(rest[1] ^ '4');
  EXPECT_EQ(__builtin_popcount(difference), 1);
  client.Send(bytes);
  EXPECT_EQ(server.Receive(10), bytes);
  EXPECT_EQ(relay_->num_flips(), 1);
}

TEST_F(RelayTest, FlipsAtTheGivenRateAndAgainWithTheSameSeed) {
  constexpr size_t kBytes = 200000;
  constexpr double kRate = 0.01;
  std::string damaged[2];
  for (std::string& bytes : damaged) {
    RelayOptions options;
    options.seed = 8;
    StartRelay(options);
    SetConditions({.flip_rate = kRate}, {});
    const auto [client, server] = Connect();
    std::thread sender([&, &from = client] {
      from.Send(std::string(kBytes, '\0'));
      from.EndSending();
    });
    bytes = server.ReceiveAll();
    sender.join();
    ASSERT_EQ(bytes.size(), kBytes);
    const auto num_flips = static_cast<double>(relay_->num_flips());
    EXPECT_NEAR(num_flips, kBytes * kRate, 6 * std::sqrt(kBytes * kRate));
    EXPECT_EQ(kBytes - static_cast<size_t>(
                           std::count(bytes.begin(), bytes.end(), '\0')),
              static_cast<size_t>(relay_->num_flips()));
  }
  EXPECT_TRUE(damaged[0] == damaged[1]);
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
  for (const LinkConditions& bad :
       {LinkConditions{.rate = -1},
        LinkConditions{.cut_after = -1},
        LinkConditions{.flip_rate = 1.1},
        LinkConditions{.flip_rate = std::numeric_limits<double>::quiet_NaN()},
        LinkConditions{.flip_at = -1}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(relay_->SetConditions(bad, {})));
    EXPECT_TRUE(absl::IsInvalidArgument(relay_->SetConditions({}, bad)));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(relay_->SetTarget("127.0.0.1")));
}

TEST(ParseLinkConditionsTest, ReadsEveryField) {
  const auto parsed = ParseLinkConditions(
      "delay=5ms,jitter=500us,rate=8000,stalled,blackhole,ended,cut_after=7,"
      "flip_rate=0.25,flip_at=9",
      "--forward");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->delay, absl::Milliseconds(5));
  EXPECT_EQ(parsed->jitter, absl::Microseconds(500));
  EXPECT_EQ(parsed->rate, 8000);
  EXPECT_TRUE(parsed->stalled && parsed->blackhole && parsed->ended);
  EXPECT_EQ(parsed->cut_after, 7);
  EXPECT_EQ(parsed->flip_rate, 0.25);
  EXPECT_EQ(parsed->flip_at, 9);
}

TEST(ParseLinkConditionsTest, AnEmptyTextIsASoundLink) {
  const auto parsed = ParseLinkConditions("", "--forward");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->delay, absl::ZeroDuration());
  EXPECT_FALSE(parsed->stalled || parsed->blackhole || parsed->ended);
  EXPECT_FALSE(parsed->cut_after.has_value());
}

TEST(ParseLinkConditionsTest, RefusesWhatItDoesNotKnow) {
  for (const char* bad :
       {"nonsense", "delay", "delay=5", "rate=fast", "stalled=1", "flip_at="}) {
    const absl::Status status = ParseLinkConditions(bad, "--forward").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()),
                testing::StartsWith("--forward: "));
  }
}

}  // namespace
}  // namespace specwire
