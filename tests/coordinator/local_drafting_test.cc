// SPDX-License-Identifier: Apache-2.0

// Generate with verifiers that draft for themselves: who drafts for whom, and
// what becomes of it.

#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

// Its text can be looked up once it has come round.
FakeVerifierOptions Repeating(absl::Duration step_time = absl::ZeroDuration()) {
  FakeVerifierOptions options;
  options.model.period = 20;
  options.local_drafter = "suffix";
  options.step_time = step_time;
  return options;
}

v1::GenerateRequest Request(int max_tokens, const std::string& drafter = "") {
  v1::GenerateRequest request = GreedyRequest("hello", max_tokens);
  request.mutable_speculation()->set_drafter(drafter);
  return request;
}

class LocalDraftingTest : public ::testing::Test {
 protected:
  // The reply is right, whoever drafted.
  GenerateResult Check(
      const v1::GenerateRequest& request,
      const std::function<bool(const v1::GenerateDelta&)>& on_delta = nullptr) {
    GenerateResult result = cluster_.Generate(request, on_delta);
    ExpectComplete(
        result, "hello", request.stop().max_tokens(), Repeating().model);
    return result;
  }
  static std::string DrafterOf(const GenerateResult& result) {
    return result.finished.speculation().drafter();
  }

  InProcessCluster cluster_;
};

TEST_F(LocalDraftingTest, WithoutADraftNodeItDraftsLocally) {
  cluster_.AddVerifier(Repeating(absl::Milliseconds(1)));
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  const GenerateResult result = Check(LockStep(Request(400), 4));
  EXPECT_EQ(DrafterOf(result), "local");
  // Nearly all that comes after the first round is found.
  EXPECT_LT(result.finished.speculation().num_passes(), 200);
  // And without being told to wait for drafts.
  EXPECT_GT(
      Check(Request(400)).finished.speculation().num_accepted_draft_tokens(),
      0);
}

TEST_F(LocalDraftingTest, NoneTurnsItOff) {
  FakeVerifierOptions verifier = Repeating();
  verifier.local_drafter = "";
  cluster_.AddVerifier(verifier);
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  const GenerateResult result = cluster_.Generate(Request(100));
  EXPECT_EQ(result.finished.speculation().num_drafted_tokens(), 0);
  for (const char* name : {"local", "suffix"}) {
    EXPECT_EQ(cluster_.Generate(Request(100, name)).status.code(),
              absl::StatusCode::kNotFound);
  }
}

TEST_F(LocalDraftingTest, WithoutSpeculationNothingIsDrafted) {
  cluster_.AddVerifier(Repeating());
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  v1::GenerateRequest off = Request(200);
  off.mutable_speculation()->set_enabled(false);
  for (const v1::GenerateRequest& request : {off, Request(200, "none")}) {
    const GenerateResult result = Check(request);
    EXPECT_EQ(result.finished.speculation().num_drafted_tokens(), 0);
    EXPECT_EQ(result.finished.speculation().num_passes(), 200);
  }
}

TEST_F(LocalDraftingTest, ARequestNamesWhoDrafts) {
  const FakeVerifierOptions verifier = Repeating();
  cluster_.AddVerifier(verifier);
  FakeDrafter* oracle = cluster_.AddDrafter({.model = verifier.model});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  EXPECT_EQ(DrafterOf(Check(LockStep(Request(100, "local"), 4))), "local");
  // No draft node has it.
  EXPECT_EQ(DrafterOf(Check(LockStep(Request(100, "suffix"), 4))), "local");
  EXPECT_EQ(oracle->num_opened(), 0);
  EXPECT_EQ(DrafterOf(Check(LockStep(Request(100, "oracle"), 4))), "oracle");
  EXPECT_EQ(DrafterOf(Check(LockStep(Request(100), 4))), "oracle");
  EXPECT_EQ(oracle->num_opened(), 2);
  const absl::Status status = cluster_.Generate(Request(100, "other")).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("oracle, suffix, local"));
}

TEST_F(LocalDraftingTest, ADraftNodeWithTheNameGoesFirst) {
  const FakeVerifierOptions verifier = Repeating();
  cluster_.AddVerifier(verifier);
  FakeDrafter* drafter =
      cluster_.AddDrafter({.model = verifier.model, .drafter = "suffix"});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  EXPECT_EQ(DrafterOf(Check(LockStep(Request(100, "suffix"), 4))), "suffix");
  EXPECT_EQ(drafter->num_opened(), 1);
}

TEST_F(LocalDraftingTest, GoesOnWhenTheDraftNodeIsKilled) {
  const FakeVerifierOptions verifier = Repeating(absl::Milliseconds(1));
  cluster_.AddVerifier(verifier);
  FakeDrafter* drafter = cluster_.AddDrafter({.model = verifier.model});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  std::thread killer;
  const GenerateResult result =
      Check(Request(1200), [&](const v1::GenerateDelta& delta) {
        if (delta.first_index() >= 40 && !killer.joinable()) {
          killer = std::thread([&] { drafter->Kill(); });
        }
        return true;
      });
  ASSERT_TRUE(killer.joinable());
  killer.join();
  EXPECT_EQ(drafter->num_opened(), 1);
  const v1::SpeculationStats& stats = result.finished.speculation();
  EXPECT_GT(stats.num_accepted_local_draft_tokens(), 500);
  EXPECT_LT(stats.num_passes(), 600);
}

