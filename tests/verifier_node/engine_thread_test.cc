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
#include "common/base/draining.h"
#include "common/base/mutex.h"
#include "common/drafting/suffix.h"
#include "common/model_drafting/model_drafter.h"
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
    commits_.push_back(commit);
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
  std::vector<Commit> commits() {
    MutexLock lock(&mutex_);
    return commits_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<int32_t> tokens_;
  std::vector<Commit> commits_;
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
      EXPECT_GE(thread_.progress(), 0);
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
  EXPECT_EQ(running->WaitForEnd(), DrainingError("shutting down"));
  EXPECT_EQ(unseen->WaitForEnd(), DrainingError("shutting down"));
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
}

// --- Local drafts ---

class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch(); }
};

class LocalDrafterTest : public testing::Test {
 protected:
  LocalDrafterTest() : metrics_(&registry_) {}

  // A thread with a drafter of its own, or without.
  std::unique_ptr<EngineThread> MakeThread(bool drafts) {
    auto thread = std::make_unique<EngineThread>(
        &engine_,
        EngineThreadOptions(),
        &clock_,
        &metrics_,
        drafts ? std::make_unique<LocalDrafter>(*SuffixDrafter::Create({}))
               : nullptr);
    thread->Start();
    return thread;
  }

  // One whose drafter has a model too: the target itself, which takes no time
  // by its clock, as the target does.
  std::unique_ptr<EngineThread> MakeThreadWithModel() {
    auto thread = std::make_unique<EngineThread>(
        &slow_engine_,
        EngineThreadOptions(),
        &clock_,
        &metrics_,
        std::make_unique<LocalDrafter>(
            *SuffixDrafter::Create({}),
            *ModelDrafter::Create(std::make_unique<FakeEngine>(),
                                  ModelDrafterOptions()),
            &stopped_));
    thread->Start();
    return thread;
  }

  // A request that waits for no proposal, so the planner chooses the rows.
  OpenSequence MakeOpen(const std::vector<int32_t>& prompt) {
    OpenSequence open;
    open.params.tokens = prompt;
    open.params.prompt_length = static_cast<int>(prompt.size());
    open.params.max_tokens = kTokens;
    open.params.decode_until = 1 << 30;
    open.params.local_run_length = 6;
    open.context.prompt_length = open.params.prompt_length;
    open.sampling.temperature = 0;
    open.sampling.seed = 5;
    for (int32_t id = 0; id <= FakeEngine::kLastSpecial; ++id) {
      open.sampling.logit_bias.push_back({id, -100});
    }
    return open;
  }
  // In lock-step each step verifies whatever was found, and hangs if nothing
  // was.
  static OpenSequence InLockStep(OpenSequence open) {
    open.params.patience = absl::InfiniteDuration();
    return open;
  }

  std::vector<Commit> Run(EngineThread* thread, OpenSequence open) {
    const auto sink = std::make_shared<CollectingSink>();
    open.sink = sink;
    const EngineThread::StreamId stream = thread->worker()->Open();
    thread->worker()->Post(stream, std::move(open), 100);
    EXPECT_TRUE(sink->WaitForEnd().ok());
    return sink->commits();
  }

  static std::vector<int32_t> Text(const std::vector<Commit>& commits) {
    std::vector<int32_t> text;
    for (const Commit& commit : commits) {
      text.insert(text.end(), commit.tokens.begin(), commit.tokens.end());
    }
    return text;
  }
  static int NumAccepted(const std::vector<Commit>& commits) {
    int count = 0;
    for (const Commit& commit : commits) {
      EXPECT_EQ(commit.local, commit.num_proposed > 0);
      count += commit.num_accepted;
    }
    return count;
  }

  static constexpr int kTokens = 60;
  const std::vector<int32_t> prompt_ = {10, 20, 30, 40};
  FakeEngine engine_;
  FakeEngine slow_engine_{{.pass_delay = absl::Milliseconds(1)}};
  MetricsRegistry registry_;
  const SteadyClock clock_;
  const StoppedClock stopped_;
  VerifierMetrics metrics_;
};

TEST_F(LocalDrafterTest, LooksUpWhatThePromptHolds) {
  const auto thread = MakeThread(true);
  EXPECT_EQ(thread->local_drafter(), "suffix");
  // A text, and then its beginning once more: it goes on as it did.
  const std::vector<int32_t> text = engine_.Continue(prompt_, kTokens + 4);
  std::vector<int32_t> prompt = prompt_;
  prompt.insert(prompt.end(), text.begin(), text.end());
  prompt.insert(prompt.end(), text.begin(), text.begin() + 4);
  const std::vector<Commit> commits =
      Run(thread.get(), InLockStep(MakeOpen(prompt)));
  EXPECT_EQ(Text(commits), engine_.Continue(prompt, kTokens));
  EXPECT_GT(NumAccepted(commits), kTokens / 2);
}

