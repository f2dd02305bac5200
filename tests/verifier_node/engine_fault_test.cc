// SPDX-License-Identifier: Apache-2.0

// Engines that break, and sequences that wait for what never comes.

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_engine.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

class EndSink final : public DecodeSink {
 public:
  bool Send(const Commit& commit, const StepReport& /*report*/) override {
    num_tokens_ += static_cast<int>(commit.tokens.size());
    return true;
  }
  bool SendPrompt(const LogprobRun& /*run*/) override { return true; }
  void Finish(absl::Status status) override {
    MutexLock lock(&mutex_);
    status_ = std::move(status);
    ended_ = true;
  }

  int num_tokens() const { return num_tokens_; }
  bool ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  std::atomic<int> num_tokens_{0};
  Mutex mutex_;
  bool ended_ = false;
  absl::Status status_;
};

class EngineFaultTest : public testing::Test {
 protected:
  EngineFaultTest()
      : metrics_(&registry_), thread_(&engine_, Options(), &clock_, &metrics_) {
    thread_.Start();
  }
  ~EngineFaultTest() override { thread_.Stop(); }

  EngineThreadOptions Options() {
    EngineThreadOptions options;
    options.on_fatal = [this](const absl::Status& reason) {
      EXPECT_TRUE(absl::StrContains(reason.message(), "broken for test"));
      ++num_fatal_;
    };
    return options;
  }

  EngineThread::StreamId Open(std::vector<int32_t> prompt,
                              std::shared_ptr<EndSink> sink,
                              absl::Duration patience = absl::ZeroDuration()) {
    const EngineThread::StreamId stream = thread_.worker()->Open();
    OpenSequence open;
    open.params.prompt_length = static_cast<int>(prompt.size());
    open.params.tokens = std::move(prompt);
    open.params.max_tokens = 20;
    open.params.decode_until = 1 << 30;
    open.params.patience = patience;
    open.sampling.temperature = 0;
    open.max_silence = absl::Milliseconds(100);
    open.sink = std::move(sink);
    thread_.worker()->Post(stream, std::move(open), 100);
    return stream;
  }
  absl::Status Run(std::vector<int32_t> prompt) {
    const auto sink = std::make_shared<EndSink>();
    Open(std::move(prompt), sink);
    EXPECT_TRUE(Eventually([&] { return sink->ended(); }));
    return sink->status();
  }

  std::atomic<int> num_fatal_{0};
  FakeEngine engine_;
  MetricsRegistry registry_;
  const SteadyClock clock_;
  VerifierMetrics metrics_;
  EngineThread thread_;
};

TEST_F(EngineFaultTest, BrokenEngineIsFoundOutThoughOnlyOneComes) {
  engine_.FailNext(1 << 20);
  EXPECT_EQ(Run({10, 20}).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Eventually([&] { return num_fatal_ > 0; }));
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
}

TEST_F(EngineFaultTest, FaultThatPassesIsForgiven) {
  // The sequence's pass and two checks.
  engine_.FailNext(3);
  EXPECT_EQ(Run({10, 20}).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Eventually([&] { return engine_.num_passes() > 0; }));
  EXPECT_TRUE(Run({10, 20}).ok());
  EXPECT_EQ(num_fatal_, 0);
  // And the count begins anew.
  engine_.FailNext(3);
  EXPECT_EQ(Run({10, 20}).code(), absl::StatusCode::kInternal);
  const int64_t num_passes = engine_.num_passes();
  EXPECT_TRUE(Eventually([&] { return engine_.num_passes() > num_passes; }));
  EXPECT_TRUE(Run({10, 20}).ok());
  EXPECT_EQ(num_fatal_, 0);
}

TEST_F(EngineFaultTest, PoisonDoesNotBlameTheEngine) {
  for (int i = 0; i < 8; ++i) {
    for (const int32_t token : {FakeEngine::kFailingToken,
                                FakeEngine::kThrowingToken,
                                FakeEngine::kNanToken}) {
      EXPECT_EQ(Run({10, token}).code(), absl::StatusCode::kInternal);
    }
  }
  EXPECT_TRUE(Run({10, 20}).ok());
  EXPECT_EQ(num_fatal_, 0);
  EXPECT_EQ(engine_.kv_blocks_used(), 0);
}

// What the coordinator sends now and then finds out who waits in vain.
TEST_F(EngineFaultTest, StepThatWaitsForNothingEnds) {
  const auto waiting = std::make_shared<EndSink>();
  const EngineThread::StreamId stream =
      Open({10, 20}, waiting, absl::InfiniteDuration());
  VerifyTune tune;
  tune.decode_until = 1 << 30;
  EXPECT_TRUE(Eventually([&] {
    thread_.worker()->Post(stream, tune, 10);
    return waiting->ended();
  }));
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(waiting->num_tokens(), 0);
  EXPECT_TRUE(Eventually([&] { return engine_.kv_blocks_used() == 0; }));
}

}  // namespace
}  // namespace specwire::verifier
