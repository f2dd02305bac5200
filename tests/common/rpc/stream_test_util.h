// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/stream.h"
#include "gtest/gtest.h"

namespace specwire {

// Anything in these tests that takes longer has hung.
inline constexpr absl::Duration kTestTimeout = absl::Seconds(30);

// Waits for conditions on what a lock guards.
class Monitor {
 public:
  // Changes the state and wakes the waiters.
  template <class Change>
  void Update(Change change) {
    MutexLock lock(&mutex_);
    change();
    changed_.NotifyAll();
  }
  // Returns false if `condition` did not come true in time.
  template <class Condition>
  bool Await(Condition condition, absl::Duration timeout = kTestTimeout) {
    const SteadyClock clock;
    const absl::Time deadline = clock.Now() + timeout;
    MutexLock lock(&mutex_);
    while (!condition()) {
      const absl::Duration left = deadline - clock.Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mutex_, left);
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
};

// Keeps what a stream told, and checks that it kept the rules: OnMessage one at
// a time, OnClosed once and last.
template <class In>
class RecordingHandler : public StreamHandler<In> {
 public:
  // Called on each message before it is recorded.
  std::function<void(const In&)> on_message;
  std::function<void(const absl::Status&)> on_closed;
  // What OnPeerDone returns.
  bool finish_when_peer_is_done = true;

  void OnMessage(In message) override {
    EXPECT_EQ(in_message_.fetch_add(1), 0);
    if (on_message) on_message(message);
    monitor_.Update([&] {
      EXPECT_FALSE(closed_.has_value());
      messages_.push_back(std::move(message));
    });
    in_message_.fetch_sub(1);
  }
  void OnWritten(size_t num_queued) override {
    monitor_.Update([&] {
      EXPECT_FALSE(closed_.has_value());
      ++num_written_;
      num_queued_ = num_queued;
    });
  }
  bool OnPeerDone() override {
    monitor_.Update([&] { peer_done_ = true; });
    return finish_when_peer_is_done;
  }
  void OnClosed(absl::Status status) override {
    EXPECT_EQ(in_message_.load(), 0);
    if (on_closed) on_closed(status);
    monitor_.Update([&] {
      EXPECT_FALSE(closed_.has_value()) << "closed twice";
      closed_ = std::move(status);
    });
  }

  // The status it was closed with; fails the test if it was not in time.
  absl::Status AwaitClosed(absl::Duration timeout = kTestTimeout) {
    if (!monitor_.Await([&] { return closed_.has_value(); }, timeout)) {
      ADD_FAILURE() << "the stream did not close";
      return absl::UnknownError("not closed");
    }
    return Get([&] { return *closed_; });
  }
  // False if the stream ended before.
  bool AwaitMessages(size_t count) {
    EXPECT_TRUE(monitor_.Await([&] {
      return messages_.size() >= count || closed_.has_value();
    })) << "no message and no end";
    return Get([&] { return messages_.size() >= count; });
  }
  bool AwaitWritten(int count) {
    return monitor_.Await([&] { return num_written_ >= count; });
  }
  bool AwaitPeerDone() {
    return monitor_.Await([&] { return peer_done_; });
  }
  std::vector<In> messages() {
    return Get([&] { return messages_; });
  }
  int num_written() {
    return Get([&] { return num_written_; });
  }
  bool closed() {
    return Get([&] { return closed_.has_value(); });
  }

 private:
  template <class Read>
  auto Get(Read read) {
    std::optional<decltype(read())> result;
    monitor_.Update([&] { result = read(); });
    return *std::move(result);
  }

  Monitor monitor_;
  std::atomic<int> in_message_ = 0;
  std::vector<In> messages_;
  int num_written_ = 0;
  size_t num_queued_ = 0;
  bool peer_done_ = false;
  std::optional<absl::Status> closed_;
};

}  // namespace specwire
