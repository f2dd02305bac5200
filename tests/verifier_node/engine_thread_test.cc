// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/engine_thread.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"

// Without gRPC, so that a sanitizer sees all of it.

namespace specwire::verifier {
namespace {

// Collects what a sequence sends.
class CollectingSink final : public DecodeSink {
 public:
  bool Send(const Commit& commit, const StepReport& /*report*/) override {
    MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_);
    tokens_.insert(tokens_.end(), commit.tokens.begin(), commit.tokens.end());
    changed_.NotifyAll();
    return tokens_.size() < limit_;
  }
  bool SendPrompt(const LogprobRun& /*run*/) override { return true; }
  void Finish(absl::Status status) override {
    MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_) << "a second Finish";
    ended_ = true;
    status_ = std::move(status);
    changed_.NotifyAll();
  }

  // Send says from then on that the peer has gone.
  void LimitTo(size_t num_tokens) {
    MutexLock lock(&mutex_);
    limit_ = num_tokens;
  }
  absl::Status WaitForEnd() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(&mutex_);
    while (!ended_) {
      if (!changed_.WaitUntil(&mutex_, deadline)) {
        return absl::DeadlineExceededError("it does not end");
      }
    }
    return status_;
  }
  size_t num_tokens() {
    MutexLock lock(&mutex_);
    return tokens_.size();
  }
  std::vector<int32_t> tokens() {
    MutexLock lock(&mutex_);
    return tokens_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<int32_t> tokens_;
  size_t limit_ = 1 << 30;
  bool ended_ = false;
  absl::Status status_;
};

class EngineThreadTest : public testing::Test {
 protected:
  EngineThreadTest()
      : metrics_(&registry_),
        thread_(&engine_, EngineThreadOptions(), &clock_, &metrics_) {
    thread_.Start();
  }

  EngineThread::StreamId Open(const std::vector<int32_t>& prompt,
                              int max_tokens,
                              absl::Duration patience,
                              std::shared_ptr<CollectingSink> sink) {
    const EngineThread::StreamId stream = thread_.worker()->Open();
    OpenSequence open;
    open.params.tokens = prompt;
    open.params.prompt_length = static_cast<int>(prompt.size());
    open.params.max_tokens = max_tokens;
    open.params.decode_until = 1 << 30;
    open.params.patience = patience;
    open.sampling.temperature = 0;
    open.sink = std::move(sink);
    thread_.worker()->Post(stream, std::move(open), 100);
    return stream;
  }

  FakeEngine engine_;
  MetricsRegistry registry_;
  const SteadyClock clock_;
  VerifierMetrics metrics_;
  EngineThread thread_;
};

TEST_F(EngineThreadTest, ServesManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  constexpr int kTokens = 40;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kRounds; ++round) {
        const std::vector<int32_t> prompt(
            static_cast<size_t>(1 + random() % 200),
            static_cast<int32_t>(6 + random() % 50));
        const std::vector<int32_t> text = engine_.Continue(prompt, kTokens);
        const auto sink = std::make_shared<CollectingSink>();
        const auto stream = Open(prompt, kTokens, absl::ZeroDuration(), sink);
        // Right and wrong, in time and late.
        for (uint64_t k = random() % 20; k > 0; --k) {
          Proposal proposal;
          const auto start = static_cast<int32_t>(random() % 20);
          proposal.position = static_cast<int32_t>(prompt.size()) + start;
          proposal.based_on = static_cast<int32_t>(prompt.size());
          proposal.tokens.assign(text.begin() + start,
                                 text.begin() + start + 8);
          if (random() % 3 == 0) proposal.tokens[random() % 8] = 6;
          thread_.worker()->Post(stream, std::move(proposal), 100);
        }
        if (random() % 3 == 0) {
          thread_.worker()->Close(stream);
          continue;
        }
        EXPECT_TRUE(sink->WaitForEnd().ok());
        EXPECT_EQ(sink->tokens(), text);
        thread_.worker()->Close(stream);
      }
    });
  }
  // Metrics are read meanwhile.
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      EXPECT_FALSE(registry_.Expose().empty());
      EXPECT_GE(thread_.num_sequences(), thread_.num_waiting() > 0 ? 1 : 0);
      EXPECT_GE(thread_.worker()->working_for(), absl::ZeroDuration());
      EXPECT_LE(engine_.kv_blocks_used(), engine_.kv_blocks_total());
      absl::SleepFor(absl::Microseconds(200));
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  reader.join();
  thread_.Stop();
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
  EXPECT_EQ(thread_.num_sequences(), 0);
}

TEST_F(EngineThreadTest, EndsASequenceWhoseSinkTakesNoMore) {
  const auto sink = std::make_shared<CollectingSink>();
  sink->LimitTo(5);
  Open({10, 20}, 4000, absl::ZeroDuration(), sink);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (thread_.num_sequences() > 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(sink->num_tokens(), 5u);
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
}

TEST_F(EngineThreadTest, EndsWhatItHasNotSeenYetWhenItStops) {
  engine_.Pause();
  const auto running = std::make_shared<CollectingSink>();
  Open({10, 20}, 4000, absl::ZeroDuration(), running);
  ASSERT_TRUE(engine_.WaitUntilPaused());
  const auto unseen = std::make_shared<CollectingSink>();
  Open({10, 20}, 4000, absl::ZeroDuration(), unseen);
  std::thread stopper([this] { thread_.Stop(); });
  // Stop() has begun when nothing is taken any more.
  while (thread_.worker()->Post(1, PeerDone(), 0) !=
         StreamWorker<DecodeEvent>::PostResult::kStopped) {
    std::this_thread::yield();
  }
  engine_.Resume();
  stopper.join();
  EXPECT_EQ(running->WaitForEnd(), absl::UnavailableError("shutting down"));
  EXPECT_EQ(unseen->WaitForEnd(), absl::UnavailableError("shutting down"));
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
}

}  // namespace
}  // namespace specwire::verifier