TEST_F(LocalDraftingTest, BothDraftForARequestThatNamesNoDrafter) {
  FakeVerifierOptions verifier = Repeating(absl::Milliseconds(1));
  // Half of its text is new.
  verifier.model.period = 100;
  cluster_.AddVerifier(verifier);
  cluster_.AddDrafter({.model = verifier.model});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  const v1::GenerateRequest request = Request(200);
  const GenerateResult result = cluster_.Generate(request);
  ExpectComplete(result, "hello", 200, verifier.model);
  const v1::SpeculationStats& stats = result.finished.speculation();
  EXPECT_EQ(stats.drafter(), "oracle");
  const int64_t local = stats.num_accepted_local_draft_tokens();
  EXPECT_GT(local, 20);
  EXPECT_GT(stats.num_accepted_draft_tokens() - local, 20);
  EXPECT_EQ(cluster_.Metric(metric::kNumAcceptedTokens, "\"local\""), local);
  EXPECT_EQ(cluster_.Metric(metric::kNumAcceptedTokens, "\"draft-1\""),
            stats.num_accepted_draft_tokens() - local);
  EXPECT_EQ(stats.num_drafted_tokens(),
            stats.num_draft_tokens() + stats.num_overlapped_tokens() +
                stats.num_stale_tokens() + stats.num_trimmed_tokens() +
                stats.num_unused_tokens());
}

TEST_F(LocalDraftingTest, DoesNotTakeOverWhereAnotherDrafterWasAskedFor) {
  const FakeVerifierOptions verifier = Repeating();
  cluster_.AddVerifier(verifier);
  cluster_.AddDrafter({.model = verifier.model, .lose_streams_after = 3});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  const GenerateResult result = Check(LockStep(Request(200, "oracle"), 4));
  EXPECT_EQ(DrafterOf(result), "oracle");
  EXPECT_GT(result.finished.speculation().num_passes(), 150);
}

TEST_F(LocalDraftingTest, GoesOnWithAnotherVerifier) {
  FakeVerifierOptions bad = Repeating();
  bad.lose_streams_after = 100;
  cluster_.AddVerifier(bad);
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  FakeVerifierOptions good = Repeating();
  good.name = "verifier-2";
  cluster_.AddVerifier(good);
  ASSERT_TRUE(cluster_.WaitServing(2, 0));
  const GenerateResult result = Check(LockStep(Request(400, "local"), 4));
  EXPECT_EQ(cluster_.Metric(metric::kRequestMigrations), 1);
  EXPECT_GT(cluster_.Metric(metric::kNumAcceptedTokens, "\"verifier-1\""), 0);
  EXPECT_GT(cluster_.Metric(metric::kNumAcceptedTokens, "\"verifier-2\""), 0);
  EXPECT_LT(result.finished.speculation().num_passes(), 250);
}

TEST_F(LocalDraftingTest, EverySettingGivesThePlainText) {
  const FakeVerifierOptions verifier = Repeating();
  cluster_.AddVerifier(verifier);
  cluster_.AddDrafter({.model = verifier.model, .wrong_every = 7});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  for (const char* drafter : {"local", ""}) {
    for (const int run_length : {1, 4, 32}) {
      for (const int window : {32, 256}) {
        for (const int64_t patience_us : {-1, 0, 2000}) {
          v1::GenerateRequest request = Request(150, drafter);
          request.mutable_speculation()->set_max_draft_tokens(run_length);
          request.mutable_speculation()->set_window(window);
          request.mutable_speculation()->set_patience_us(patience_us);
          Check(request);
        }
      }
    }
  }
}

TEST_F(LocalDraftingTest, ServesEveryChoiceOfARequest) {
  cluster_.AddVerifier(Repeating());
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  v1::GenerateRequest request = LockStep(Request(200, "local"), 4);
  request.set_n(4);
  for (const GenerateResult& result :
       CallGenerateChoices(cluster_.generation(), request)) {
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.token_ids, Repeating().model.Complete(Ids("hello"), 200));
    EXPECT_EQ(DrafterOf(result), "local");
  }
}

TEST_F(LocalDraftingTest, UnderTheRatioRuleDraftNodesGoFirst) {
  const FakeVerifierOptions verifier = Repeating();
  cluster_.AddVerifier(verifier);
  FakeDrafter* drafter = cluster_.AddDrafter({.model = verifier.model});
  ASSERT_TRUE(cluster_.WaitServing(1, 1));
  v1::GenerateRequest request = GreedyRequest("hello", 20);
  request.mutable_speculation()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
  for (int i = 0; i < 20; ++i) {
    const GenerateResult result = cluster_.Generate(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  EXPECT_EQ(drafter->num_opened(), 20);
}

TEST_F(LocalDraftingTest, ItsFiguresAreThoseOfAPair) {
  cluster_.AddVerifier(Repeating());
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  const v1::SpeculationStats told =
      Check(LockStep(Request(300), 4)).finished.speculation();
  grpc::ClientContext context;
  v1::GetStatsResponse stats;
  ASSERT_TRUE(cluster_.cluster()->GetStats(&context, {}, &stats).ok());
  ASSERT_EQ(stats.pairs_size(), 1);
  EXPECT_EQ(stats.pairs(0).draft_node(), "local");
  EXPECT_EQ(stats.pairs(0).verifier_node(), "verifier-1");
  EXPECT_EQ(stats.pairs(0).stats().num_accepted_draft_tokens(),
            told.num_accepted_draft_tokens());
  EXPECT_EQ(stats.pairs(0).stats().num_drafted_tokens(),
            told.num_drafted_tokens());
  // It is no node.
  grpc::ClientContext nodes_context;
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(cluster_.cluster()->ListNodes(&nodes_context, {}, &nodes).ok());
  EXPECT_EQ(nodes.nodes_size(), 1);
}

}  // namespace
}  // namespace specwire::coordinator
