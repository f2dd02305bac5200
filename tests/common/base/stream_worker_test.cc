// SPDX-License-Identifier: Apache-2.0
#include "common/base/stream_worker.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using Worker = StreamWorker<std::string>;

// Records what it is told. Work waits while the test holds it.
class Recorder final : public Worker::Client {
 public:
  void OnEvent(Worker::StreamId stream, std::string event) override {
    Add(absl::StrCat(stream, " ", event));
  }
  void OnGone(Worker::StreamId stream) override {
    Add(absl::StrCat(stream, " gone"));
  }
  absl::Duration Work() override {
    MutexLock lock(&mutex_);
    ++num_works_;
    changed_.NotifyAll();
    while (held_) changed_.Wait(&mutex_);
    return pause_;
  }
  void OnStop() override { Add("stop"); }

  void Hold(bool held) {
    MutexLock lock(&mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  void SetPause(absl::Duration pause) {
    MutexLock lock(&mutex_);
    pause_ = pause;
  }
  void WaitForWorks(int count) {
    MutexLock lock(&mutex_);
    while (num_works_ < count) changed_.Wait(&mutex_);
  }
  std::vector<std::string> told() {
    MutexLock lock(&mutex_);
    return told_;
  }

 private:
  void Add(std::string what) {
    MutexLock lock(&mutex_);
    told_.push_back(std::move(what));
  }

  Mutex mutex_;
  CondVar changed_;
  bool held_ = true;
  int num_works_ = 0;
  absl::Duration pause_ = absl::InfiniteDuration();
  std::vector<std::string> told_;
};

TEST(StreamWorkerTest, DeliversEventsInOrder) {
  Recorder recorder;
  Worker worker({.thread_name = "test"});
  const Worker::StreamId a = worker.Open();
  const Worker::StreamId b = worker.Open();
  EXPECT_EQ(worker.Post(a, "x", 1), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(b, "y", 1), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(a, "z", 1), Worker::PostResult::kPosted);
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_THAT(recorder.told(), ElementsAre("1 x", "2 y", "1 z"));
  recorder.Hold(false);
  worker.Stop();
  EXPECT_EQ(recorder.told().back(), "stop");
}

TEST(StreamWorkerTest, RefusesWhatDoesNotFitOneStreamsQueue) {
  Recorder recorder;
  Worker worker({.thread_name = "test", .max_events = 2, .max_bytes = 100});
  const Worker::StreamId a = worker.Open();
  const Worker::StreamId b = worker.Open();
  EXPECT_EQ(worker.Post(a, "1", 10), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(a, "2", 10), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(a, "3", 10), Worker::PostResult::kFull);
  EXPECT_EQ(worker.Post(b, "1", 90), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(b, "2", 11), Worker::PostResult::kFull);
  EXPECT_EQ(worker.Post(b, "2", 10), Worker::PostResult::kPosted);
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_EQ(worker.Post(a, "4", 10), Worker::PostResult::kPosted);
  EXPECT_EQ(worker.Post(b, "3", 100), Worker::PostResult::kPosted);
  recorder.Hold(false);
}

TEST(StreamWorkerTest, DropsWhatAGoneStreamHadQueued) {
  Recorder recorder;
  Worker worker({.thread_name = "test"});
  const Worker::StreamId a = worker.Open();
  worker.Post(a, "x", 1);
  worker.Close(a);
  worker.Close(a);
  EXPECT_EQ(worker.Post(a, "y", 1), Worker::PostResult::kClosed);
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_THAT(recorder.told(), ElementsAre("1 gone"));
  EXPECT_EQ(worker.num_streams(), 0);
  recorder.Hold(false);
}

TEST(StreamWorkerTest, DeliversNothingForAReleasedStream) {
  Recorder recorder;
  Worker worker({.thread_name = "test", .max_streams = 1});
  const Worker::StreamId a = worker.Open();
  EXPECT_EQ(worker.Open(), Worker::kNone);
  worker.Post(a, "x", 1);
  worker.Release(a);
  const Worker::StreamId b = worker.Open();
  EXPECT_NE(b, Worker::kNone);
  EXPECT_NE(b, a);
  worker.Close(a);
  EXPECT_EQ(worker.Post(a, "y", 1), Worker::PostResult::kClosed);
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_TRUE(recorder.told().empty());
  recorder.Hold(false);
}

TEST(StreamWorkerTest, WorksAgainAfterThePauseOrAnEvent) {
  Recorder recorder;
  recorder.SetPause(absl::Milliseconds(1));
  recorder.Hold(false);
  Worker worker({.thread_name = "test"});
  worker.Start(&recorder);
  recorder.WaitForWorks(3);
  recorder.SetPause(absl::InfiniteDuration());
  const Worker::StreamId a = worker.Open();
  worker.Post(a, "x", 1);
  while (recorder.told().empty()) std::this_thread::yield();
  EXPECT_THAT(recorder.told(), ElementsAre("1 x"));
}

TEST(StreamWorkerTest, TellsWorkFromWaiting) {
  Recorder recorder;
  Worker worker({.thread_name = "test"});
  EXPECT_FALSE(worker.working());
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_TRUE(worker.working());
  recorder.Hold(false);
  while (worker.working()) std::this_thread::yield();
  // An event that nobody takes is work too.
  recorder.Hold(true);
  const Worker::StreamId a = worker.Open();
  worker.Post(a, "x", 1);
  EXPECT_TRUE(worker.working());
  recorder.WaitForWorks(2);
  worker.Post(a, "y", 1);
  EXPECT_TRUE(worker.working());
  recorder.Hold(false);
}

TEST(StreamWorkerTest, OpensNoStreamWhileItDrains) {
  Recorder recorder;
  Worker worker({.thread_name = "test"});
  const Worker::StreamId a = worker.Open();
  EXPECT_FALSE(worker.draining());
  worker.Drain();
  EXPECT_TRUE(worker.draining());
  EXPECT_EQ(worker.Open(), Worker::kNone);
  // What is open goes on.
  EXPECT_EQ(worker.Post(a, "x", 1), Worker::PostResult::kPosted);
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  EXPECT_THAT(recorder.told(), ElementsAre("1 x"));
  recorder.Hold(false);
}

TEST(StreamWorkerTest, DeliversWhatIsQueuedBeforeItStops) {
  Recorder recorder;
  Worker worker({.thread_name = "test"});
  worker.Start(&recorder);
  recorder.WaitForWorks(1);
  const Worker::StreamId a = worker.Open();
  worker.Post(a, "x", 1);
  std::thread stopper([&worker] { worker.Stop(); });
  while (worker.Post(a, "y", 1) != Worker::PostResult::kStopped) {
    std::this_thread::yield();
  }
  recorder.Hold(false);
  stopper.join();
  EXPECT_EQ(recorder.told().front(), "1 x");
  EXPECT_EQ(recorder.told().back(), "stop");
}

TEST(TurnTest, PriorityFirstThenWhoWaitedLongest) {
  EXPECT_TRUE((Turn{.priority = 1, .last = 9}).GoesBefore(Turn{.last = 1}));
  EXPECT_FALSE(Turn{.last = 1}.GoesBefore(Turn{.priority = 1, .last = 9}));
  EXPECT_TRUE(Turn{.last = 1}.GoesBefore(Turn{.last = 2}));
  EXPECT_FALSE(Turn{.last = 2}.GoesBefore(Turn{.last = 2}));
}

}  // namespace
}  // namespace specwire
