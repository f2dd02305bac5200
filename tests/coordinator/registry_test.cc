// SPDX-License-Identifier: Apache-2.0
#include "coordinator/registry.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1000);

NodeIdentity Identity(const std::string& name,
                      NodeRole role,
                      int port,
                      const std::string& incarnation = "") {
  return {name,
          role,
          absl::StrCat("127.0.0.1:", port),
          incarnation.empty() ? absl::StrCat(name, "-first") : incarnation,
          7};
}

VerifierInfo Verifier(const std::string& digest,
                      const std::string& fingerprint = "vocabulary") {
  VerifierInfo info;
  info.model.name = "model";
  info.model.model_digest = digest;
  info.vocabulary_fingerprint = fingerprint;
  return info;
}

DrafterInfo Drafter(const std::string& name,
                    const std::string& fingerprint = "") {
  DrafterInfo info;
  info.name = name;
  info.vocabulary_fingerprint = fingerprint;
  return info;
}

class RegistryTest : public ::testing::Test {
 protected:
  Registry::Registration Join(const NodeIdentity& identity,
                              absl::Time now = kStart) {
    const auto registration = registry_.Register(identity, now);
    EXPECT_TRUE(registration.ok()) << registration.status();
    return *registration;
  }
  Registry::Registration JoinVerifier(const std::string& name,
                                      int port,
                                      const VerifierInfo& info) {
    const auto registration = Join(Identity(name, NodeRole::kVerifier, port));
    registry_.OnVerifierInfo(registration.node_id, info);
    return registration;
  }
  Registry::Registration JoinDrafter(const std::string& name,
                                     int port,
                                     const DrafterInfo& info) {
    const auto registration = Join(Identity(name, NodeRole::kDraft, port));
    registry_.OnDrafterInfo(registration.node_id, info);
    return registration;
  }
  NodeInfo Node(const std::string& node_id) {
    for (const NodeInfo& node : registry_.Nodes()) {
      if (node.node_id == node_id) return node;
    }
    return {};
  }
  NodeState State(const Registry::Registration& registration) {
    return Node(registration.node_id).state;
  }

  Registry registry_{RegistryOptions{.max_silence = absl::Seconds(3),
                                     .max_stall = absl::Seconds(2),
                                     .max_gone_nodes = 4}};
};

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
  EXPECT_EQ(registry_.FindLive("v").status().code(),
            absl::StatusCode::kNotFound);
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

TEST_F(RegistryTest, PicksLeastLoadedVerifierOfTheDigest) {
  const auto a = JoinVerifier("a", 1, Verifier("d"));
  const auto b = JoinVerifier("b", 2, Verifier("d"));
  JoinVerifier("c", 3, Verifier("other"));
  std::vector<std::string> picked;
  for (int i = 0; i < 4; ++i) {
    picked.push_back(registry_.AcquireVerifier("d", {})->identity.name);
  }
  EXPECT_THAT(picked, ElementsAre("a", "b", "a", "b"));
  // What others run there counts too.
  registry_.OnLoad(a, {.num_sequences = 5}, kStart);
  EXPECT_EQ(registry_.AcquireVerifier("d", {})->identity.name, "b");
  registry_.OnLoad(a, {.num_sequences = 0}, kStart);
  registry_.Release(a.node_id);
  EXPECT_EQ(registry_.AcquireVerifier("d", {})->identity.name, "a");
  EXPECT_EQ(Node(b.node_id).num_running, 3);
}

TEST_F(RegistryTest, LeavesOutExcludedNodes) {
  const auto a = JoinVerifier("a", 1, Verifier("d"));
  const auto b = JoinVerifier("b", 2, Verifier("d"));
  EXPECT_EQ(registry_.AcquireVerifier("d", {a.node_id})->identity.name, "b");
  EXPECT_EQ(
      registry_.AcquireVerifier("d", {a.node_id, b.node_id}).status().code(),
      absl::StatusCode::kUnavailable);
}

