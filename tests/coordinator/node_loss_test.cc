// SPDX-License-Identifier: Apache-2.0

// Generate while draft and verifier nodes fail in every way.

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(NodeLossTest, LostDrafterChangesNothingButSpeed) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  FakeDrafterOptions options;
  options.lose_streams_after = 3;
  FakeDrafter* drafter = cluster.AddDrafter(options);
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  for (const int64_t patience_us : {-1, 0, 2000}) {
    v1::GenerateRequest request = GreedyRequest("hello", 100);
    request.mutable_speculation()->set_patience_us(patience_us);
    ExpectComplete(cluster.Generate(request), "hello", 100);
  }
  EXPECT_EQ(drafter->num_opened(), 3);
}

TEST(NodeLossTest, AnotherDrafterTakesOver) {
  InProcessCluster cluster;
  cluster.AddVerifier({.step_time = absl::Milliseconds(3)});
  FakeDrafterOptions bad;
  bad.lose_streams_after = 2;
  FakeDrafter* first = cluster.AddDrafter(bad);
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  FakeDrafterOptions good;
  good.name = "draft-2";
  good.drafter = "second";
  FakeDrafter* second = cluster.AddDrafter(good);
  ASSERT_TRUE(cluster.WaitServing(1, 2));
  const GenerateResult result =
      cluster.Generate(LockStep(GreedyRequest("hello", 600), 4));
  ExpectComplete(result, "hello", 600);
  EXPECT_EQ(first->num_opened(), 1);
  EXPECT_EQ(second->num_opened(), 1);
  EXPECT_EQ(result.finished.speculation().drafter(), "second");
  // Patience is back once the second drafter has spoken.
  EXPECT_LE(result.finished.speculation().num_passes(), 500);
}

TEST(NodeLossTest, KilledDrafterMidStream) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(1);
  cluster.AddVerifier(options);
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  std::thread killer;
  const GenerateResult result =
      cluster.Generate(LockStep(GreedyRequest("hello", 200), 4),
                       [&](const v1::GenerateDelta& delta) {
                         if (delta.first_index() >= 20 && !killer.joinable()) {
                           killer = std::thread([&] { drafter->Kill(); });
                         }
                         return true;
                       });
  ASSERT_TRUE(killer.joinable());
  killer.join();
  ExpectComplete(result, "hello", 200);
}

TEST(NodeLossTest, SilentDrafterIsGivenUpAfterItsDeadline) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.drafter_deadline = absl::Milliseconds(200);
  InProcessCluster cluster(options);
  cluster.AddVerifier();
  FakeDrafterOptions silent;
  silent.silent = true;
  FakeDrafter* drafter = cluster.AddDrafter(silent);
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const absl::Time start = absl::Now();
  const GenerateResult result =
      cluster.Generate(LockStep(GreedyRequest("hello", 50), 4));
  const absl::Duration time = absl::Now() - start;
  ExpectComplete(result, "hello", 50);
  EXPECT_GE(time, absl::Milliseconds(200));
  EXPECT_LT(time, absl::Seconds(5));
  EXPECT_TRUE(Eventually([&] { return drafter->num_open() == 0; }));
}

// Messages may be lost though the connection lives: a flipped bit in a frame's
// header does that.
TEST(NodeLossTest, LostMessagesMoveTheSequenceSoon) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.stream_deadline = absl::Seconds(3);
  for (const bool lock_step : {false, true}) {
    InProcessCluster cluster(options);
    FakeVerifier* lossy =
        cluster.AddVerifier({.name = "lossy", .loses_messages_after = 20});
    ASSERT_TRUE(cluster.WaitServing(1, 0));
    if (lock_step) {
      cluster.AddDrafter();
      ASSERT_TRUE(cluster.WaitServing(1, 1));
    }
    bool added = false;
    const v1::GenerateRequest request = GreedyRequest("hello", 100);
    const GenerateResult result =
        cluster.Generate(lock_step ? LockStep(request, 4) : request,
                         [&](const v1::GenerateDelta&) {
                           if (!std::exchange(added, true)) {
                             cluster.AddVerifier({.name = "sound"});
                           }
                           return true;
                         });
    ExpectComplete(result, "hello", 100);
    EXPECT_EQ(lossy->num_opened(), 1);
    EXPECT_TRUE(Eventually([&] { return lossy->num_open() == 0; }));
  }
}

