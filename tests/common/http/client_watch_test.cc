// SPDX-License-Identifier: Apache-2.0
#include "common/http/client_watch.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

class ClientWatchTest : public testing::Test {
 protected:
  ClientWatchTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_), 0);
  }
  ~ClientWatchTest() override {
    for (const int fd : sockets_) {
      if (fd >= 0) close(fd);
    }
  }
  void Close(int end) {
    close(sockets_[end]);
    sockets_[end] = -1;
  }

  int sockets_[2] = {-1, -1};
  ClientWatch watch_;
};

TEST_F(ClientWatchTest, TellsWhenTheOtherSideCloses) {
  absl::Notification gone;
  const auto entry = watch_.Add(sockets_[0], [&] { gone.Notify(); });
  EXPECT_FALSE(gone.HasBeenNotified());
  Close(1);
  gone.WaitForNotification();
}

TEST_F(ClientWatchTest, DataIsNoReason) {
  absl::Notification gone;
  const auto entry = watch_.Add(sockets_[0], [&] { gone.Notify(); });
  EXPECT_EQ(send(sockets_[1], "x", 1, 0), 1);
  EXPECT_FALSE(gone.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
}

TEST_F(ClientWatchTest, SaysNothingOnceTheEntryHasGone) {
  std::atomic<bool> called = false;
  watch_.Add(sockets_[0], [&] { called = true; }).reset();
  Close(1);
  absl::Notification other_gone;
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const auto entry = watch_.Add(pair[0], [&] { other_gone.Notify(); });
  close(pair[1]);
  other_gone.WaitForNotification();
  EXPECT_FALSE(called);
  close(pair[0]);
}

TEST_F(ClientWatchTest, TellsEverybodyAtTheStop) {
  absl::Notification gone;
  const auto entry = watch_.Add(sockets_[0], [&] { gone.Notify(); });
  watch_.Stop();
  EXPECT_TRUE(gone.HasBeenNotified());
  std::atomic<bool> late = false;
  const auto after = watch_.Add(sockets_[0], [&] { late = true; });
  EXPECT_TRUE(late);
}

TEST(ClientWatchDescriptorTest, EndsAndWatchesWithoutADescriptorToWakeIt) {
  int sockets[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  auto watch = std::make_unique<ClientWatch>();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  absl::Notification gone;
  auto entry = watch->Add(sockets[0], [&] { gone.Notify(); });
  close(sockets[1]);
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(30)));
  entry.reset();
  // Its destructor used to wait for ever.
  watch.reset();
  close(sockets[0]);
}

}  // namespace
}  // namespace specwire
