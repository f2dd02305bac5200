// SPDX-License-Identifier: Apache-2.0
#include "draft_node/drafter_thread.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/drafting/random.h"
#include "common/metrics/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/draft_node/scripted_drafter.h"
#include "tests/testing/eventually.h"

namespace specwire::draft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DrafterThreadTest : public testing::Test {
 protected:
  struct Stream {
    DrafterThread::StreamId id = 0;
    std::shared_ptr<RecordingSink> sink;

    bool HasProposals(size_t count) const {
      return Eventually([&] { return sink->num_proposals() >= count; });
    }
    absl::Status End() const {
      EXPECT_TRUE(Eventually([&] { return sink->status().has_value(); }));
      return sink->status().value_or(absl::UnknownError("goes on"));
    }
  };
  struct Settings {
    int run_length = 8;
    int window = 8;
    int priority = 0;
  };

  void Start(int max_batch, int calls_per_run = 1) {
    drafter_ = std::make_unique<ScriptedDrafter>(max_batch, calls_per_run);
    thread_ = std::make_unique<DrafterThread>(
        drafter_.get(), DrafterThreadOptions(), &registry_);
    thread_->Start();
  }
  // The drafter waits in its first call, which is for this stream.
  Stream StartPaused(int max_batch,
                     const Settings& settings,
                     int calls_per_run = 1) {
    Start(max_batch, calls_per_run);
    drafter_->Pause();
    const Stream stream = Open({1, 10}, settings);
    EXPECT_TRUE(drafter_->WaitUntilPaused());
    return stream;
  }

  Stream Open(std::vector<int32_t> tokens, const Settings& settings) {
    Stream stream = {.id = thread_->worker()->Open(),
                     .sink = std::make_shared<RecordingSink>()};
    Post(stream,
         OpenDraft{.tokens = std::move(tokens),
                   .prompt_length = 1,
                   .run_length = settings.run_length,
                   .window = settings.window,
                   .params = {},
                   .priority = settings.priority,
                   .sink = stream.sink});
    return stream;
  }
  void Post(const Stream& stream, DraftEvent event) {
    thread_->worker()->Post(stream.id, std::move(event), 1);
  }

  // Which sequences each call was for.
  std::vector<std::vector<int32_t>> Calls() const {
    std::vector<std::vector<int32_t>> names;
    for (const auto& call : drafter_->calls()) {
      names.emplace_back();
      for (const auto& task : call) names.back().push_back(task.sequence);
    }
    return names;
  }

  MetricsRegistry registry_;
  std::unique_ptr<ScriptedDrafter> drafter_;
  std::unique_ptr<DrafterThread> thread_;
};

