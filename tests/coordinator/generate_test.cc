// SPDX-License-Identifier: Apache-2.0

// Generate against fake nodes, over real gRPC: the stream, the figures, credit,
// limits. What happens when nodes fail is in node_loss_test.cc.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(GenerateTest, PlainStreamIsCompleteAndOrdered) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 200);
  request.mutable_speculation()->set_enabled(false);
  const GenerateResult result = cluster.Generate(request);
  ExpectComplete(result, "hello", 200);
  EXPECT_EQ(result.finished.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(result.finished.matched_case(),
            v1::GenerateFinished::MATCHED_NOT_SET);
  EXPECT_EQ(result.finished.speculation().num_passes(), 200);
  EXPECT_EQ(result.finished.speculation().num_drafted_tokens(), 0);
  EXPECT_EQ(result.finished.speculation().drafter(), "");
}

TEST(GenerateTest, FirstMessageTellsEveryValueInForce) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 3);
  GenerateResult result = cluster.Generate(request);
  const v1::GenerateStarted& started = result.started;
  EXPECT_EQ(started.model(), "fake");
  EXPECT_EQ(started.model_digest(), FakeModel().Info().model_digest);
  EXPECT_NE(started.request_id(), "");
  EXPECT_TRUE(started.sampling().has_seed());
  EXPECT_EQ(started.sampling().temperature(), 0);
  EXPECT_EQ(started.sampling().top_p(), 1);
  EXPECT_EQ(started.stop().max_tokens(), 3);
  EXPECT_TRUE(started.speculation().enabled());
  EXPECT_EQ(started.speculation().max_draft_tokens(), 4);
  EXPECT_EQ(started.speculation().window(), 8);
  EXPECT_EQ(started.speculation().patience_us(), 10000);
  EXPECT_EQ(started.speculation().rule(), v1::ACCEPTANCE_RULE_COUPLED);
  EXPECT_EQ((std::vector<int32_t>{started.prompt_token_ids().begin(),
                                  started.prompt_token_ids().end()}),
            Ids("hello"));
  request.set_request_id("mine");
  request.mutable_sampling()->set_seed(42);
  result = cluster.Generate(request);
  EXPECT_EQ(result.started.request_id(), "mine");
  EXPECT_EQ(result.started.sampling().seed(), 42);
}

TEST(GenerateTest, LockStepWithPerfectDrafterTakesRunLengthPlusOneAPass) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  for (const int run_length : {1, 2, 4, 8}) {
    const int tokens = 10 * (run_length + 1);
    const GenerateResult result =
        cluster.Generate(LockStep(GreedyRequest("hello", tokens), run_length));
    ExpectComplete(result, "hello", tokens);
    const v1::SpeculationStats& stats = result.finished.speculation();
    EXPECT_EQ(stats.num_passes(), 10);
    EXPECT_EQ(stats.num_draft_tokens(), 10 * run_length);
    EXPECT_EQ(stats.draft_acceptance_rate(), 1);
    EXPECT_EQ(stats.mean_acceptance_length(), 1 + run_length);
    EXPECT_EQ(stats.num_spec_tokens(), run_length);
    EXPECT_EQ(stats.drafter(), "oracle");
    ASSERT_EQ(stats.acceptance_histogram_size(), run_length + 1);
    EXPECT_EQ(stats.acceptance_histogram(run_length), 10);
  }
}

TEST(GenerateTest, SameTextWithAnyDrafterRunLengthAndPatience) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  for (const int wrong_every : {0, 1, 2, 3, 7}) {
    FakeDrafterOptions drafter;
    drafter.name = absl::StrCat("draft-", wrong_every);
    drafter.drafter = absl::StrCat("wrong-", wrong_every);
    drafter.wrong_every = wrong_every;
    cluster.AddDrafter(drafter);
  }
  ASSERT_TRUE(cluster.WaitServing(1, 5));
  for (const int wrong_every : {0, 1, 2, 3, 7}) {
    for (const int run_length : {1, 3, 8}) {
      for (const int64_t patience_us : {-1, 0, 2000}) {
        v1::GenerateRequest request = GreedyRequest("hello", 60);
        v1::Speculation* speculation = request.mutable_speculation();
        speculation->set_drafter(absl::StrCat("wrong-", wrong_every));
        speculation->set_max_draft_tokens(run_length);
        speculation->set_patience_us(patience_us);
        SCOPED_TRACE(
            absl::StrCat(wrong_every, " ", run_length, " ", patience_us));
        ExpectComplete(cluster.Generate(request), "hello", 60);
      }
    }
  }
}

