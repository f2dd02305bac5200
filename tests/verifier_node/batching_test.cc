// SPDX-License-Identifier: Apache-2.0

// Many sequences on one engine thread, over a fake engine and without gRPC, so
// that a sanitizer sees all of it.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/retry_delay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_engine.h"
#include "tests/verifier_node/request_mix.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kWait = absl::Seconds(30);

class RecordingSink final : public DecodeSink {
 public:
  // Counts those that end in `num_ended`.
  explicit RecordingSink(std::atomic<int>* num_ended) : num_ended_(num_ended) {}

  bool Send(const Commit& commit, const StepReport& /*report*/) override {
    MutexLock lock(&mutex_);
    tokens_.insert(tokens_.end(), commit.tokens.begin(), commit.tokens.end());
    proposed_ += commit.num_proposed;
    return true;
  }
  bool SendPrompt(const LogprobRun& /*run*/) override { return true; }
  void Finish(absl::Status status) override {
    MutexLock lock(&mutex_);
    ended_ = true;
    status_ = std::move(status);
    rank_ = ++*num_ended_;
  }

  // It was the first to end, the second, ...
  int rank() {
    MutexLock lock(&mutex_);
    return rank_;
  }
  bool ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }
  std::vector<int32_t> tokens() {
    MutexLock lock(&mutex_);
    return tokens_;
  }
  size_t num_tokens() { return tokens().size(); }
  int64_t proposed() {
    MutexLock lock(&mutex_);
    return proposed_;
  }

 private:
  Mutex mutex_;
  std::vector<int32_t> tokens_;
  int64_t proposed_ = 0;
  std::atomic<int>* const num_ended_;
  bool ended_ = false;
  int rank_ = 0;
  absl::Status status_;
};

// An engine thread over a fake engine.
class Bench {
 public:
  explicit Bench(FakeEngineOptions engine, EngineThreadOptions options = {})
      : engine_(engine), thread_(&engine_, options, &clock_, &metrics_) {
    thread_.Start();
  }

  struct Stream {
    EngineThread::StreamId id = 0;
    std::shared_ptr<RecordingSink> sink;
    std::vector<int32_t> prompt;
    int max_tokens = 0;
  };

  static OpenSequence Greedy(const std::vector<int32_t>& prompt,
                             int max_tokens) {
    OpenSequence open;
    open.params.tokens = prompt;
    open.params.prompt_length = static_cast<int>(prompt.size());
    open.params.max_tokens = max_tokens;
    open.params.decode_until = 1 << 30;
    open.params.source = 1;
    open.sampling.temperature = 0;
    return open;
  }

  Stream Open(OpenSequence open) {
    Stream stream;
    stream.id = thread_.worker()->Open();
    stream.sink = std::make_shared<RecordingSink>(&num_ended_);
    stream.prompt = open.params.tokens;
    stream.max_tokens = open.params.max_tokens;
    open.sink = stream.sink;
    thread_.worker()->Post(stream.id, std::move(open), 100);
    return stream;
  }

  // Whether it ended well and with its own text.
  void ExpectDone(const Stream& stream) {
    ASSERT_TRUE(Eventually([&] { return stream.sink->ended(); }));
    EXPECT_TRUE(stream.sink->status().ok()) << stream.sink->status();
    EXPECT_EQ(stream.sink->tokens(),
              engine_.Continue(stream.prompt, stream.max_tokens));
  }

  std::atomic<int> num_ended_ = 0;
  FakeEngine engine_;
  MetricsRegistry registry_;
  const SteadyClock clock_;
  VerifierMetrics metrics_{&registry_};
  EngineThread thread_;
};

std::vector<int32_t> Prompt(int length, int first = 0) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) {
    prompt.push_back(6 + (first + i * 7) % 58);
  }
  return prompt;
}

TEST(BatchingTest, TextsAreThoseOfPlainDecodingWhateverHappens) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    // Room for three or four of 64, and blocks of every size.
    FakeEngine engine({.block_size = seed % 2 == 0 ? 4 : 16,
                       .num_blocks = seed % 2 == 0 ? 150 : 40,
                       .pass_delay = absl::Microseconds(30),
                       .prefix_cache = seed % 3 == 0});
    CheckMix({.first_token = 6}, {.prefill_rows = 40}, seed, 1, &engine);
  }
}

