// SPDX-License-Identifier: Apache-2.0

// The service over a drafter that has a model, and so a cache.

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/model_drafting/model_drafter.h"
#include "draft_node/service.h"
#include "gtest/gtest.h"
#include "tests/draft_node/draft_service_test_util.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_engine.h"

namespace specwire::draft {
namespace {

// An oracle over a fake engine that the test can watch.
class OracleServiceTest : public testing::Test {
 protected:
  void Start(FakeEngineOptions options, DrafterThreadOptions thread = {}) {
    auto engine = std::make_unique<FakeEngine>(options);
    engine_ = engine.get();
    auto drafter = ModelDrafter::Create(std::move(engine), {.name = "oracle"});
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    drafter_ = *std::move(drafter);
    node_ = std::make_unique<DraftHarness>(drafter_.get(), thread);
  }

  FakeEngine* engine_ = nullptr;
  std::unique_ptr<ModelDrafter> drafter_;
  std::unique_ptr<DraftHarness> node_;
};

TEST_F(OracleServiceTest, ProposesTheTargetsText) {
  Start({});
  const std::vector<int32_t> prompt = {10, 20, 30, 40};
  const std::vector<int32_t> text = engine_->Continue(prompt, 24);
  DraftClient client(node_->stub());
  client.Send(OpenRequest(prompt, 8, 8));
  for (int step = 0; step < 3; ++step) {
    const auto begin = text.begin() + step * 8;
    const std::vector<int32_t> run(begin, begin + 8);
    ExpectProposal(client.Read(), 4 + step * 8, 4 + step * 8, run);
    client.Send(CommitRequest(4 + step * 8, run));
  }
}

// What the cache has in common with the path is not computed again.
TEST_F(OracleServiceTest, RollsItsCacheBack) {
  Start({});
  std::vector<int32_t> path = {10, 20, 30, 40};
  DraftClient client(node_->stub());
  client.Send(OpenRequest(path, 4, 4));
  ExpectProposal(client.Read(), 4, 4, engine_->Continue(path, 4));
  EXPECT_EQ(engine_->num_rows(), 4 + 3);
  path.push_back(engine_->Continue(path, 1)[0]);
  path.push_back(6);
  client.Send(CommitRequest(4, {path[4], path[5]}));
  ExpectProposal(client.Read(), 6, 6, engine_->Continue(path, 4));
  // Position 5 is new, and then three of the run.
  EXPECT_EQ(engine_->num_rows(), 4 + 3 + 1 + 3);
}

TEST_F(OracleServiceTest, ProposesLessWhereTheCacheIsFull) {
  Start({.block_size = 4, .num_blocks = 2});
  const std::vector<int32_t> prompt = {10, 20, 30, 40, 50, 60};
  DraftClient client(node_->stub());
  client.Send(OpenRequest(prompt, 8, 8));
  // Positions 0 to 7 are cached, and the token behind them is proposed.
  ExpectProposal(client.Read(), 6, 6, engine_->Continue(prompt, 3));
  client.Send(CommitRequest(6, engine_->Continue(prompt, 3)));
  ExpectProposal(client.Read(), 9, 9, {});
  // Others need not suffer from that.
  DraftClient second(node_->stub());
  second.Send(OpenRequest({7, 8}, 4, 4));
  ExpectProposal(second.Read(), 2, 2, engine_->Continue({7, 8}, 4));
}

TEST_F(OracleServiceTest, FreesWhatCancelledStreamsHold) {
  Start({.pass_delay = absl::Microseconds(50)});
  constexpr unsigned kSeed = 20240608;
  std::mt19937 random(kSeed);
  const std::vector<int32_t> prompt(300, 9);
  for (int i = 0; i < 100; ++i) {
    DraftClient client(node_->stub());
    client.Send(OpenRequest(prompt, 8, 64));
    absl::SleepFor(absl::Microseconds(random() % 2000));
    client.Cancel();
    EXPECT_EQ(client.Drain().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] {
    return engine_->kv_blocks_used() == 0 &&
           node_->thread().num_sequences() == 0;
  }));
}

TEST_F(OracleServiceTest, EndsAStreamThatFloods) {
  Start({}, {.max_events = 100});
  DraftClient bystander(node_->stub());
  engine_->Pause();
  bystander.Send(OpenRequest({10, 20}, 2, 2));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  DraftClient flooder(node_->stub());
  flooder.Send(OpenRequest({10, 20}, 2, 2));
  for (int i = 0; i < 10'000; ++i) {
    if (!flooder.Send(RewindRequest(2))) break;
  }
  EXPECT_EQ(flooder.Drain().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine_->Resume();
  ExpectProposal(bystander.Read(), 2, 2, engine_->Continue({10, 20}, 2));
}

// Commits are taken in between two passes: what is known to be wrong is not
// drafted on, nor sent.
TEST_F(OracleServiceTest, TakesInCommitsBeforeItDraftsOn) {
  Start({});
  engine_->Pause();
  DraftClient client(node_->stub());
  client.Send(OpenRequest({10, 20}, 2, 64));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  client.Send(CommitRequest(2, {6}));
  ASSERT_TRUE(
      Eventually([&] { return node_->thread().worker()->num_queued() == 1; }));
  engine_->Resume();
  ExpectProposal(client.Read(), 3, 3, engine_->Continue({10, 20, 6}, 2));
}

TEST_F(OracleServiceTest, BatchesThePassesOfItsStreams) {
  Start({});
  engine_->Pause();
  DraftClient first(node_->stub());
  first.Send(OpenRequest({10, 20}, 4, 64));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  DraftClient second(node_->stub());
  second.Send(OpenRequest({11, 21}, 4, 64));
  ASSERT_TRUE(Eventually([&] { return node_->thread().num_sequences() == 2; }));
  engine_->Resume();
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(first.Read().tokens_size(), 4);
    EXPECT_EQ(second.Read().tokens_size(), 4);
  }
  // The first pass is the first one's alone, and the last the second one's.
  EXPECT_EQ(engine_->num_passes(), 65);
  const std::vector<std::pair<int, int>> runs = engine_->runs();
  ASSERT_EQ(runs.size(), 128u);
  EXPECT_EQ(runs.front().first, 0);
  EXPECT_EQ(runs.back().first, 1);
  for (size_t i = 1; i < 127; ++i) {
    EXPECT_EQ(runs[i].first, static_cast<int>((i - 1) % 2)) << i;
  }
}

}  // namespace
}  // namespace specwire::draft