TEST(GenerateTest, EndsAtEosWithItsIdAndNoTextOfIt) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.eos_position = 25;
  cluster.AddVerifier(verifier);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 100));
  ExpectComplete(result, "hello", 100, verifier.model);
  EXPECT_EQ(result.token_ids.size(), 21u);
  EXPECT_EQ(result.token_ids.back(), FakeModel::kEos);
  EXPECT_EQ(result.finished.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.finished.eos_token_id(), FakeModel::kEos);
  // Special tokens are told as text on request.
  v1::GenerateRequest request = GreedyRequest("hello", 100);
  request.set_skip_special_tokens(false);
  const GenerateResult special = cluster.Generate(request);
  EXPECT_EQ(special.text, Decode(result.token_ids, false));
  // EOS is a token like any other if so wanted.
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_EQ(cluster.Generate(request).token_ids.size(), 100u);
}

TEST(GenerateTest, EndsAtStopToken) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const std::vector<int32_t> plain = FakeModel().Complete(Ids("hello"), 50);
  v1::GenerateRequest request = GreedyRequest("hello", 50);
  request.mutable_stop()->add_stop_token_ids(plain[20]);
  const GenerateResult result = cluster.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const auto first = std::find(plain.begin(), plain.end(), plain[20]);
  EXPECT_EQ(result.token_ids, (std::vector<int32_t>{plain.begin(), first + 1}));
  EXPECT_EQ(result.finished.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.finished.stop_token_id(), plain[20]);
}

TEST(GenerateTest, WithoutMaxTokensTheContextEndsIt) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.max_model_len = 100;
  cluster.AddVerifier(verifier);
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  v1::GenerateRequest request = GreedyRequest("hello", 1);
  request.mutable_stop()->clear_max_tokens();
  const GenerateResult result = cluster.Generate(request);
  ExpectComplete(result, "hello", 95);
  EXPECT_EQ(result.finished.finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST(GenerateTest, CancelClosesBothNodeStreams) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(1);
  FakeVerifier* verifier = cluster.AddVerifier(options);
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  for (const size_t stop_after : {1, 30, 100}) {
    size_t seen = 0;
    const GenerateResult result = cluster.Generate(
        GreedyRequest("hello", 4000), [&](const v1::GenerateDelta& delta) {
          seen += static_cast<size_t>(delta.token_ids_size());
          return seen < stop_after;
        });
    EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(Eventually([&] {
      return verifier->num_open() == 0 && drafter->num_open() == 0 &&
             cluster.coordinator()->num_requests() == 0;
    }));
  }
  EXPECT_EQ(cluster.Metric("specwire_request_failure_total", "CANCELLED"), 3);
  EXPECT_EQ(cluster.Metric("specwire_num_requests_running"), 0);
  EXPECT_EQ(cluster.Metric("specwire_num_requests_waiting"), 0);
}

TEST(GenerateTest, DeadlineClosesBothNodeStreams) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(5);
  FakeVerifier* verifier = cluster.AddVerifier(options);
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const GenerateResult result = cluster.Generate(
      GreedyRequest("hello", 4000), nullptr, absl::Milliseconds(200));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually(
      [&] { return verifier->num_open() == 0 && drafter->num_open() == 0; }));
}