TEST(BatchingTest, TextsAreTheSameWithFewPlacesAndALongQueue) {
  for (const uint32_t seed : {11u, 12u, 13u}) {
    FakeEngine engine({.num_blocks = 60});
    CheckMix({.num_requests = 90, .max_tokens = 30, .first_token = 6},
             {.max_num_sequences = 3, .prefill_rows = 17},
             seed,
             0,
             &engine);
  }
}

TEST(BatchingTest, OneThatWaitsHoldsUpNobody) {
  Bench bench({});
  OpenSequence open = Bench::Greedy(Prompt(20), 50);
  open.params.patience = absl::InfiniteDuration();
  const Bench::Stream waiting = bench.Open(std::move(open));
  const Bench::Stream other = bench.Open(Bench::Greedy(Prompt(30), 200));
  bench.ExpectDone(other);
  EXPECT_EQ(waiting.sink->num_tokens(), 0u);
  VerifyTune tune;
  tune.patience = absl::ZeroDuration();
  bench.thread_.worker()->Post(waiting.id, tune, 10);
  bench.ExpectDone(waiting);
}

TEST(BatchingTest, OneThatWaitsForAWhileJoinsAPass) {
  Bench bench({});
  OpenSequence open = Bench::Greedy(Prompt(20), 50);
  open.params.patience = absl::Hours(1);
  const Bench::Stream patient = bench.Open(std::move(open));
  // The prompt's pass gives it a token; then it waits.
  ASSERT_TRUE(Eventually([&] { return patient.sink->num_tokens() == 1; }));
  absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(patient.sink->num_tokens(), 1u);
  const Bench::Stream other = bench.Open(Bench::Greedy(Prompt(30), 30));
  bench.ExpectDone(other);
  // It had a token in each of the other's passes.
  const std::vector<int32_t> tokens = patient.sink->tokens();
  EXPECT_GE(tokens.size(), 30u);
  EXPECT_LE(static_cast<int64_t>(tokens.size()), bench.engine_.num_passes());
  EXPECT_EQ(
      tokens,
      bench.engine_.Continue(Prompt(20), static_cast<int>(tokens.size())));
}

TEST(BatchingTest, NobodyWaitsForADrafterThatIsAlwaysWrong) {
  Bench bench({});
  const std::vector<int32_t> prompt = Prompt(10);
  const std::vector<int32_t> text = bench.engine_.Continue(prompt, 60);
  OpenSequence open = Bench::Greedy(prompt, 60);
  open.params.patience = absl::Hours(1);
  const Bench::Stream stream = bench.Open(std::move(open));
  // After some wrong tokens an hour's patience is not spent any more.
  for (int i = 0; i < 60 && !stream.sink->ended(); ++i) {
    const auto done = static_cast<int>(stream.sink->num_tokens());
    Proposal proposal;
    proposal.source = 1;
    proposal.position = 10 + done;
    proposal.based_on = 10 + done;
    const size_t place = std::min<size_t>(static_cast<size_t>(done), 59);
    proposal.tokens = {text[place] == 6 ? 7 : 6};
    bench.thread_.worker()->Post(stream.id, std::move(proposal), 10);
    absl::SleepFor(absl::Milliseconds(2));
  }
  bench.ExpectDone(stream);
  EXPECT_LT(stream.sink->proposed(), 30);
}

TEST(BatchingTest, AFailedPassEndsOnlyTheGuilty) {
  for (const int32_t token : {FakeEngine::kFailingToken,
                              FakeEngine::kThrowingToken,
                              FakeEngine::kNanToken}) {
    Bench bench({.pass_delay = absl::Microseconds(100)});
    std::vector<Bench::Stream> innocent;
    for (int i = 0; i < 12; ++i) {
      innocent.push_back(bench.Open(Bench::Greedy(Prompt(5 + i, i), 100)));
    }
    ASSERT_TRUE(
        Eventually([&] { return innocent.back().sink->num_tokens() > 5; }));
    std::vector<Bench::Stream> guilty;
    for (int i = 0; i < 3; ++i) {
      std::vector<int32_t> prompt = Prompt(40, i);
      prompt.back() = token;
      guilty.push_back(bench.Open(Bench::Greedy(prompt, 10)));
    }
    for (const Bench::Stream& stream : guilty) {
      ASSERT_TRUE(Eventually([&] { return stream.sink->ended(); }));
      EXPECT_EQ(stream.sink->status().code(), absl::StatusCode::kInternal);
      EXPECT_EQ(stream.sink->num_tokens(), 0u);
    }
    for (const Bench::Stream& stream : innocent) bench.ExpectDone(stream);
    EXPECT_EQ(bench.engine_.kv_blocks_used(), 0);
  }
}