TEST(NodeLossTest, StreamThatItsVerifierDoesNotHaveIsLost) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.stream_deadline = absl::Milliseconds(900);
  InProcessCluster cluster(options);
  FakeVerifier* lossy = cluster.AddVerifier(
      {.name = "lossy", .loses_messages_after = 20, .ignores_checks = true});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  bool added = false;
  const GenerateResult result = cluster.Generate(
      GreedyRequest("hello", 100), [&](const v1::GenerateDelta&) {
        if (!std::exchange(added, true)) {
          cluster.AddVerifier({.name = "sound"});
        }
        return true;
      });
  ExpectComplete(result, "hello", 100);
  EXPECT_EQ(lossy->num_opened(), 1);
}

TEST(NodeLossTest, VerifierThatIsSlowButAnswersIsNotLost) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.stream_deadline = absl::Milliseconds(600);
  InProcessCluster cluster(options);
  FakeVerifier* slow = cluster.AddVerifier({.step_time = absl::Seconds(2)});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  ExpectComplete(cluster.Generate(GreedyRequest("hello", 2)), "hello", 2);
  EXPECT_EQ(slow->num_opened(), 1);
}

TEST(NodeLossTest, DrafterThatDoesNotAnswerChecksIsGivenUp) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.drafter_deadline = absl::Minutes(10);
  options.stream_deadline = absl::Milliseconds(600);
  InProcessCluster cluster(options);
  cluster.AddVerifier();
  FakeDrafter* drafter =
      cluster.AddDrafter({.silent = true, .ignores_checks = true});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  ExpectComplete(
      cluster.Generate(LockStep(GreedyRequest("hello", 50), 4)), "hello", 50);
  EXPECT_EQ(drafter->num_opened(), 1);
  EXPECT_TRUE(Eventually([&] { return drafter->num_open() == 0; }));
}

TEST(NodeLossTest, MalformedProposalsLoseTheDrafterOnly) {
  InProcessCluster cluster;
  FakeVerifier* verifier = cluster.AddVerifier();
  FakeDrafterOptions malformed;
  malformed.malformed = true;
  cluster.AddDrafter(malformed);
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  ExpectComplete(
      cluster.Generate(LockStep(GreedyRequest("hello", 50), 4)), "hello", 50);
  EXPECT_EQ(verifier->num_opened(), 1);
}

TEST(NodeLossTest, FloodLosesTheDrafterOnly) {
  InProcessCluster cluster;
  FakeVerifier* verifier = cluster.AddVerifier();
  FakeDrafter* drafter = cluster.AddDrafter({.flood = 5000});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  ExpectComplete(
      cluster.Generate(LockStep(GreedyRequest("hello", 50), 4)), "hello", 50);
  EXPECT_EQ(verifier->num_opened(), 1);
  EXPECT_TRUE(Eventually([&] { return drafter->num_open() == 0; }));
}

TEST(NodeLossTest, DrafterThatJoinsLaterIsTaken) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(2);
  cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  bool added = false;
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 1500),
                                                 [&](const v1::GenerateDelta&) {
                                                   if (!added)
                                                     cluster.AddDrafter();
                                                   added = true;
                                                   return true;
                                                 });
  ExpectComplete(result, "hello", 1500);
  EXPECT_GT(result.finished.speculation().num_accepted_draft_tokens(), 0);
}

