// SPDX-License-Identifier: Apache-2.0

// Which node takes a sequence, and who drafts for it.

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "coordinator/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/registry_test_util.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(RegistryTest, NumbersThatNoNodeHasDoNotUpsetTheSums) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  VerifierInfo info = Verifier("m");
  info.max_num_sequences = kMost;
  info.max_queued_sequences = kMost;
  info.model.max_model_len = 100;
  const auto verifier = JoinVerifier("v", 1, info);
  const auto drafter = JoinDrafter("d", 2, Drafter("suffix"));
  EXPECT_TRUE(registry_.CheckRoom("m", 16).ok());
  for (const int32_t sequences : {kMost, kLeast, -1}) {
    for (const int32_t waiting : {kMost, kLeast, 1}) {
      const NodeLoad load = {.num_sequences = sequences,
                             .num_waiting = waiting};
      EXPECT_TRUE(registry_.OnLoad(verifier, load, kStart));
      EXPECT_TRUE(registry_.OnLoad(drafter, load, kStart));
      EXPECT_GE(Node(verifier.node_id).load.num_sequences, 0);
      EXPECT_GE(Node(drafter.node_id).load.num_waiting, 0);
      EXPECT_TRUE(registry_.AcquireVerifier("m", {}, {.num_tokens = 5}).ok());
      EXPECT_TRUE(registry_.AcquireDrafter("vocabulary", "", {}, "").ok());
    }
  }
}

}  // namespace
}  // namespace specwire::coordinator
