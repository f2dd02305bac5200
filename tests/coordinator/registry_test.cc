// SPDX-License-Identifier: Apache-2.0
#include "coordinator/registry.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/registry_test_util.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(RegistryTest, RefusesBadIdentitiesByField) {
  const NodeIdentity good = Identity("n", NodeRole::kDraft, 1);
  struct Case {
    const char* field;
    void (*spoil)(NodeIdentity*);
  };
  const Case cases[] = {
      {"registration.name", [](NodeIdentity* i) { i->name = ""; }},
      {"registration.name",
       [](NodeIdentity* i) { i->name = std::string(65, 'a'); }},
      {"registration.name", [](NodeIdentity* i) { i->name = "a\nb"; }},
      {"registration.name", [](NodeIdentity* i) { i->name = "\xc3\xa4"; }},
      // The coordinator's own drafter goes by it.
      {"registration.name", [](NodeIdentity* i) { i->name = "local"; }},
      {"registration.incarnation_id",
       [](NodeIdentity* i) { i->incarnation_id = ""; }},
      {"registration.incarnation_id",
       [](NodeIdentity* i) { i->incarnation_id = std::string(65, 'a'); }},
      {"registration.address", [](NodeIdentity* i) { i->address = ""; }},
      {"registration.address", [](NodeIdentity* i) { i->address = "host"; }},
      {"registration.address", [](NodeIdentity* i) { i->address = "host:0"; }},
      {"registration.address",
       [](NodeIdentity* i) { i->address = "host:65536"; }},
  };
  for (const Case& c : cases) {
    NodeIdentity identity = good;
    c.spoil(&identity);
    const absl::Status status = registry_.Register(identity, kStart).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
  }
  EXPECT_THAT(registry_.Nodes(), IsEmpty());
}

TEST_F(RegistryTest, VerifierServesOnceItHasToldItsModel) {
  const auto registration = Join(Identity("v", NodeRole::kVerifier, 1));
  EXPECT_FALSE(registration.known);
  EXPECT_EQ(State(registration), NodeState::kJoining);
  EXPECT_FALSE(registry_.AcquireVerifier("d", {}).ok());
  registry_.OnVerifierInfo(registration.node_id, Verifier("d"));
  EXPECT_EQ(State(registration), NodeState::kServing);
  EXPECT_EQ(Node(registration.node_id).reason, "");
  EXPECT_TRUE(registry_.AcquireVerifier("d", {}).ok());
}

TEST_F(RegistryTest, FailedProbeIsTheReasonForJoining) {
  const auto registration = Join(Identity("v", NodeRole::kVerifier, 1));
  registry_.OnProbeFailed(registration.node_id, absl::UnavailableError("x"));
  EXPECT_EQ(State(registration), NodeState::kJoining);
  EXPECT_THAT(Node(registration.node_id).reason, HasSubstr("x"));
}

TEST_F(RegistryTest, ReconnectingIncarnationIsTheSameNode) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  registry_.OnDetached(first, "lost", kStart);
  EXPECT_EQ(State(first), NodeState::kGone);
  EXPECT_EQ(Node(first.node_id).reason, "lost");
  const auto second = Join(Identity("v", NodeRole::kVerifier, 1));
  EXPECT_EQ(second.node_id, first.node_id);
  EXPECT_TRUE(second.known);
  EXPECT_EQ(State(second), NodeState::kServing);
}

TEST_F(RegistryTest, OldStreamOfReconnectedNodeNoLongerCounts) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  const auto second = Join(Identity("v", NodeRole::kVerifier, 1));
  registry_.OnDetached(first, "lost", kStart);
  EXPECT_EQ(State(second), NodeState::kServing);
  EXPECT_FALSE(registry_.OnLoad(first, {}, kStart));
  EXPECT_TRUE(registry_.OnLoad(second, {}, kStart));
}

TEST_F(RegistryTest, RestartedNodeReplacesItsFormerSelf) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  const auto second = Join(Identity("v", NodeRole::kVerifier, 1, "second"));
  EXPECT_NE(second.node_id, first.node_id);
  EXPECT_FALSE(second.known);
  EXPECT_EQ(State(first), NodeState::kGone);
  EXPECT_THAT(Node(first.node_id).reason, HasSubstr("replaced"));
  EXPECT_EQ(State(second), NodeState::kJoining);
  EXPECT_FALSE(registry_.OnLoad(first, {}, kStart));
}