TEST(BatchingTest, WhatACancelledOneHoldsIsFreeBeforeTheNextPass) {
  Bench bench({.num_blocks = 64});
  bench.engine_.Pause();
  const Bench::Stream gone = bench.Open(Bench::Greedy(Prompt(400), 100));
  ASSERT_TRUE(bench.engine_.WaitUntilPaused());
  bench.thread_.worker()->Close(gone.id);
  const Bench::Stream next = bench.Open(Bench::Greedy(Prompt(900), 50));
  bench.engine_.Resume();
  // Both together would not fit.
  bench.ExpectDone(next);
  EXPECT_EQ(gone.sink->num_tokens(), 0u);
  const std::vector<std::pair<int, int>> runs = bench.engine_.runs();
  EXPECT_EQ(std::count_if(runs.begin(),
                          runs.end(),
                          [](const auto& run) { return run.first == 0; }),
            1);
}

TEST(BatchingTest, RefusesAtOnceWhenTheQueueIsFull) {
  Bench bench({}, {.max_num_sequences = 2, .max_queued_sequences = 3});
  EXPECT_TRUE(bench.thread_.CheckAdmission(0, absl::InfiniteFuture(), 1).ok());
  OpenSequence open = Bench::Greedy(Prompt(20), 50);
  open.params.patience = absl::InfiniteDuration();
  std::vector<Bench::Stream> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(bench.Open(open));
  ASSERT_TRUE(Eventually([&] { return bench.thread_.num_waiting() == 3; }));
  const absl::Status full =
      bench.thread_.CheckAdmission(7, absl::InfiniteFuture(), 1);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("max_queued_sequences: 3"));
  EXPECT_TRUE(RetryDelay(full).has_value());
  // One that slips in is refused by the thread.
  const Bench::Stream late = bench.Open(open);
  ASSERT_TRUE(Eventually([&] { return late.sink->ended(); }));
  EXPECT_EQ(late.sink->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(late.sink->status()).has_value());
  EXPECT_EQ(bench.thread_.num_sequences(), 5);
  bench.thread_.worker()->Close(streams[0].id);
  ASSERT_TRUE(Eventually([&] { return bench.thread_.num_waiting() == 2; }));
  EXPECT_TRUE(bench.thread_.CheckAdmission(7, absl::InfiniteFuture(), 1).ok());
}

TEST(BatchingTest, RefusesWhatWouldWaitBeyondItsDeadline) {
  Bench bench({.pass_delay = absl::Milliseconds(1)}, {.max_num_sequences = 1});
  std::vector<Bench::Stream> streams;
  // A sequence leaves every 30 ms or more.
  for (int i = 0; i < 8; ++i) {
    streams.push_back(bench.Open(Bench::Greedy(Prompt(4), 30)));
  }
  bench.ExpectDone(streams[0]);
  bench.ExpectDone(streams[1]);
  OpenSequence open = Bench::Greedy(Prompt(4), 30);
  open.deadline = bench.clock_.Now() + absl::Milliseconds(20);
  const absl::Status refused =
      bench.thread_.CheckAdmission(0, open.deadline, 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("deadline"));
  EXPECT_TRUE(RetryDelay(refused).has_value());
  // The same, should it come all the same; an hour is enough.
  const Bench::Stream late = bench.Open(open);
  open.deadline = bench.clock_.Now() + absl::Hours(1);
  streams.push_back(bench.Open(open));
  ASSERT_TRUE(Eventually([&] { return late.sink->ended(); }));
  EXPECT_EQ(late.sink->status().code(), absl::StatusCode::kResourceExhausted);
  for (const Bench::Stream& stream : streams) bench.ExpectDone(stream);
}

// One of the queue below: whose it is, and how long its prompt is.
struct Queued {
  std::string user;
  std::string salt;
  int length = 0;
};