TEST_F(LocalDrafterTest, LooksUpWhatTheTenantWasToldBefore) {
  const auto thread = MakeThread(true);
  const std::vector<int32_t> text = engine_.Continue(prompt_, kTokens);
  for (const float temperature : {0.0f, 1.0f}) {
    OpenSequence open = MakeOpen(prompt_);
    open.cache_salt = temperature > 0 ? "sampled" : "greedy";
    open.sampling.temperature = temperature;
    const std::vector<Commit> first = Run(thread.get(), open);
    if (temperature == 0) {
      EXPECT_EQ(Text(first), text);
    }
    const std::vector<Commit> second = Run(thread.get(), InLockStep(open));
    EXPECT_EQ(Text(second), Text(first));
    EXPECT_GT(NumAccepted(second), kTokens / 2);
    // Another tenant's texts are not looked into.
    open.cache_salt += "-other";
    const std::vector<Commit> other = Run(thread.get(), open);
    EXPECT_EQ(Text(other), Text(first));
    EXPECT_LT(NumAccepted(other), NumAccepted(second));
  }
}

TEST_F(LocalDrafterTest, TellsWhetherTheNextStepWaits) {
  const auto thread = MakeThread(true);
  OpenSequence open = MakeOpen(prompt_);
  Run(thread.get(), open);
  open.params.max_tokens = 30;
  open.params.local_enough = 0.25f;
  const std::vector<Commit> commits = Run(thread.get(), InLockStep(open));
  EXPECT_EQ(Text(commits), engine_.Continue(prompt_, 30));
  for (size_t i = 0; i + 1 < commits.size(); ++i) {
    EXPECT_EQ(commits[i].local_next, commits[i + 1].local);
  }
  EXPECT_FALSE(commits.back().local_next);
}

TEST_F(LocalDrafterTest, AModelDraftsWhereTheLookupFindsNothing) {
  const auto thread = MakeThreadWithModel();
  EXPECT_EQ(thread->local_drafter(), "hybrid");
  for (const float temperature : {0.0f, 1.0f}) {
    OpenSequence open = MakeOpen(prompt_);
    open.cache_salt = temperature > 0 ? "sampled" : "greedy";
    open.sampling.temperature = temperature;
    open.params.local_run_length = 0;
    const std::vector<Commit> plain = Run(thread.get(), open);
    EXPECT_EQ(plain.size(), kTokens);
    open.cache_salt += "-drafted";
    open.params.local_run_length = 6;
    const std::vector<Commit> commits = Run(thread.get(), open);
    EXPECT_EQ(Text(commits), Text(plain));
    // It is always right, and learns that bit by bit.
    EXPECT_GT(NumAccepted(commits), kTokens / 10);
  }
}

// A step whose draft is yet to be made does not wait for a proposal, and the
// commit before it has told so.
TEST_F(LocalDrafterTest, WhatAModelIsToDraftEndsTheWait) {
  const auto thread = MakeThreadWithModel();
  OpenSequence open = MakeOpen(prompt_);
  open.cache_salt = "first";
  Run(thread.get(), open);
  open.cache_salt = "second";
  open.params.max_tokens = 30;
  open.params.patience = absl::Milliseconds(20);
  open.params.local_enough = 0.25f;
  const std::vector<Commit> commits = Run(thread.get(), open);
  EXPECT_EQ(Text(commits), engine_.Continue(prompt_, 30));
  int num_told = 0;
  for (const Commit& commit : commits) num_told += commit.local_next ? 1 : 0;
  EXPECT_GT(num_told, 0);
  EXPECT_FALSE(commits.back().local_next);
}

TEST_F(LocalDrafterTest, NothingIsLookedUpUnlessItIsAskedFor) {
  const auto drafting = MakeThread(true);
  OpenSequence open = MakeOpen(prompt_);
  Run(drafting.get(), open);
  open.params.local_run_length = 0;
  EXPECT_EQ(Run(drafting.get(), open).size(), kTokens);
  drafting->Stop();
  // Nor by a thread without a drafter.
  const auto plain = MakeThread(false);
  EXPECT_EQ(plain->local_drafter(), "");
  open.params.local_run_length = 6;
  Run(plain.get(), open);
  const std::vector<Commit> commits = Run(plain.get(), open);
  EXPECT_EQ(commits.size(), kTokens);
  EXPECT_EQ(Text(commits), engine_.Continue(prompt_, kTokens));
}

TEST_F(LocalDrafterTest, TheRatioRuleVerifiesAllThatIsLookedUp) {
  const auto thread = MakeThread(true);
  const std::vector<int32_t> text = engine_.Continue(prompt_, kTokens + 4);
  std::vector<int32_t> prompt = prompt_;
  prompt.insert(prompt.end(), text.begin(), text.end());
  prompt.insert(prompt.end(), text.begin(), text.begin() + 4);
  OpenSequence open = MakeOpen(prompt);
  open.params.rule = AcceptanceRule::kRatio;
  const std::vector<Commit> commits = Run(thread.get(), open);
  EXPECT_EQ(Text(commits), engine_.Continue(prompt, kTokens));
  // The first step included, which is part of the prompt's pass.
  EXPECT_EQ(commits.front().num_proposed, 6);
  EXPECT_GT(NumAccepted(commits), kTokens / 2);
}

}  // namespace
}  // namespace specwire::verifier