TEST_F(RegistryTest, RefusesNameOfLiveNodeElsewhere) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  const absl::Status status =
      registry_.Register(Identity("v", NodeRole::kVerifier, 2, "other"), kStart)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'v'"));
  EXPECT_EQ(State(first), NodeState::kServing);
}

TEST_F(RegistryTest, NameOfSuspectOrGoneNodeIsFree) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  registry_.CheckSilence(kStart + absl::Seconds(4));
  ASSERT_EQ(State(first), NodeState::kSuspect);
  const auto second = Join(Identity("v", NodeRole::kVerifier, 2, "second"));
  EXPECT_EQ(State(first), NodeState::kGone);
  registry_.OnDetached(second, "lost", kStart);
  const auto third = Join(Identity("v", NodeRole::kVerifier, 3, "third"));
  EXPECT_EQ(State(third), NodeState::kJoining);
}

TEST_F(RegistryTest, SilentNodeIsSuspectUntilItReports) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  registry_.CheckSilence(kStart + absl::Seconds(3));
  EXPECT_EQ(State(verifier), NodeState::kServing);
  registry_.CheckSilence(kStart + absl::Seconds(3) + absl::Nanoseconds(1));
  EXPECT_EQ(State(verifier), NodeState::kSuspect);
  EXPECT_THAT(Node(verifier.node_id).reason, HasSubstr("3s"));
  EXPECT_FALSE(registry_.AcquireVerifier("d", {}).ok());
  EXPECT_TRUE(registry_.OnLoad(verifier, {}, kStart + absl::Seconds(10)));
  EXPECT_EQ(State(verifier), NodeState::kServing);
}

TEST_F(RegistryTest, ANodeWithWorkThatGetsNowhereIsSuspectUntilItGetsOn) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  absl::Time now = kStart;
  const auto report = [&](int64_t progress, bool working) {
    now += absl::Milliseconds(500);
    NodeLoad load;
    load.progress = progress;
    load.working = working;
    EXPECT_TRUE(registry_.OnLoad(verifier, load, now));
    return State(verifier);
  };
  // An idle one is in order, however long; so is one that gets on slowly.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(report(5, false), NodeState::kServing);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(report(6 + i / 4, true), NodeState::kServing);
  }
  EXPECT_THAT(registry_.TakeSuspects(now), IsEmpty());
  EXPECT_EQ(report(99, true), NodeState::kServing);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(report(99, true), NodeState::kServing);
  EXPECT_EQ(report(99, true), NodeState::kSuspect);
  EXPECT_EQ(report(99, true), NodeState::kSuspect);
  EXPECT_THAT(Node(verifier.node_id).reason, HasSubstr("no progress"));
  EXPECT_FALSE(registry_.AcquireVerifier("d", {}).ok());
  // There is nobody to go on with what it has, until another one serves.
  EXPECT_THAT(registry_.TakeSuspects(now), IsEmpty());
  JoinVerifier("other", 2, Verifier("another model"));
  EXPECT_THAT(registry_.TakeSuspects(now), IsEmpty());
  JoinVerifier("w", 3, Verifier("d"));
  // Told once.
  const auto suspects = registry_.TakeSuspects(now);
  ASSERT_EQ(suspects.size(), 1u);
  EXPECT_EQ(suspects[0].node_id, verifier.node_id);
  EXPECT_THAT(suspects[0].reason, HasSubstr("no progress"));
  EXPECT_THAT(registry_.TakeSuspects(now), IsEmpty());
  EXPECT_EQ(report(100, true), NodeState::kServing);
}

TEST_F(RegistryTest, APauseBetweenReportsIsNoStall) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  NodeLoad load;
  load.progress = 5;
  load.working = true;
  // Of a node, or a coordinator, that stood still as a whole.
  for (int i = 0; i < 10; ++i) {
    registry_.OnLoad(verifier, load, kStart + i * absl::Milliseconds(1500));
    EXPECT_EQ(State(verifier), NodeState::kServing);
  }
}

