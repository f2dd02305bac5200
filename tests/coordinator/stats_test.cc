// SPDX-License-Identifier: Apache-2.0

// GetStats tells what replies and /metrics tell.

#include "coordinator/stats.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;

v1::GetStatsResponse GetStats(InProcessCluster* cluster) {
  grpc::ClientContext context;
  v1::GetStatsResponse response;
  const grpc::Status status =
      cluster->cluster()->GetStats(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

int64_t CountOf(
    const google::protobuf::RepeatedPtrField<v1::NamedCount>& counts,
    const std::string& name) {
  int64_t sum = 0;
  for (const v1::NamedCount& count : counts) {
    if (count.name() == name) sum += count.count();
  }
  return sum;
}

// Adds the counts, all but rates, of `stats` to `sum`.
void Add(const v1::SpeculationStats& stats, v1::SpeculationStats* sum) {
  sum->set_num_spec_steps(sum->num_spec_steps() + stats.num_spec_steps());
  sum->set_num_draft_tokens(sum->num_draft_tokens() + stats.num_draft_tokens());
  sum->set_num_accepted_draft_tokens(sum->num_accepted_draft_tokens() +
                                     stats.num_accepted_draft_tokens());
  sum->set_num_passes(sum->num_passes() + stats.num_passes());
  sum->set_num_drafted_tokens(sum->num_drafted_tokens() +
                              stats.num_drafted_tokens());
  sum->set_num_overlapped_tokens(sum->num_overlapped_tokens() +
                                 stats.num_overlapped_tokens());
  sum->set_num_stale_tokens(sum->num_stale_tokens() + stats.num_stale_tokens());
  sum->set_num_trimmed_tokens(sum->num_trimmed_tokens() +
                              stats.num_trimmed_tokens());
  sum->set_num_unused_tokens(sum->num_unused_tokens() +
                             stats.num_unused_tokens());
  sum->set_num_ahead_hits(sum->num_ahead_hits() + stats.num_ahead_hits());
  sum->set_num_ahead_misses(sum->num_ahead_misses() + stats.num_ahead_misses());
  for (int i = 0; i < stats.acceptance_histogram_size(); ++i) {
    if (i == sum->acceptance_histogram_size()) sum->add_acceptance_histogram(0);
    sum->set_acceptance_histogram(
        i, sum->acceptance_histogram(i) + stats.acceptance_histogram(i));
  }
}

void ExpectEqualCounts(const v1::SpeculationStats& got,
                       const v1::SpeculationStats& want) {
  EXPECT_EQ(got.num_spec_steps(), want.num_spec_steps());
  EXPECT_EQ(got.num_draft_tokens(), want.num_draft_tokens());
  EXPECT_EQ(got.num_accepted_draft_tokens(), want.num_accepted_draft_tokens());
  EXPECT_EQ(got.num_drafted_tokens(), want.num_drafted_tokens());
  EXPECT_EQ(got.num_overlapped_tokens(), want.num_overlapped_tokens());
  EXPECT_EQ(got.num_stale_tokens(), want.num_stale_tokens());
  EXPECT_EQ(got.num_trimmed_tokens(), want.num_trimmed_tokens());
  EXPECT_EQ(got.num_unused_tokens(), want.num_unused_tokens());
  EXPECT_EQ(got.num_ahead_hits(), want.num_ahead_hits());
  EXPECT_EQ(got.num_ahead_misses(), want.num_ahead_misses());
}

TEST(StatsTest, NothingHasHappenedYet) {
  InProcessCluster cluster;
  const v1::GetStatsResponse stats = GetStats(&cluster);
  EXPECT_EQ(stats.requests_size(), 0);
  EXPECT_EQ(stats.failures_size(), 0);
  EXPECT_EQ(stats.pairs_size(), 0);
  EXPECT_EQ(stats.usage().prompt_tokens(), 0);
  EXPECT_EQ(stats.total().num_drafted_tokens(), 0);
}

TEST(StatsTest, TellsOfRequestsThatRunAndOfRestarts) {
  InProcessCluster cluster;
  FakeVerifierOptions slow;
  slow.step_time = absl::Milliseconds(2);
  cluster.AddVerifier(slow);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  int num_running = 0;
  const GenerateResult result = cluster.Generate(
      GreedyRequest("hello", 200), [&](const v1::GenerateDelta& delta) {
        if (delta.first_index() == 0) {
          num_running = GetStats(&cluster).num_requests_running();
        }
        return true;
      });
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(num_running, 1);
  // 200 passes have taken that long.
  EXPECT_GE(GetStats(&cluster).uptime_ms(), 400);
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  const v1::GetStatsResponse stats = GetStats(&cluster);
  EXPECT_EQ(stats.num_generation_tokens(), 0);
}

TEST(StatsTest, TotalsAreTheSumsOfReplies) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 4});
  cluster.AddDrafter({.name = "draft-2", .drafter = "bad", .wrong_every = 2});
  ASSERT_TRUE(cluster.WaitServing(1, 2));
  v1::SpeculationStats sum;
  v1::SpeculationStats sums[2];
  for (int i = 0; i < 6; ++i) {
    v1::GenerateRequest request = GreedyRequest(absl::StrCat("prompt ", i), 60);
    request.mutable_speculation()->set_drafter(i % 2 == 0 ? "oracle" : "bad");
    // Ahead of what is committed, so that there are stale and unused tokens.
    request.mutable_speculation()->set_window(16);
    // And used whether or not they pay.
    request.mutable_speculation()->set_patience_us(50'000);
    const GenerateResult result = cluster.Generate(request);
    ExpectComplete(result, absl::StrCat("prompt ", i), 60);
    Add(result.finished.speculation(), &sum);
    Add(result.finished.speculation(), &sums[i % 2]);

    const v1::GetStatsResponse stats = GetStats(&cluster);
    ExpectEqualCounts(stats.total(), sum);
    EXPECT_EQ(stats.total().num_passes(), sum.num_passes());
    EXPECT_THAT(
        std::vector<int64_t>(stats.total().acceptance_histogram().begin(),
                             stats.total().acceptance_histogram().end()),
        ::testing::ElementsAreArray(sum.acceptance_histogram()));
    EXPECT_EQ(CountOf(stats.requests(), "length"), i + 1);
    EXPECT_EQ(stats.usage().completion_tokens(), 60 * (i + 1));
    EXPECT_EQ(stats.usage().prompt_tokens(), 8 * (i + 1));
    EXPECT_EQ(stats.num_generation_tokens(), 60 * (i + 1));
    EXPECT_EQ(stats.num_prompt_tokens(), 8 * (i + 1));
    EXPECT_EQ(stats.num_requests_running(), 0);
    EXPECT_EQ(stats.num_requests_waiting(), 0);
  }
  EXPECT_GT(sum.num_stale_tokens(), 0);
  const v1::GetStatsResponse stats = GetStats(&cluster);
  ASSERT_EQ(stats.pairs_size(), 2);
  for (int i = 0; i < 2; ++i) {
    const v1::PairStats& pair = stats.pairs(i);
    EXPECT_EQ(pair.draft_node(), absl::StrCat("draft-", i + 1));
    EXPECT_EQ(pair.verifier_node(), "verifier-1");
    EXPECT_EQ(pair.model(), "fake");
    ExpectEqualCounts(pair.stats(), sums[i]);
    EXPECT_DOUBLE_EQ(pair.stats().draft_acceptance_rate(),
                     static_cast<double>(sums[i].num_accepted_draft_tokens()) /
                         static_cast<double>(sums[i].num_draft_tokens()));
  }
  EXPECT_EQ(static_cast<double>(stats.total().num_stale_tokens()),
            cluster.Metric("specwire_spec_decode_num_unverified_tokens_total",
                           "reason=\"stale\""));
}