TEST(NodeLossTest, LostVerifierMovesToAnother) {
  for (const bool speculate : {false, true}) {
    InProcessCluster cluster;
    FakeVerifierOptions bad;
    bad.lose_streams_after = 30;
    FakeVerifier* first = cluster.AddVerifier(bad);
    if (speculate) cluster.AddDrafter();
    ASSERT_TRUE(cluster.WaitServing(1, speculate ? 1 : 0));
    FakeVerifierOptions good;
    good.name = "verifier-2";
    FakeVerifier* second = cluster.AddVerifier(good);
    ASSERT_TRUE(cluster.WaitServing(2, speculate ? 1 : 0));
    v1::GenerateRequest request = GreedyRequest("hello", 100);
    if (speculate) request = LockStep(request, 4);
    ExpectComplete(cluster.Generate(request), "hello", 100);
    EXPECT_EQ(first->num_opened(), 1);
    EXPECT_EQ(second->num_opened(), 1);
    EXPECT_EQ(cluster.Metric("specwire_request_migrations_total"), 1);
  }
}

// No verifier ends a stream like this: its connection garbles headers.
TEST(NodeLossTest, AStreamThatEndsForItsConnectionsSakeMoves) {
  for (const absl::StatusCode loss : {absl::StatusCode::kUnknown,
                                      absl::StatusCode::kUnimplemented,
                                      absl::StatusCode::kDeadlineExceeded}) {
    InProcessCluster cluster;
    cluster.AddVerifier({.lose_streams_after = 30, .loss = loss});
    ASSERT_TRUE(cluster.WaitServing(1, 0));
    FakeVerifier* second = cluster.AddVerifier({.name = "verifier-2"});
    ASSERT_TRUE(cluster.WaitServing(2, 0));
    ExpectComplete(cluster.Generate(GreedyRequest("hello", 100)), "hello", 100);
    EXPECT_EQ(second->num_opened(), 1) << loss;
  }
}

TEST(NodeLossTest, KilledVerifierMidStreamMoves) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(1);
  FakeVerifier* first = cluster.AddVerifier(options);
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  options.name = "verifier-2";
  FakeVerifier* second = cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(2, 1));
  std::thread killer;
  const GenerateResult result = cluster.Generate(
      GreedyRequest("hello", 300), [&](const v1::GenerateDelta& delta) {
        if (delta.first_index() >= 20 && !killer.joinable()) {
          FakeVerifier* victim = first->num_open() > 0 ? first : second;
          killer = std::thread([victim] { victim->Kill(); });
        }
        return true;
      });
  ASSERT_TRUE(killer.joinable());
  killer.join();
  ExpectComplete(result, "hello", 300);
}

TEST(NodeLossTest, VerifierOfAnotherDigestDoesNotTakeOver) {
  InProcessCluster cluster;
  FakeVerifierOptions bad;
  bad.lose_streams_after = 30;
  cluster.AddVerifier(bad);
  FakeVerifierOptions other;
  other.name = "verifier-2";
  other.model.name = "other";
  FakeVerifier* second = cluster.AddVerifier(other);
  ASSERT_TRUE(cluster.WaitServing(2, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 100);
  request.set_model("fake");
  const GenerateResult result = cluster.Generate(request);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("lost verifier 'verifier-1'"));
  // What was delivered is right.
  EXPECT_EQ(result.token_ids.size(), 30u);
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(second->num_opened(), 0);
}

TEST(NodeLossTest, MovesTwiceThenFails) {
  InProcessCluster cluster;
  for (int i = 0; i < 4; ++i) {
    FakeVerifierOptions bad;
    bad.name = absl::StrCat("verifier-", i);
    bad.lose_streams_after = 10;
    cluster.AddVerifier(bad);
  }
  ASSERT_TRUE(cluster.WaitServing(4, 0));
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 100));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.token_ids, FakeModel().Complete(Ids("hello"), 30));
}

TEST(NodeLossTest, VerifierThatContradictsTheLogIsLeft) {
  InProcessCluster cluster;
  FakeVerifierOptions bad;
  bad.commit_shift = 1;
  cluster.AddVerifier(bad);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  FakeVerifierOptions good;
  good.name = "verifier-2";
  cluster.AddVerifier(good);
  ASSERT_TRUE(cluster.WaitServing(2, 0));
  ExpectComplete(cluster.Generate(GreedyRequest("hello", 50)), "hello", 50);
  EXPECT_EQ(cluster.Metric("specwire_request_migrations_total", "INTERNAL"), 1);
}

}  // namespace
}  // namespace specwire::coordinator
