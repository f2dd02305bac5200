// SPDX-License-Identifier: Apache-2.0

// Traced requests against fake nodes. CallGenerate checks that every trace adds
// up to the request's figures.

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

v1::GenerateRequest Traced(v1::GenerateRequest request) {
  request.set_trace(true);
  return request;
}

// Names of those who drafted, "drafter@node".
std::set<std::string> Drafters(const GenerateResult& result) {
  std::set<std::string> names;
  for (const v1::PassTrace& pass : result.trace) {
    for (const v1::DraftTrace& run : pass.drafts()) {
      names.insert(run.drafter() + "@" + run.node());
    }
  }
  return names;
}

// Nothing is told that was not asked for, and asking changes no token.
TEST(TraceTest, OnlyWhereItIsAskedFor) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 5});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  for (const bool speculate : {true, false}) {
    v1::GenerateRequest request = GreedyRequest("hello", 60);
    request.mutable_speculation()->set_enabled(speculate);
    const GenerateResult off = cluster.Generate(request);
    ExpectComplete(off, "hello", 60);
    EXPECT_TRUE(off.trace.empty());
    const GenerateResult on = cluster.Generate(Traced(request));
    ExpectComplete(on, "hello", 60);
    EXPECT_EQ(on.text, off.text);
    EXPECT_EQ(static_cast<int64_t>(on.trace.size()),
              on.finished.speculation().num_passes() + 1);
  }
}

TEST(TraceTest, TellsWhoDraftedWhatAndWhen) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 5});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const GenerateResult result =
      cluster.Generate(Traced(LockStep(GreedyRequest("hello", 60), 4)));
  ExpectComplete(result, "hello", 60);
  EXPECT_EQ(Drafters(result), std::set<std::string>{"oracle@draft-1"});
  int position = 5;
  int64_t end = 0;
  int num_rejected = 0;
  for (const v1::PassTrace& pass : result.trace) {
    EXPECT_EQ(pass.position(), position);
    EXPECT_EQ(pass.verifier(), "verifier-1");
    position += pass.choices_size();
    for (const v1::ChoiceTrace& choice : pass.choices()) {
      EXPECT_EQ(choice.token_bytes(),
                Decode({choice.token_id()}, false) == "\xEF\xBF\xBD"
                    ? std::string(1, static_cast<char>(choice.token_id()))
                    : Decode({choice.token_id()}, false));
    }
    if (pass.choices().empty()) continue;
    // In order, and within one another.
    EXPECT_GE(pass.timings().end_us(), end);
    end = pass.timings().end_us();
    EXPECT_LE(pass.timings().start_us() + pass.timings().verify_us(), end);
    for (const v1::DraftTrace& run : pass.drafts()) {
      for (const v1::DraftTokenTrace& draft : run.tokens()) {
        if (draft.outcome() != v1::DRAFT_OUTCOME_REJECTED) continue;
        // The target's own stands in its place.
        ++num_rejected;
        EXPECT_EQ(draft.position(), position - 1);
        EXPECT_NE(draft.token_id(), pass.choices().rbegin()->token_id());
      }
    }
  }
  EXPECT_GT(num_rejected, 0);
}

TEST(TraceTest, OfEachOfSeveralChoices) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 3});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  v1::GenerateRequest request = Traced(GreedyRequest("hello", 40));
  request.set_n(3);
  for (const GenerateResult& one :
       CallGenerateChoices(cluster.generation(), request)) {
    ExpectComplete(one, "hello", 40);
    EXPECT_FALSE(one.trace.empty());
  }
}

TEST(TraceTest, OfAResumedRequestTellsOfTheNewTokens) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 5});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const std::vector<int32_t> whole = FakeModel().Complete(Ids("hello"), 40);
  v1::GenerateRequest request = Traced(GreedyRequest("hello", 40));
  for (int i = 0; i < 13; ++i) {
    request.add_resume_token_ids(whole[static_cast<size_t>(i)]);
  }
  std::vector<v1::PassTrace> trace;
  const GenerateResult result =
      cluster.Generate(request, [&](const v1::GenerateDelta& delta) {
        trace.insert(trace.end(), delta.trace().begin(), delta.trace().end());
        return true;
      });
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_FALSE(trace.empty());
  EXPECT_EQ(trace[0].position(), 5 + 13);
}

TEST(TraceTest, GoesOnWithAnotherVerifierAndAnotherDrafter) {
  InProcessCluster cluster;
  cluster.AddVerifier({.name = "verifier-1", .lose_streams_after = 20});
  cluster.AddVerifier({.name = "verifier-2", .lose_streams_after = 20});
  cluster.AddVerifier({.name = "verifier-3"});
  // Whoever is asked first is lost, and then the other.
  for (const char* name : {"draft-1", "draft-2"}) {
    cluster.AddDrafter(
        {.name = name, .wrong_every = 5, .lose_streams_after = 4});
  }
  ASSERT_TRUE(cluster.WaitServing(3, 2));
  std::set<std::string> verifiers;
  std::set<std::string> drafters;
  for (int i = 0; i < 8; ++i) {
    const GenerateResult result =
        cluster.Generate(Traced(LockStep(GreedyRequest("hello", 60), 4)));
    ExpectComplete(result, "hello", 60);
    for (const v1::PassTrace& pass : result.trace) {
      verifiers.insert(pass.verifier());
    }
    drafters.merge(Drafters(result));
  }
  EXPECT_GE(verifiers.size(), 2u);
  EXPECT_EQ(drafters.size(), 2u);
}

TEST(TraceTest, TellsTheVerifiersOwnDraftsFromOthers) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.model.period = 20;
  options.local_drafter = "suffix";
  options.step_time = absl::Milliseconds(1);
  cluster.AddVerifier(options);
  cluster.AddDrafter({.model = options.model, .wrong_every = 7});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const GenerateResult result =
      cluster.Generate(Traced(GreedyRequest("hello", 400)));
  ExpectComplete(result, "hello", 400, options.model);
  EXPECT_TRUE(Drafters(result).contains("local@verifier-1"));
  int64_t local = 0;
  for (const v1::PassTrace& pass : result.trace) {
    for (const v1::DraftTrace& run : pass.drafts()) {
      if (run.drafter() == "local") local += run.tokens_size();
    }
  }
  EXPECT_EQ(local, result.finished.speculation().num_local_draft_tokens());
}

}  // namespace
}  // namespace specwire::coordinator