TEST_F(RegistryTest, PicksDrafterByVocabularyAndName) {
  JoinVerifier("v", 1, Verifier("d", "aaaa"));
  JoinVerifier("w", 2, Verifier("e", "bbbb"));
  JoinDrafter("p", 3, Drafter("ngram"));
  JoinDrafter("q", 4, Drafter("model", "aaaa"));
  EXPECT_EQ(registry_.AcquireDrafter("aaaa", "model", {})->identity.name, "q");
  EXPECT_EQ(registry_.AcquireDrafter("aaaa", "ngram", {})->identity.name, "p");
  EXPECT_EQ(registry_.AcquireDrafter("bbbb", "", {})->identity.name, "p");
  EXPECT_FALSE(registry_.AcquireDrafter("bbbb", "model", {}).ok());
  EXPECT_THAT(registry_.DrafterNames("aaaa"), ElementsAre("model", "ngram"));
  EXPECT_THAT(registry_.DrafterNames("bbbb"), ElementsAre("ngram"));
  EXPECT_EQ(registry_.CountDrafters("aaaa"), 2);
  EXPECT_TRUE(registry_.ServesDrafter("aaaa", ""));
  EXPECT_TRUE(registry_.ServesDrafter("aaaa", "model"));
  EXPECT_TRUE(registry_.ServesDrafter("bbbb", "ngram"));
  EXPECT_FALSE(registry_.ServesDrafter("bbbb", "model"));
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

TEST_F(RegistryTest, SaysWhyNoVerifierServes) {
  EXPECT_THAT(registry_.WhyNoVerifier(""), HasSubstr("has joined"));
  const auto verifier = Join(Identity("v", NodeRole::kVerifier, 1));
  registry_.OnProbeFailed(verifier.node_id,
                          absl::UnavailableError("10.0.0.1:99 refused"));
  EXPECT_THAT(registry_.WhyNoVerifier(""), HasSubstr("'v' is joining"));
  // Addresses are for operators.
  EXPECT_THAT(registry_.WhyNoVerifier(""),
              ::testing::Not(HasSubstr("10.0.0.1")));
  registry_.OnVerifierInfo(verifier.node_id, Verifier("d"));
  registry_.CheckSilence(kStart + absl::Seconds(9));
  EXPECT_THAT(registry_.WhyNoVerifier("d"), HasSubstr("'v' is suspect"));
  EXPECT_THAT(registry_.WhyNoVerifier("e"), HasSubstr("no other verifier"));
}

TEST_F(RegistryTest, AFullVerifierTakesNoMore) {
  VerifierInfo info = Verifier("digest");
  info.max_num_sequences = 1;
  info.max_queued_sequences = 1;
  const auto first = JoinVerifier("one", 1, info);
  EXPECT_TRUE(registry_.CheckRoom("digest", 2).ok());
  // More than there will ever be room for.
  EXPECT_EQ(registry_.CheckRoom("digest", 3).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(registry_.AcquireVerifier("digest", {}).ok());
  ASSERT_TRUE(registry_.AcquireVerifier("digest", {}).ok());
  for (const absl::Status& status :
       {registry_.CheckRoom("digest", 1),
        registry_.AcquireVerifier("digest", {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(RetryDelay(status).has_value());
  }
  // That there is none at all is another matter.
  EXPECT_TRUE(registry_.CheckRoom("other", 1).ok());
  JoinVerifier("two", 2, info);
  EXPECT_TRUE(registry_.CheckRoom("digest", 1).ok());
  EXPECT_EQ(registry_.AcquireVerifier("digest", {})->identity.name, "two");
  registry_.Release(first.node_id);
  EXPECT_EQ(registry_.AcquireVerifier("digest", {})->identity.name, "one");
}

TEST_F(RegistryTest, ContextAndNameAreANodesOwn) {
  VerifierInfo info = Verifier("digest");
  info.model.name = "large";
  info.model.max_model_len = 3000;
  const auto large = JoinVerifier("one", 1, info);
  info.model.name = "small";
  info.model.max_model_len = 300;
  JoinVerifier("two", 2, info);
  const Registry::Served served = registry_.ServedModel("digest");
  EXPECT_EQ(served.num_verifiers, 2);
  EXPECT_EQ(served.max_model_len, 3000);
  EXPECT_THAT(served.names, ElementsAre("large", "small"));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(registry_.AcquireVerifier("digest", {}, {.num_tokens = 301})
                  ->identity.name,
              "one");
  }
  EXPECT_EQ(
      registry_
          .AcquireVerifier("digest", {}, {.num_tokens = 100, .max_tokens = 200})
          ->identity.name,
      "two");
  const absl::Status none =
      registry_.AcquireVerifier("digest", {large.node_id}, {.num_tokens = 301})
          .status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()), HasSubstr("301"));
}

// With room in its context for sequences of any need below.
VerifierInfo RoomyVerifier(
    const std::vector<StepCosts::Point>& step_costs = {}) {
  VerifierInfo info = Verifier("digest");
  info.model.max_model_len = 4096;
  info.step_costs = StepCosts(step_costs);
  return info;
}

TEST_F(RegistryTest, RequestsOfOneAffinityShareANodeWhileThatIsWorthIt) {
  for (int i = 1; i <= 4; ++i) {
    JoinVerifier(absl::StrCat("v", i), i, RoomyVerifier());
  }
  const auto acquire = [this](uint64_t affinity) {
    const std::string node_id =
        registry_
            .AcquireVerifier(
                "digest",
                {},
                {.num_tokens = 200, .max_tokens = 50, .affinity = affinity})
            ->node_id;
    registry_.OnRead(node_id, 200);
    return node_id;
  };
  std::set<std::string> used;
  for (uint64_t affinity = 1; affinity <= 64; ++affinity) {
    const std::string first = acquire(affinity);
    registry_.Release(first);
    const std::string second = acquire(affinity);
    registry_.Release(second);
    EXPECT_EQ(first, second);
    used.insert(first);
  }
  EXPECT_EQ(used.size(), 4);
  // Reading takes longer than what one sequence more slows the passes by.
  const std::string home = acquire(5);
  EXPECT_EQ(acquire(5), home);
  EXPECT_NE(acquire(1000), home);
  for (int i = 0; i < 2; ++i) registry_.Release(home);
  // Never at the price of much more work.
  std::map<std::string, int> work;
  for (int i = 0; i < 40; ++i) {
    ++work[acquire(5)];
  }
  for (const auto& [node, count] : work) {
    EXPECT_LE(count, 14) << node;
    EXPECT_GE(count, 6) << node;
  }
  EXPECT_EQ(work.size(), 4);
}

TEST_F(RegistryTest, TheVerifierThatFinishesFirstTakesTheSequence) {
  const auto slow = JoinVerifier("slow",
                                 1,
                                 RoomyVerifier({{1, absl::Milliseconds(30)},
                                                {11, absl::Milliseconds(60)}}));
  const auto fast = JoinVerifier("fast",
                                 2,
                                 RoomyVerifier({{1, absl::Milliseconds(10)},
                                                {11, absl::Milliseconds(20)}}));
  std::map<std::string, int> work;
  const SequenceNeed need = {.num_tokens = 10, .max_tokens = 100};
  for (int i = 0; i < 60; ++i) {
    const auto node = registry_.AcquireVerifier("digest", {}, need);
    ASSERT_TRUE(node.ok());
    registry_.OnRead(node->node_id, need.num_tokens);
    ++work[node->identity.name];
  }
  // Passes of 9 + n ms against 27 + 3 n ms: alike with 50 and 10.
  EXPECT_NEAR(work["slow"], 11, 3);
  EXPECT_NEAR(work["fast"], 49, 3);
  // A long prompt that is still to be read counts, until it is read or the
  // sequence goes.
  for (int i = 0; i < 10; ++i) registry_.Release(slow.node_id);
  for (int i = 0; i < 49; ++i) registry_.Release(fast.node_id);
  const auto next = [&] {
    const auto node = registry_.AcquireVerifier("digest", {}, need);
    EXPECT_TRUE(node.ok());
    registry_.Release(node->node_id, need.num_tokens);
    return node->identity.name;
  };
  EXPECT_EQ(next(), "fast");
  const SequenceNeed lengthy = {.num_tokens = 3000, .max_tokens = 1};
  ASSERT_EQ(
      registry_.AcquireVerifier("digest", {slow.node_id}, lengthy)->node_id,
      fast.node_id);
  EXPECT_EQ(next(), "slow");
  registry_.OnRead(fast.node_id, 3000);
  EXPECT_EQ(next(), "fast");
  ASSERT_TRUE(
      registry_.AcquireVerifier("digest", {slow.node_id}, lengthy).ok());
  EXPECT_EQ(next(), "slow");
  registry_.Release(fast.node_id, 3000);
  EXPECT_EQ(next(), "fast");
}

TEST_F(RegistryTest, AVerifierThatHasBecomeSlowGetsLess) {
  const auto a = JoinVerifier("a", 1, RoomyVerifier());
  const auto b = JoinVerifier("b", 2, RoomyVerifier());
  const SequenceNeed need = {.num_tokens = 10, .max_tokens = 100};
  registry_.OnLoad(a, {.slowdown = 3}, kStart);
  registry_.OnLoad(b, {.num_sequences = 5, .slowdown = 1.1}, kStart);
  EXPECT_EQ(registry_.AcquireVerifier("digest", {}, need)->node_id, b.node_id);
  registry_.OnLoad(a, {.slowdown = 1.2}, kStart);
  EXPECT_EQ(registry_.AcquireVerifier("digest", {}, need)->node_id, a.node_id);
}

TEST_F(RegistryTest, ThoseThatWaitTellHowManyRun) {
  const std::vector<StepCosts::Point> flat = {{1, absl::Milliseconds(10)},
                                              {64, absl::Milliseconds(10)}};
  VerifierInfo info = RoomyVerifier(flat);
  info.max_num_sequences = 100;
  const auto a = JoinVerifier("a", 1, info);
  const auto b = JoinVerifier("b", 2, info);
  // Fewer, but two at a time, since there are no blocks for more.
  registry_.OnLoad(a, {.num_sequences = 8, .num_waiting = 6}, kStart);
  registry_.OnLoad(b, {.num_sequences = 12}, kStart);
  const SequenceNeed need = {.num_tokens = 10, .max_tokens = 100};
  EXPECT_EQ(registry_.AcquireVerifier("digest", {}, need)->node_id, b.node_id);
  registry_.OnLoad(a, {.num_sequences = 8}, kStart);
  EXPECT_EQ(registry_.AcquireVerifier("digest", {}, need)->node_id, a.node_id);
}

TEST_F(RegistryTest, ADraftNodeNearTheVerifierIsPreferred) {
  const auto join = [this](const std::string& name, const std::string& host) {
    NodeIdentity identity = Identity(name, NodeRole::kDraft, 4);
    identity.address = absl::StrCat(host, ":4");
    const auto registration = Join(identity);
    registry_.OnDrafterInfo(registration.node_id, Drafter("ngram"));
    return registration;
  };
  const auto far = join("far", "10.0.0.1");
  const auto near = join("near", "10.0.0.2");
  const auto beside = join("beside", "10.0.0.3");
  const auto next = [this](const std::string& verifier) {
    const auto node = registry_.AcquireDrafter("vocabulary", "", {}, verifier);
    EXPECT_TRUE(node.ok());
    registry_.Release(node->node_id);
    return node->identity.name;
  };
  // The oldest of equals.
  EXPECT_EQ(next(""), "far");
  EXPECT_EQ(next("10.0.0.3:9"), "beside");
  EXPECT_EQ(next("10.0.0.2:9"), "near");
  registry_.OnRoundTrip(far.node_id, absl::Milliseconds(20));
  registry_.OnRoundTrip(near.node_id, absl::Microseconds(200));
  registry_.OnRoundTrip(beside.node_id, absl::Milliseconds(30));
  EXPECT_EQ(Node(far.node_id).round_trip, absl::Milliseconds(20));
  EXPECT_EQ(next(""), "near");
  EXPECT_EQ(next("10.0.0.3:9"), "near");
  // Nearness has its price.
  for (int i = 0; i < 25; ++i) {
    ASSERT_TRUE(
        registry_
            .AcquireDrafter("vocabulary", "", {far.node_id, beside.node_id})
            .ok());
  }
  EXPECT_EQ(next("10.0.0.3:9"), "far");
}

TEST_F(RegistryTest, SixtyFourVerifiersAndDraftNodesStayBalanced) {
  std::vector<Registry::Registration> verifiers;
  std::vector<Registry::Registration> drafters;
  for (int i = 0; i < 64; ++i) {
    verifiers.push_back(
        JoinVerifier(absl::StrCat("v", i), 1 + i, RoomyVerifier()));
    drafters.push_back(
        JoinDrafter(absl::StrCat("d", i), 100 + i, Drafter("ngram")));
  }
  struct Sequence {
    std::string verifier;
    std::string drafter;
  };
  std::vector<Sequence> sequences;
  uint64_t state = 3;
  // 1280 sequences, of which 20 end, at random, for 20 that begin. Each of 500
  // beginnings is that of many prompts.
  for (int step = 0; step < 2000; ++step) {
    while (sequences.size() < 1280) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const SequenceNeed need = {
          .num_tokens = 20 + static_cast<int>(state >> 58),
          .max_tokens = 200,
          .affinity = 1 + (state >> 33) % 500};
      const auto verifier = registry_.AcquireVerifier("digest", {}, need);
      ASSERT_TRUE(verifier.ok());
      registry_.OnRead(verifier->node_id, need.num_tokens);
      const auto drafter = registry_.AcquireDrafter(
          "vocabulary", "", {}, verifier->identity.address);
      ASSERT_TRUE(drafter.ok());
      sequences.push_back({verifier->node_id, drafter->node_id});
    }
    if (step % 100 == 99) {
      for (const NodeInfo& node : registry_.Nodes()) {
        EXPECT_GE(node.num_running, 18) << node.identity.name;
        EXPECT_LE(node.num_running, 22) << node.identity.name;
      }
    }
    for (int i = 0; i < 20; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      std::swap(sequences[(state >> 33) % sequences.size()], sequences.back());
      registry_.Release(sequences.back().verifier);
      registry_.Release(sequences.back().drafter);
      sequences.pop_back();
    }
  }
}

TEST_F(RegistryTest, TellsWhoDraftsBesideAVerifiersOwnModel) {
  const auto beside = [this](const std::string& drafter = "") {
    return registry_.DraftsBesideModels("digest", "vocabulary", drafter);
  };
  VerifierInfo verifier = Verifier("digest");
  verifier.local_drafter = "suffix";
  JoinVerifier("lookup", 1, verifier);
  EXPECT_FALSE(beside());
  JoinDrafter("here", 2, Drafter("hybrid"));
  // A lookup is no model.
  EXPECT_FALSE(beside());
  verifier.local_drafter = "hybrid";
  JoinVerifier("both", 3, verifier);
  EXPECT_TRUE(beside());
  EXPECT_FALSE(registry_.DraftsBesideModels("other", "vocabulary", ""));
  EXPECT_FALSE(beside("model"));
  // One that has processors of its own.
  NodeIdentity there = Identity("there", NodeRole::kDraft, 4);
  there.address = "10.0.0.2:4";
  registry_.OnDrafterInfo(Join(there).node_id, Drafter("model"));
  EXPECT_FALSE(beside());
  EXPECT_FALSE(beside("model"));
  EXPECT_TRUE(beside("hybrid"));
}

}  // namespace
}  // namespace specwire::coordinator