TEST(StatsTest, EndsAndFailuresAreCountedByName) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.eos_position = 25;
  verifier.step_time = absl::Milliseconds(1);
  cluster.AddVerifier(verifier);
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  cluster.Generate(GreedyRequest("hello", 100));
  cluster.Generate(GreedyRequest("hello", 3));
  cluster.Generate(GreedyRequest("hello", 5000));
  v1::GenerateRequest long_request = GreedyRequest("hello", 4000);
  long_request.mutable_stop()->set_ignore_eos(true);
  cluster.Generate(long_request,
                   [](const v1::GenerateDelta&) { return false; });
  v1::GetStatsResponse stats;
  EXPECT_TRUE(Eventually([&] {
    stats = GetStats(&cluster);
    return CountOf(stats.failures(), "CANCELLED") == 1;
  }));
  EXPECT_EQ(CountOf(stats.requests(), "stop"), 1);
  EXPECT_EQ(CountOf(stats.requests(), "length"), 1);
  EXPECT_EQ(CountOf(stats.failures(), "INVALID_ARGUMENT"), 1);
}

TEST(StatsTest, CancelledRequestsCountToo) {
  InProcessCluster cluster;
  cluster.AddVerifier({.step_time = absl::Milliseconds(1)});
  cluster.AddDrafter({.wrong_every = 2});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  int64_t seen = 0;
  cluster.Generate(GreedyRequest("hello", 4000),
                   [&](const v1::GenerateDelta& delta) {
                     seen += delta.token_ids_size();
                     return seen < 50;
                   });
  EXPECT_TRUE(
      Eventually([&] { return cluster.coordinator()->num_requests() == 0; }));
  const v1::SpeculationStats total = GetStats(&cluster).total();
  EXPECT_GT(total.num_draft_tokens(), 0);
  // Whatever was in flight at the end is among them; there may have been
  // nothing.
  EXPECT_EQ(total.num_drafted_tokens(),
            total.num_draft_tokens() + total.num_overlapped_tokens() +
                total.num_stale_tokens() + total.num_trimmed_tokens() +
                total.num_unused_tokens());
}

TEST(StatsTest, HistogramComesFromTheCountsByPlace) {
  // Seven steps: three accepted nothing, one 1 token, three 2 tokens.
  const std::vector<CounterValue> counters = {
      {"specwire_spec_decode_num_drafts_total",
       {{"draft_node", "d"}, {"verifier_node", "v"}, {"model_name", "m"}},
       7},
      {"specwire_spec_decode_num_accepted_tokens_per_pos_total",
       {{"position", "0"}, {"model_name", "m"}},
       4},
      {"specwire_spec_decode_num_accepted_tokens_per_pos_total",
       {{"position", "1"}, {"model_name", "m"}},
       3}};
  const v1::GetStatsResponse stats = MakeStatsResponse(counters);
  EXPECT_THAT(stats.total().acceptance_histogram(), ElementsAre(3, 1, 3));
  EXPECT_EQ(stats.total().num_spec_steps(), 7);
  ASSERT_EQ(stats.pairs_size(), 1);
  EXPECT_EQ(stats.pairs(0).stats().num_spec_steps(), 7);
}

}  // namespace
}  // namespace specwire::coordinator