TEST(GenerateTest, NoVerifierIsUnavailableWithReason) {
  InProcessCluster cluster;
  GenerateResult result = cluster.Generate(GreedyRequest("hello", 5));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("no verifier node has joined"));
  FakeVerifier* verifier = cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  verifier->Kill();
  ASSERT_TRUE(cluster.WaitServing(0, 0));
  result = cluster.Generate(GreedyRequest("hello", 5));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("'verifier-1' is gone"));
}

TEST(GenerateTest, BadRequestIsRefusedAndTheNextOneServed) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const GenerateResult bad = cluster.Generate(GreedyRequest("hello", 5000));
  EXPECT_EQ(bad.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status.message()), HasSubstr("stop.max_tokens"));
  v1::GenerateRequest unknown = GreedyRequest("hello", 5);
  unknown.set_model("unknown");
  EXPECT_EQ(cluster.Generate(unknown).status.code(),
            absl::StatusCode::kNotFound);
  ExpectComplete(cluster.Generate(GreedyRequest("hello", 5)), "hello", 5);
  EXPECT_EQ(
      cluster.Metric("specwire_request_failure_total", "INVALID_ARGUMENT"), 1);
}

// Its transport window does not grow with the bandwidth.
std::unique_ptr<v1::GenerationService::Stub> NarrowStub(
    InProcessCluster* cluster) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return v1::GenerationService::NewStub(
      grpc::CreateCustomChannel(cluster->coordinator()->address(),
                                grpc::InsecureChannelCredentials(),
                                arguments));
}

TEST(GenerateTest, SlowReaderIsHeldBackByCredit) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.credit = 32;
  InProcessCluster cluster(options);
  FakeVerifierOptions verifier_options;
  verifier_options.model.max_model_len = 400000;
  FakeVerifier* verifier = cluster.AddVerifier(verifier_options);
  cluster.AddDrafter({.model = verifier_options.model});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const auto stub = NarrowStub(&cluster);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  const auto reader = stub->Generate(&context, GreedyRequest("hello", 300000));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // Not reading: what transport windows hold is generated, then no more.
  int64_t before = -1;
  ASSERT_TRUE(Eventually(
      [&] {
        absl::SleepFor(absl::Milliseconds(300));
        return std::exchange(before, verifier->num_committed()) ==
               verifier->num_committed();
      },
      absl::Seconds(40)));
  EXPECT_LT(before, 50000);
  // It goes on as soon as the client reads.
  std::vector<int32_t> ids;
  while (static_cast<int64_t>(ids.size()) < before + 1000 &&
         reader->Read(&response)) {
    ids.insert(ids.end(),
               response.delta().token_ids().begin(),
               response.delta().token_ids().end());
  }
  EXPECT_GE(static_cast<int64_t>(ids.size()), before + 1000);
  const std::vector<int32_t> prompt = Ids("hello");
  EXPECT_EQ(
      ids,
      verifier_options.model.Complete(prompt, static_cast<int>(ids.size())));
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  reader->Finish();
  EXPECT_TRUE(Eventually([&] { return verifier->num_open() == 0; }));
}

TEST(GenerateTest, ANodeWhoseContextIsTooShortIsPassedOver) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.model.max_model_len = 100;
  FakeVerifier* small = cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  EXPECT_EQ(cluster.Generate(GreedyRequest("hello", 500)).status.code(),
            absl::StatusCode::kInvalidArgument);
  options.model.max_model_len = 1000;
  options.name = "verifier-2";
  cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(2, 0));
  for (int i = 0; i < 3; ++i) {
    ExpectComplete(cluster.Generate(GreedyRequest("hello", 500)), "hello", 500);
  }
  EXPECT_EQ(small->num_opened(), 0);
  ExpectComplete(cluster.Generate(GreedyRequest("hello", 50)), "hello", 50);
  EXPECT_EQ(small->num_opened(), 1);
}