TEST_F(RegistryTest, AStallOfTheCoordinatorItselfMakesNobodySuspect) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  absl::Time now = kStart;
  registry_.CheckSilence(now);
  now += absl::Seconds(20);
  registry_.CheckSilence(now);
  EXPECT_EQ(State(verifier), NodeState::kServing);
  // From then on silence counts again.
  for (int i = 0; i < 15; ++i) {
    now += absl::Milliseconds(200);
    registry_.CheckSilence(now);
    EXPECT_EQ(State(verifier), NodeState::kServing);
  }
  registry_.CheckSilence(now + absl::Milliseconds(200));
  EXPECT_EQ(State(verifier), NodeState::kSuspect);
  // It is alone, so it has some time to come back.
  EXPECT_THAT(registry_.TakeSuspects(now), IsEmpty());
  EXPECT_THAT(registry_.TakeSuspects(now + absl::Milliseconds(11999)),
              IsEmpty());
  EXPECT_EQ(registry_.TakeSuspects(now + absl::Seconds(12)).size(), 1u);
}

TEST_F(RegistryTest, NodesThatGaveUpACoordinatorThatStoodStillAreKept) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  const auto lost = JoinVerifier("w", 2, Verifier("d"));
  absl::Time now = kStart;
  registry_.CheckSilence(now);
  now += absl::Seconds(20);
  // Before the next look, and behind it.
  registry_.OnDetached(verifier, "lost", now);
  registry_.CheckSilence(now);
  registry_.OnDetached(lost, "lost", now + absl::Milliseconds(200));
  EXPECT_EQ(State(verifier), NodeState::kServing);
  EXPECT_EQ(State(lost), NodeState::kServing);
  EXPECT_TRUE(registry_.AcquireVerifier("d", {}).ok());
  // One comes back and is known, the other does not.
  const auto again = Join(Identity("v", NodeRole::kVerifier, 1), now);
  EXPECT_EQ(again.node_id, verifier.node_id);
  EXPECT_TRUE(again.known);
  for (int i = 0; i < 16; ++i) {
    now += absl::Milliseconds(200);
    registry_.OnLoad(again, {}, now);
    registry_.CheckSilence(now);
  }
  EXPECT_EQ(State(again), NodeState::kServing);
  EXPECT_EQ(State(lost), NodeState::kGone);
  EXPECT_EQ(Node(lost.node_id).reason, "lost");
  // A stream that ends now is a node that has gone.
  registry_.OnDetached(again, "lost", now + absl::Milliseconds(100));
  EXPECT_EQ(State(again), NodeState::kGone);
}

TEST_F(RegistryTest, ALoneVerifierThatGetsOnAgainLosesNothing) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  registry_.CheckSilence(kStart + absl::Seconds(4));
  EXPECT_EQ(State(verifier), NodeState::kSuspect);
  EXPECT_THAT(registry_.TakeSuspects(kStart + absl::Seconds(4)), IsEmpty());
  registry_.OnLoad(verifier, {}, kStart + absl::Seconds(9));
  EXPECT_EQ(State(verifier), NodeState::kServing);
  EXPECT_THAT(registry_.TakeSuspects(kStart + absl::Minutes(1)), IsEmpty());
}

TEST_F(RegistryTest, ADrainingNodeThatWasSuspectStillDrains) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  EXPECT_TRUE(registry_.Drain(verifier.node_id, "an operator wants it").ok());
  registry_.CheckSilence(kStart + absl::Seconds(4));
  EXPECT_EQ(State(verifier), NodeState::kSuspect);
  registry_.OnLoad(verifier, {}, kStart + absl::Seconds(5));
  EXPECT_EQ(State(verifier), NodeState::kDraining);
  EXPECT_EQ(Node(verifier.node_id).reason, "an operator wants it");
}

TEST_F(RegistryTest, FindsLiveNodesByIdAndName) {
  const auto first = JoinVerifier("v", 1, Verifier("d"));
  EXPECT_EQ(registry_.FindLive("v")->node_id, first.node_id);
  EXPECT_EQ(registry_.FindLive(first.node_id)->identity.name, "v");
  // Names come first.
  const auto second = JoinVerifier(first.node_id, 2, Verifier("d"));
  EXPECT_EQ(registry_.FindLive(first.node_id)->node_id, second.node_id);
  EXPECT_TRUE(registry_.IsLatest(first));
  registry_.OnDetached(first, "lost", kStart);
  EXPECT_FALSE(registry_.IsLatest(first));
  const absl::Status gone = registry_.FindLive("v").status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(gone.message(), "node: 'v' has left already: lost");
  // The later of two.
  const auto third = JoinVerifier("v", 3, Verifier("d"));
  registry_.OnDetached(third, "lost too", kStart);
  EXPECT_EQ(registry_.FindLive("v").status().message(),
            "node: 'v' has left already: lost too");
  EXPECT_EQ(registry_.FindLive("w").status().message(), "node: no 'w' here");
}

