// SPDX-License-Identifier: Apache-2.0

// Several completions of one request, against fake nodes.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

std::vector<GenerateResult> Generate(InProcessCluster* cluster,
                                     const v1::GenerateRequest& request) {
  return CallGenerateChoices(cluster->generation(), request);
}

v1::GenerateRequest Several(v1::GenerateRequest request, int n) {
  request.set_n(n);
  return request;
}

TEST(ChoicesTest, GreedyChoicesAreEqualAndEachIsComplete) {
  InProcessCluster cluster;
  FakeVerifier* verifier = cluster.AddVerifier();
  FakeDrafter* drafter = cluster.AddDrafter({.wrong_every = 5});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  for (const int n : {1, 2, 5, 16}) {
    const std::vector<GenerateResult> results =
        Generate(&cluster, Several(GreedyRequest("hello", 60), n));
    ASSERT_EQ(results.size(), static_cast<size_t>(n));
    for (const GenerateResult& one : results) ExpectComplete(one, "hello", 60);
  }
  EXPECT_TRUE(Eventually(
      [&] { return verifier->num_open() == 0 && drafter->num_open() == 0; }));
  // A request is one, however many completions it has; so is its prompt.
  EXPECT_EQ(cluster.Metric("specwire_request_success_total"), 4);
  EXPECT_EQ(cluster.Metric("specwire_prompt_tokens_total"), 4 * 5);
  EXPECT_EQ(cluster.Metric("specwire_generation_tokens_total"), 24 * 60);
  EXPECT_EQ(cluster.Metric("specwire_num_requests_running"), 0);
}

TEST(ChoicesTest, MessagesOfAllChoicesAreMixed) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(1);
  cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  std::vector<int> order;
  CallGenerateChoices(cluster.generation(),
                      Several(GreedyRequest("hello", 50), 3),
                      [&order](const v1::GenerateDelta& delta) {
                        order.push_back(delta.choice());
                        return true;
                      });
  int changes = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    changes += order[i] != order[i - 1] ? 1 : 0;
  }
  EXPECT_GT(changes, 10);
}

TEST(ChoicesTest, EveryChoiceStopsByItself) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const std::vector<int32_t> plain = FakeModel().Complete(Ids("hello"), 50);
  v1::GenerateRequest request = Several(GreedyRequest("hello", 50), 3);
  request.mutable_stop()->add_stop(
      Decode({plain.begin() + 20, plain.begin() + 24}));
  request.set_n(1);
  const GenerateResult alone = cluster.Generate(request);
  request.set_n(3);
  for (const GenerateResult& one : Generate(&cluster, request)) {
    ASSERT_TRUE(one.status.ok()) << one.status;
    EXPECT_EQ(one.fault, "");
    EXPECT_EQ(one.token_ids, alone.token_ids);
    EXPECT_EQ(one.text, alone.text);
    EXPECT_EQ(one.finished.stop_text(), alone.finished.stop_text());
  }
}

TEST(ChoicesTest, CancelReachesAllChoices) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(1);
  FakeVerifier* verifier = cluster.AddVerifier(options);
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  size_t seen = 0;
  const std::vector<GenerateResult> results =
      CallGenerateChoices(cluster.generation(),
                          Several(GreedyRequest("hello", 4000), 4),
                          [&seen](const v1::GenerateDelta& delta) {
                            seen += static_cast<size_t>(delta.token_ids_size());
                            return seen < 50;
                          });
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(verifier->num_opened(), 4);
  EXPECT_TRUE(Eventually([&] {
    return verifier->num_open() == 0 && drafter->num_open() == 0 &&
           cluster.coordinator()->num_requests() == 0;
  }));
  EXPECT_EQ(cluster.Metric("specwire_request_failure_total", "CANCELLED"), 1);
  EXPECT_EQ(cluster.Metric("specwire_num_requests_running"), 0);
}

TEST(ChoicesTest, AChoiceThatFailsFailsTheCall) {
  InProcessCluster cluster;
  // All streams are lost, and there is no other verifier.
  FakeVerifier* verifier = cluster.AddVerifier({.lose_streams_after = 20});
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const std::vector<GenerateResult> results =
      Generate(&cluster, Several(GreedyRequest("hello", 50), 3));
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] {
    return verifier->num_open() == 0 && drafter->num_open() == 0 &&
           cluster.coordinator()->num_requests() == 0;
  }));
  EXPECT_EQ(cluster.Metric("specwire_request_failure_total"), 1);
  EXPECT_EQ(cluster.Metric("specwire_request_success_total"), 0);
}

TEST(ChoicesTest, ChoicesMoveToAnotherVerifierEachByItself) {
  InProcessCluster cluster;
  cluster.AddVerifier({.lose_streams_after = 20});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  cluster.AddVerifier({.name = "verifier-2"});
  ASSERT_TRUE(cluster.WaitServing(2, 0));
  for (const GenerateResult& one :
       Generate(&cluster, Several(GreedyRequest("hello", 60), 6))) {
    ExpectComplete(one, "hello", 60);
  }
}

// Credit is each choice's own: one that is held does not starve the others.
TEST(ChoicesTest, ASlowReaderGetsEveryChoiceInFull) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.credit = 16;
  InProcessCluster cluster(options);
  FakeVerifier* verifier = cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = Several(GreedyRequest("hello", 4000), 4);
  bool slept = false;
  const std::vector<GenerateResult> results = CallGenerateChoices(
      cluster.generation(), request, [&](const v1::GenerateDelta&) {
        if (!slept) absl::SleepFor(absl::Milliseconds(300));
        slept = true;
        return true;
      });
  for (const GenerateResult& one : results) {
    ExpectComplete(one, "hello", 4000);
  }
  EXPECT_EQ(verifier->num_committed(), 4 * 4000);
}

TEST(ChoicesTest, SeveralCannotBeResumed) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = Several(GreedyRequest("hello", 50), 2);
  request.add_resume_token_ids('a');
  const absl::Status status = Generate(&cluster, request)[0].status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("n: 2"));
}

}  // namespace
}  // namespace specwire::coordinator