// Prompt lengths in the order in which a verifier with one place takes them.
std::vector<int> OrderOf(const std::vector<Queued>& queue) {
  Bench bench({}, {.max_num_sequences = 1});
  bench.engine_.Pause();
  // Sequence 0 holds the place while the others come.
  std::vector<Bench::Stream> streams = {
      bench.Open(Bench::Greedy(Prompt(5), 5))};
  EXPECT_TRUE(bench.engine_.WaitUntilPaused());
  for (const Queued& one : queue) {
    OpenSequence open = Bench::Greedy(Prompt(one.length), 40);
    open.user = one.user;
    open.cache_salt = one.salt;
    streams.push_back(bench.Open(std::move(open)));
  }
  const auto num_streams = static_cast<int>(streams.size());
  EXPECT_TRUE(
      Eventually([&] { return bench.thread_.num_sequences() == num_streams; }));
  bench.engine_.Resume();
  for (const Bench::Stream& stream : streams) bench.ExpectDone(stream);
  std::vector<int> order;
  for (const auto& [sequence, rows] : bench.engine_.runs()) {
    if (rows >= 30) order.push_back(rows);
  }
  return order;
}

TEST(BatchingTest, TenantsTakeTurnsInTheQueue) {
  // One tenant comes with six, then another with two.
  std::vector<Queued> queue(6, {.user = "", .salt = "many", .length = 30});
  queue.resize(8, {.user = "", .salt = "few", .length = 31});
  EXPECT_EQ(OrderOf(queue), (std::vector<int>{30, 31, 30, 31, 30, 30, 30, 30}));
}

TEST(BatchingTest, AUserWithManyTenantsTakesTurnsWithOneWhoHasNone) {
  std::vector<Queued> queue;
  for (const char* salt : {"a", "b", "c", "d", "e", "f"}) {
    queue.push_back({.user = "anna", .salt = salt, .length = 30});
  }
  queue.resize(8, {.user = "bob", .salt = "", .length = 31});
  EXPECT_EQ(OrderOf(queue), (std::vector<int>{30, 31, 30, 31, 30, 30, 30, 30}));
}

TEST(BatchingTest, ThePriorityOfAPromptDecidesWhoIsComputedFirst) {
  Bench bench({}, {.prefill_rows = 50});
  bench.engine_.Pause();
  const Bench::Stream first = bench.Open(Bench::Greedy(Prompt(5), 1));
  ASSERT_TRUE(bench.engine_.WaitUntilPaused());
  const Bench::Stream low = bench.Open(Bench::Greedy(Prompt(200), 1));
  OpenSequence open = Bench::Greedy(Prompt(201), 1);
  open.priority = 1;
  const Bench::Stream high = bench.Open(std::move(open));
  ASSERT_TRUE(Eventually([&] { return bench.thread_.num_sequences() == 3; }));
  bench.engine_.Resume();
  for (const auto& stream : {first, low, high}) bench.ExpectDone(stream);
  // Sequence numbers follow the order of arrival, rows the priority.
  const std::vector<std::pair<int, int>> runs = bench.engine_.runs();
  int computed = 0;
  for (const auto& [sequence, rows] : runs) {
    if (sequence == 2) computed += rows;
    if (sequence == 1) {
      EXPECT_EQ(computed, 201);
    }
  }
}

TEST(BatchingTest, TheOldestOfTheHighestPriorityIsNeverPreempted) {
  // Six that grow where two fit.
  Bench bench({.num_blocks = 16, .pass_delay = absl::Microseconds(50)});
  bench.engine_.Pause();
  std::vector<Bench::Stream> streams;
  for (int i = 0; i < 6; ++i) {
    OpenSequence open = Bench::Greedy(Prompt(20, i), i == 2 ? 90 : 100);
    open.priority = i == 2 ? 1 : 0;
    streams.push_back(bench.Open(std::move(open)));
  }
  bench.engine_.Resume();
  for (const Bench::Stream& stream : streams) bench.ExpectDone(stream);
  EXPECT_EQ(bench.engine_.kv_blocks_used(), 0);
  // Nobody took its blocks, so it was done first.
  EXPECT_EQ(streams[2].sink->rank(), 1);
  EXPECT_THAT(bench.registry_.Expose(),
              Not(HasSubstr("specwire_num_preemptions_total 0")));
}

TEST(BatchingTest, ManyMoreThanFitIntoAPassAllAdvance) {
  Bench bench({.num_blocks = 4096}, {.max_num_sequences = 700});
  std::vector<Bench::Stream> streams;
  for (int i = 0; i < 700; ++i) {
    streams.push_back(bench.Open(Bench::Greedy(Prompt(2, i), 20)));
  }
  for (const Bench::Stream& stream : streams) bench.ExpectDone(stream);
}

}  // namespace
}  // namespace specwire::verifier