TEST_F(RegistryTest, DrainedNodeTakesNoWorkUntilItHasLeft) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  EXPECT_TRUE(registry_.Drain(verifier.node_id, "an operator wants it").ok());
  EXPECT_EQ(State(verifier), NodeState::kDraining);
  EXPECT_FALSE(registry_.AcquireVerifier("d", {}).ok());
  registry_.OnLoad(verifier, {}, kStart);
  EXPECT_EQ(State(verifier), NodeState::kDraining);
  registry_.OnDetached(verifier, "it has left", kStart);
  EXPECT_EQ(State(verifier), NodeState::kGone);
  EXPECT_EQ(Node(verifier.node_id).reason,
            "it has drained: an operator wants it");
  EXPECT_EQ(registry_.Drain(verifier.node_id, "again").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RegistryTest, TheGraceIsToldWhileANodeDrains) {
  const auto verifier = JoinVerifier("v", 1, Verifier("d"));
  EXPECT_TRUE(registry_.Drain(verifier.node_id, "a signal", "30s left").ok());
  EXPECT_EQ(Node(verifier.node_id).reason, "a signal; 30s left");
  registry_.OnDetached(verifier, "it has left", kStart);
  EXPECT_EQ(Node(verifier.node_id).reason, "it has drained: a signal");
}

TEST_F(RegistryTest, DrafterOfForeignVocabularyIsIncompatibleAndRejudged) {
  const auto any = JoinDrafter("any", 1, Drafter("ngram"));
  EXPECT_EQ(State(any), NodeState::kServing);
  const auto drafter = JoinDrafter("d", 2, Drafter("model", "aaaa"));
  EXPECT_EQ(State(drafter), NodeState::kJoining);
  EXPECT_THAT(Node(drafter.node_id).reason, HasSubstr("waits for a verifier"));
  const auto other = JoinVerifier("v1", 3, Verifier("d1", "bbbb"));
  EXPECT_EQ(State(drafter), NodeState::kIncompatible);
  EXPECT_THAT(Node(drafter.node_id).reason, HasSubstr("aaaa"));
  EXPECT_THAT(Node(drafter.node_id).reason, HasSubstr("bbbb"));
  const auto fitting = JoinVerifier("v2", 4, Verifier("d2", "aaaa"));
  EXPECT_EQ(State(drafter), NodeState::kServing);
  registry_.OnDetached(fitting, "lost", kStart);
  EXPECT_EQ(State(drafter), NodeState::kIncompatible);
  registry_.OnDetached(other, "lost", kStart);
  EXPECT_EQ(State(any), NodeState::kServing);
}

TEST_F(RegistryTest, CountsDraftersThatBeginToServe) {
  EXPECT_EQ(registry_.drafters_gained(), 0);
  JoinDrafter("any", 1, Drafter("ngram"));
  EXPECT_EQ(registry_.drafters_gained(), 1);
  JoinDrafter("d", 2, Drafter("model", "aaaa"));
  EXPECT_EQ(registry_.drafters_gained(), 1);
  JoinVerifier("v", 3, Verifier("d", "aaaa"));
  EXPECT_EQ(registry_.drafters_gained(), 2);
}

TEST_F(RegistryTest, KeepsOnlyTheLatestGoneNodes) {
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) {
    const auto node = JoinDrafter(absl::StrCat("n", i), 1 + i, Drafter("x"));
    registry_.OnDetached(node, "lost", kStart);
    ids.push_back(node.node_id);
  }
  const auto live = JoinDrafter("live", 99, Drafter("x"));
  const std::vector<NodeInfo> nodes = registry_.Nodes();
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(Node(ids[5]).node_id, "");
  EXPECT_EQ(Node(ids[6]).node_id, ids[6]);
  EXPECT_EQ(State(live), NodeState::kServing);
  // Streams may end on a node that is no longer listed.
  registry_.Release(ids[0]);
}

TEST_F(RegistryTest, ListsByRoleThenName) {
  JoinVerifier("b", 1, Verifier("d"));
  JoinVerifier("a", 2, Verifier("d"));
  JoinDrafter("z", 3, Drafter("x"));
  std::vector<std::string> names;
  for (const NodeInfo& node : registry_.Nodes()) {
    names.push_back(node.identity.name);
  }
  EXPECT_THAT(names, ElementsAre("z", "a", "b"));
}

}  // namespace
}  // namespace specwire::coordinator
