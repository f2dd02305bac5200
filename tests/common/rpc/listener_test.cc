// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/listener.h"

#include <memory>
#include <mutex>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/loopback_socket.h"

namespace specwire {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// True if the other side closes the connection.
bool IsClosed(int fd, absl::Duration patience = kPatience) {
  pollfd poll_fd = {fd, POLLIN, 0};
  if (poll(&poll_fd,
           1,
           static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) {
    return false;
  }
  char byte = 0;
  return recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

class ListenerTest : public testing::Test {
 protected:
  ~ListenerTest() override {
    if (listener_ != nullptr) listener_->Stop();
    for (const int fd : accepted_) close(fd);
    for (const int fd : dialled_) close(fd);
  }

  void Start(int max_connections) {
    auto listener =
        Listener::Bind({{"127.0.0.1", 0}, max_connections, absl::Seconds(5)});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start([this](int /*listening_fd*/, int fd) {
      const std::lock_guard lock(mutex_);
      accepted_.push_back(fd);
    });
  }

  int Connect() {
    dialled_.push_back(DialLoopback(listener_->port()));
    return dialled_.back();
  }

  size_t num_accepted() {
    const std::lock_guard lock(mutex_);
    return accepted_.size();
  }

  bool WaitAccepted(size_t count) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (num_accepted() < count && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    return num_accepted() == count;
  }

  std::mutex mutex_;
  std::vector<int> accepted_;
  std::vector<int> dialled_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, HandsConnectionsOn) {
  Start(10);
  const int fd = Connect();
  ASSERT_TRUE(WaitAccepted(1));
  ASSERT_EQ(send(fd, "x", 1, 0), 1);
  pollfd poll_fd = {accepted_[0], POLLIN, 0};
  EXPECT_EQ(poll(&poll_fd, 1, 30'000), 1);
}

TEST_F(ListenerTest, MoreThanTheBoundAreClosedUntilOthersEnd) {
  // Both ends' descriptors are this process's: two for each connection.
  Start(20);
  for (size_t i = 1; i <= 9; ++i) {
    Connect();
    ASSERT_TRUE(WaitAccepted(i));
  }
  std::vector<int> more;
  for (int i = 0; i < 10; ++i) more.push_back(Connect());
  EXPECT_TRUE(IsClosed(more.back()));
  const size_t full = num_accepted();
  EXPECT_LE(full, 11u);

  for (const int fd : more) close(fd);
  for (size_t i = 0; i < 10; ++i) dialled_.pop_back();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : accepted_) close(fd);
    accepted_.clear();
  }
  Connect();
  EXPECT_TRUE(WaitAccepted(1));
}

TEST_F(ListenerTest, GoesOnWhenDescriptorsRanOut) {
  Start(1000);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int waiting = Connect();
  ASSERT_TRUE(WaitAccepted(1));
  // One for this side of the connection, none for the other.
  const rlimit low = {static_cast<rlim_t>(accepted_[0]) + 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int late = Connect();
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(num_accepted(), 1u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(WaitAccepted(2));
  EXPECT_FALSE(IsClosed(late, absl::ZeroDuration()));
  EXPECT_FALSE(IsClosed(waiting, absl::ZeroDuration()));
}

TEST_F(ListenerTest, NothingIsAcceptedAfterStop) {
  Start(10);
  listener_->Stop();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  close(fd);
}

TEST_F(ListenerTest, SaysWhyItCannotListen) {
  Start(10);
  const auto again =
      Listener::Bind({{"127.0.0.1", listener_->port()}, 10, absl::Seconds(5)});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(again.status().message(),
              HasSubstr(absl::StrCat("cannot listen on 127.0.0.1:",
                                     listener_->port(),
                                     ": address already in use")));
}

TEST_F(ListenerTest, TheBoundFitsTheProcess) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max > 1'000'000) GTEST_SKIP() << "the limit is too high";
  Start(1 << 20);
  EXPECT_LT(listener_->max_connections(), 1 << 20);
}

}  // namespace
}  // namespace specwire