TEST(GenerateTest, TellsThatTheRequestIsAliveIfItIsAsked) {
  InProcessCluster cluster;
  cluster.AddVerifier({.step_time = absl::Seconds(1)});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const auto stub = NarrowStub(&cluster);
  for (const bool asks : {false, true}) {
    v1::GenerateRequest request = GreedyRequest("hello", 2);
    if (asks) request.set_alive_interval_ms(100);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.started().alive_interval_ms(), asks ? 100 : 0);
    int num_alive = 0;
    while (reader->Read(&response)) num_alive += response.has_alive() ? 1 : 0;
    EXPECT_TRUE(reader->Finish().ok());
    // Two passes, in each of which there is time for nine.
    EXPECT_GE(num_alive, asks ? 2 : 0);
    EXPECT_LE(num_alive, asks ? 1000 : 0);
  }
  for (const int interval_ms : {-1, 0, 99, 60001}) {
    v1::GenerateRequest request = GreedyRequest("hello", 2);
    request.set_alive_interval_ms(interval_ms);
    const absl::Status status = cluster.Generate(request).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("alive_interval_ms"));
  }
}

TEST(GenerateTest, AClientThatNeverReadsIsDropped) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.credit = 32;
  options.client_stall = absl::Milliseconds(500);
  InProcessCluster cluster(options);
  FakeVerifierOptions verifier_options;
  verifier_options.model.max_model_len = 400000;
  FakeVerifier* verifier = cluster.AddVerifier(verifier_options);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const auto stub = NarrowStub(&cluster);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  const auto reader = stub->Generate(&context, GreedyRequest("hello", 300000));
  ASSERT_TRUE(Eventually([&] { return verifier->num_open() == 1; }));
  // Others are served meanwhile.
  ExpectComplete(cluster.Generate(GreedyRequest("hello", 50)), "hello", 50);
  EXPECT_TRUE(Eventually(
      [&] {
        return verifier->num_open() == 0 &&
               cluster.coordinator()->num_requests() == 0;
      },
      absl::Seconds(40)));
  EXPECT_EQ(cluster.Metric("specwire_request_failure_total", "ABORTED"), 1);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(GenerateTest, HundredRequestsAtOnce) {
  InProcessCluster cluster;
  FakeVerifier* first = cluster.AddVerifier();
  FakeVerifier* second = cluster.AddVerifier({.name = "verifier-2"});
  FakeDrafter* drafter = cluster.AddDrafter({.wrong_every = 3});
  ASSERT_TRUE(cluster.WaitServing(2, 1));
  std::vector<std::thread> clients;
  std::vector<GenerateResult> results(100);
  for (size_t i = 0; i < results.size(); ++i) {
    clients.emplace_back([&, i] {
      results[i] =
          cluster.Generate(GreedyRequest(absl::StrCat("request ", i), 100),
                           nullptr,
                           absl::Seconds(60));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < results.size(); ++i) {
    ExpectComplete(results[i], absl::StrCat("request ", i), 100);
  }
  EXPECT_EQ(first->num_opened() + second->num_opened(), 100);
  EXPECT_GT(first->num_opened(), 10);
  EXPECT_GT(second->num_opened(), 10);
  EXPECT_TRUE(Eventually([&] {
    return first->num_open() == 0 && second->num_open() == 0 &&
           drafter->num_open() == 0;
  }));
  // Whatever ran on a node has been given back.
  EXPECT_TRUE(Eventually([&] {
    for (const NodeInfo& node : cluster.coordinator()->registry().Nodes()) {
      if (node.num_running != 0) return false;
    }
    return true;
  }));
}

TEST(GenerateTest, RefusesRequestsBeyondTheLimit) {
  CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.max_concurrent_requests = 1;
  InProcessCluster cluster(options);
  FakeVerifierOptions verifier;
  verifier.step_time = absl::Milliseconds(1);
  cluster.AddVerifier(verifier);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  absl::Status second;
  const GenerateResult first = cluster.Generate(
      GreedyRequest("hello", 50), [&](const v1::GenerateDelta& delta) {
        if (delta.first_index() == 0) {
          second = cluster.Generate(GreedyRequest("hello", 5)).status;
        }
        return true;
      });
  ExpectComplete(first, "hello", 50);
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  // Its place is free as soon as the client knows that it has ended.
  for (int i = 0; i < 20; ++i) {
    ExpectComplete(cluster.Generate(GreedyRequest("hello", 2)), "hello", 2);
  }
}

TEST(GenerateTest, MetricsTellWhatRepliesTell) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 4});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  v1::SpeculationStats sum;
  int64_t unverified = 0;
  for (int i = 0; i < 5; ++i) {
    const std::string prompt = absl::StrCat("prompt ", i);
    const GenerateResult result =
        cluster.Generate(LockStep(GreedyRequest(prompt, 80), 6));
    ExpectComplete(result, prompt, 80);
    const v1::SpeculationStats& stats = result.finished.speculation();
    sum.set_num_spec_steps(sum.num_spec_steps() + stats.num_spec_steps());
    sum.set_num_draft_tokens(sum.num_draft_tokens() + stats.num_draft_tokens());
    sum.set_num_accepted_draft_tokens(sum.num_accepted_draft_tokens() +
                                      stats.num_accepted_draft_tokens());
    unverified += stats.num_drafted_tokens() - stats.num_draft_tokens();
    // Right when the last message has come, not some time later.
    EXPECT_EQ(cluster.Metric("specwire_spec_decode_num_drafts_total"),
              static_cast<double>(sum.num_spec_steps()));
    EXPECT_EQ(cluster.Metric("specwire_spec_decode_num_draft_tokens_total"),
              static_cast<double>(sum.num_draft_tokens()));
    EXPECT_EQ(cluster.Metric("specwire_spec_decode_num_accepted_tokens_total"),
              static_cast<double>(sum.num_accepted_draft_tokens()));
    EXPECT_EQ(cluster.Metric(
                  "specwire_spec_decode_num_accepted_tokens_per_pos_total"),
              static_cast<double>(sum.num_accepted_draft_tokens()));
    EXPECT_EQ(
        cluster.Metric("specwire_spec_decode_num_unverified_tokens_total"),
        static_cast<double>(unverified));
    EXPECT_EQ(cluster.Metric("specwire_generation_tokens_total"), 80 * (i + 1));
    EXPECT_EQ(cluster.Metric("specwire_prompt_tokens_total"), 8 * (i + 1));
    EXPECT_EQ(cluster.Metric("specwire_request_success_total",
                             "finished_reason=\"length\""),
              i + 1);
  }
  EXPECT_GT(cluster.Metric("specwire_spec_decode_num_drafts_total",
                           "draft_node=\"draft-1\""),
            0);
  EXPECT_GT(cluster.Metric("specwire_spec_decode_num_drafts_total",
                           "verifier_node=\"verifier-1\""),
            0);
  EXPECT_EQ(cluster.Metric("specwire_time_to_first_token_seconds_count"), 5);
  EXPECT_EQ(cluster.Metric("specwire_e2e_request_latency_seconds_count"), 5);
  EXPECT_EQ(cluster.Metric("specwire_nodes", "state=\"serving\""), 2);
}

TEST(GenerateTest, TimesFitTogether) {
  InProcessCluster cluster;
  FakeVerifierOptions options;
  options.step_time = absl::Milliseconds(5);
  cluster.AddVerifier(options);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const absl::Time start = absl::Now();
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 41));
  const double total_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  const v1::GenerateTimings& timings = result.finished.timings();
  EXPECT_GT(timings.time_to_first_token_ms(), 0);
  EXPECT_GE(timings.generation_time_ms(), 40 * 4);
  EXPECT_LE(timings.time_to_first_token_ms() + timings.generation_time_ms(),
            total_ms);
  EXPECT_NEAR(timings.mean_itl_ms(), timings.generation_time_ms() / 40, 1e-6);
  EXPECT_NEAR(timings.tokens_per_second(),
              40 / (timings.generation_time_ms() / 1000),
              1e-6);
  EXPECT_LE(timings.queue_time_ms(), timings.time_to_first_token_ms() + 1);
}

}  // namespace
}  // namespace specwire::coordinator