TEST_F(DrafterThreadTest, ATurnIsForAsManyAsTheDrafterTakesAndIsFair) {
  const Settings long_window = {.run_length = 8, .window = 256};
  std::vector<Stream> streams = {StartPaused(4, long_window)};
  for (int32_t name = 2; name <= 6; ++name) {
    streams.push_back(Open({name, 10}, long_window));
  }
  drafter_->Resume();
  for (const Stream& stream : streams) ASSERT_TRUE(stream.HasProposals(32));

  const auto calls = Calls();
  EXPECT_THAT(calls[0], ElementsAre(1));
  std::map<int32_t, int> turns;
  for (size_t i = 1; i < calls.size(); ++i) {
    EXPECT_LE(calls[i].size(), 4u);
    EXPECT_EQ(std::set<int32_t>(calls[i].begin(), calls[i].end()).size(),
              calls[i].size());
    for (const int32_t name : calls[i]) ++turns[name];
    // Until the first of them has no more to do.
    if (i > 40) continue;
    EXPECT_EQ(calls[i].size(), 4u) << i;
    const auto [least, most] = std::minmax_element(
        turns.begin(), turns.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    if (turns.size() == 6) {
      EXPECT_LE(most->second - least->second, 1) << i;
    }
  }
}

TEST_F(DrafterThreadTest, HigherPrioritiesGoFirst) {
  const Stream first = StartPaused(2, {});
  std::vector<Stream> streams;
  for (const int32_t name : {2, 3}) streams.push_back(Open({name, 10}, {}));
  for (const int32_t name : {4, 5, 6}) {
    streams.push_back(Open({name, 10}, {.priority = 7}));
  }
  drafter_->Resume();
  for (const Stream& stream : streams) ASSERT_TRUE(stream.HasProposals(1));
  EXPECT_THAT(Calls(),
              ElementsAre(ElementsAre(1),
                          ElementsAre(4, 5),
                          ElementsAre(6, 2),
                          ElementsAre(3)));
}

TEST_F(DrafterThreadTest, NewStreamsQueueUpBehindThoseWhoWait) {
  const Stream first = StartPaused(1, {.run_length = 1, .window = 3});
  const Stream second = Open({2, 10}, {.run_length = 1, .window = 2});
  const Stream third = Open({3, 10}, {.run_length = 1, .window = 1});
  drafter_->Resume();
  ASSERT_TRUE(first.HasProposals(3));
  ASSERT_TRUE(second.HasProposals(2));
  ASSERT_TRUE(third.HasProposals(1));
  EXPECT_THAT(Calls(),
              ElementsAre(ElementsAre(1),
                          ElementsAre(1),
                          ElementsAre(2),
                          ElementsAre(3),
                          ElementsAre(1),
                          ElementsAre(2)));
}

TEST_F(DrafterThreadTest, WhatFailsInOneTaskEndsThatOneOnly) {
  const Stream first = StartPaused(8, {});
  const Stream good = Open({2, 20}, {});
  const Stream failing = Open({3, ScriptedDrafter::kFailing}, {});
  const Stream throwing = Open({4, ScriptedDrafter::kThrowing}, {});
  const Stream talkative = Open({5, ScriptedDrafter::kTalkative}, {});
  const Stream last = Open({6, 60}, {});
  drafter_->Resume();
  for (const Stream& stream : {first, good, last}) {
    EXPECT_TRUE(stream.HasProposals(1));
    EXPECT_EQ(stream.sink->proposals()[0].tokens.size(), 8u);
    EXPECT_FALSE(stream.sink->status().has_value());
  }
  const std::pair<const Stream*, std::string> ended[] = {
      {&failing, "failed"}, {&throwing, "thrown"}, {&talkative, "at most 8"}};
  for (const auto& [stream, message] : ended) {
    const absl::Status status = stream->End();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(stream->sink->num_proposals(), 0u);
  }
  EXPECT_EQ(drafter_->num_alive(), 3);
  // The call that threw was for all; then each was tried alone.
  const auto calls = Calls();
  EXPECT_THAT(calls[1], ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(calls.size(), 7u);
}

TEST_F(DrafterThreadTest, ARunOfSeveralCallsHoldsUpNobody) {
  const Stream first = StartPaused(4, {}, /*calls_per_run=*/3);
  const Stream second = Open({2, 20}, {});
  drafter_->Resume();
  ASSERT_TRUE(first.HasProposals(1));
  ASSERT_TRUE(second.HasProposals(1));
  EXPECT_THAT(Calls(),
              ElementsAre(ElementsAre(1),
                          ElementsAre(1, 2),
                          ElementsAre(1, 2),
                          ElementsAre(2)));
  thread_->Stop();
  const std::string metrics = registry_.Expose();
  EXPECT_THAT(metrics, HasSubstr("specwire_draft_batch_size_count 4"));
  EXPECT_THAT(metrics, HasSubstr("specwire_draft_batch_size_sum 6"));
  EXPECT_THAT(metrics,
              HasSubstr("specwire_engine_rows_total{stage=\"draft\"} 12"));
}

TEST_F(DrafterThreadTest, TakesInCommitsBetweenTheCallsOfARun) {
  const Stream stream = StartPaused(4, {}, /*calls_per_run=*/2);
  Post(stream, CommittedTokens{.position = 2, .tokens = {77}});
  drafter_->Resume();
  ASSERT_TRUE(stream.HasProposals(1));
  const auto calls = drafter_->calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_THAT(calls[0][0].path, ElementsAre(1, 10));
  EXPECT_THAT(calls[1][0].path, ElementsAre(1, 10, 77));
  const auto proposals = stream.sink->proposals();
  EXPECT_EQ(proposals[0].position, 3);
  EXPECT_EQ(proposals[0].based_on, 3);
  EXPECT_EQ(proposals[0].tokens[0], 78);
}

TEST_F(DrafterThreadTest, WhatAGoneStreamHeldIsFreeBeforeTheNextCall) {
  const Stream first = StartPaused(4, {}, /*calls_per_run=*/3);
  const Stream second = Open({2, 20}, {});
  const Stream third = Open({3, 30}, {});
  thread_->worker()->Close(first.id);
  thread_->worker()->Close(third.id);
  drafter_->Resume();
  ASSERT_TRUE(second.HasProposals(1));
  EXPECT_EQ(first.sink->num_proposals(), 0u);
  const auto calls = drafter_->calls();
  for (size_t i = 1; i < calls.size(); ++i) {
    ASSERT_EQ(calls[i].size(), 1u);
    EXPECT_EQ(calls[i][0].sequence, 2);
    EXPECT_EQ(calls[i][0].num_alive, 1);
  }
}

TEST_F(DrafterThreadTest, AStreamThatTakesNothingIsDroppedAlone) {
  const Stream first = StartPaused(4, {.run_length = 2, .window = 4});
  const Stream second = Open({2, 20}, {.run_length = 2, .window = 4});
  first.sink->Close();
  drafter_->Resume();
  ASSERT_TRUE(second.HasProposals(2));
  EXPECT_EQ(first.sink->num_proposals(), 1u);
  EXPECT_TRUE(Eventually([&] { return thread_->num_sequences() == 1; }));
}

TEST_F(DrafterThreadTest, LooksUpOneByOne) {
  EXPECT_EQ(RandomDrafter().max_batch(), 1);
}

// Whatever comes, in whatever order: nobody is put into a call twice, none is
// too large, proposals are what follows from their paths, and at the end all is
// free.
TEST_F(DrafterThreadTest, KeepsItsPromisesUnderRandomEvents) {
  constexpr unsigned kSeed = 20240702;
  std::mt19937 random(kSeed);
  Start(/*max_batch=*/5, /*calls_per_run=*/3);
  struct Open {
    Stream stream;
    int committed = 2;
  };
  std::map<int32_t, Open> open;
  for (int32_t name = 1; name <= 3000; ++name) {
    if (open.size() < 40) {
      open[name] = {.stream = this->Open(
                        {name, 10},
                        {.run_length = 1 + static_cast<int>(random() % 4),
                         .window = 4 + static_cast<int>(random() % 8),
                         .priority = static_cast<int>(random() % 3)})};
    }
    auto it = open.begin();
    std::advance(it, random() % open.size());
    auto& [stream, committed] = it->second;
    switch (random() % 5) {
      case 0:
        thread_->worker()->Close(stream.id);
        open.erase(it);
        break;
      case 1:
        Post(stream, Rewind{.position = committed});
        break;
      case 2:
        Post(stream,
             DraftTune{.run_length = 1 + static_cast<int>(random() % 4),
                       .window = std::nullopt});
        break;
      default: {
        // Some as proposed, some not.
        std::vector<int32_t> tokens(1 + random() % 3);
        for (int32_t& token : tokens) {
          token = random() % 4 == 0 ? 500 : 9 + committed;
          ++committed;
        }
        Post(stream,
             CommittedTokens{
                 .position = committed - static_cast<int>(tokens.size()),
                 .tokens = tokens});
      }
    }
    if (name % 64 == 0) absl::SleepFor(absl::Microseconds(50));
  }
  for (const auto& [name, entry] : open) {
    thread_->worker()->Close(entry.stream.id);
  }
  EXPECT_TRUE(Eventually([&] { return drafter_->num_alive() == 0; }));
  EXPECT_TRUE(Eventually([&] { return thread_->num_sequences() == 0; }));
  size_t largest = 0;
  for (const auto& call : Calls()) {
    largest = std::max(largest, call.size());
    ASSERT_LE(call.size(), 5u);
    ASSERT_EQ(std::set<int32_t>(call.begin(), call.end()).size(), call.size());
  }
  EXPECT_EQ(largest, 5u);
}

}  // namespace
}  // namespace specwire::draft
