// SPDX-License-Identifier: Apache-2.0

// One stream's trouble is no other's.

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"
#include "tests/verifier_node/verifier_harness.h"

namespace specwire::verifier {
namespace {

using ::testing::HasSubstr;

const std::vector<int32_t>& Prompt() {
  static const auto* const kPrompt = new std::vector<int32_t>{10, 20, 30, 40};
  return *kPrompt;
}

std::vector<int32_t> LongPrompt(int length) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(6 + i * 7 % 58);
  return prompt;
}

// A bad message and what its refusal must name.
struct BadMessage {
  std::string field;
  bool after_open = false;
  std::function<void(v1::DecodeRequest*)> spoil;
};

std::vector<BadMessage> BadOpens() {
  const auto open = [](std::function<void(v1::DecodeOpen*)> spoil) {
    return [spoil = std::move(spoil)](v1::DecodeRequest* request) {
      spoil(request->mutable_open());
    };
  };
  return {
      {"event", false, [](auto* r) { r->Clear(); }},
      {"event", false, [](auto* r) { *r = TuneRequest(0, std::nullopt); }},
      {"event", false, [](auto* r) { *r = ProposalRequest(4, 4, {7}); }},
      {"local_run_length", false, open([](auto* o) {
         o->set_local_run_length(33);
       })},
      {"local_run_length", false, open([](auto* o) {
         o->set_local_run_length(-1);
       })},
      {"local_enough", false, open([](auto* o) { o->set_local_enough(-1); })},
      {"local_enough", false, open([](auto* o) {
         o->set_local_enough(std::numeric_limits<float>::quiet_NaN());
       })},
      {"patience", false, open([](auto* o) {
         o->set_rule(v1::ACCEPTANCE_RULE_RATIO);
         o->set_local_run_length(4);
       })},
      {"tokens", false, open([](auto* o) { o->clear_tokens(); })},
      {"tokens", false, open([](auto* o) { o->set_tokens(1, -1); })},
      {"tokens", false, open([](auto* o) { o->set_tokens(1, 64); })},
      {"tokens", false, open([](auto* o) { o->set_tokens(1, 2147483647); })},
      {"tokens", false, open([](auto* o) {
         while (o->tokens_size() < 4096) o->add_tokens(7);
       })},
      {"prompt_length", false, open([](auto* o) { o->set_prompt_length(0); })},
      {"prompt_length", false, open([](auto* o) { o->set_prompt_length(5); })},
      {"prompt_length", false, open([](auto* o) {
         o->set_prompt_length(-2147483647);
       })},
      {"max_tokens", false, open([](auto* o) { o->set_max_tokens(0); })},
      {"max_tokens", false, open([](auto* o) { o->set_max_tokens(4093); })},
      {"max_tokens", false, open([](auto* o) {
         o->set_max_tokens(2147483647);
       })},
      {"max_tokens", false, open([](auto* o) {
         // All of them are there already.
         o->set_prompt_length(1);
         o->set_max_tokens(3);
       })},
      {"min_tokens", false, open([](auto* o) { o->set_min_tokens(1 << 20); })},
      {"min_tokens", false, open([](auto* o) { o->set_min_tokens(-1); })},
      {"stop_token_ids", false, open([](auto* o) {
         o->add_stop_token_ids(64);
       })},
      {"stop_token_ids", false, open([](auto* o) {
         for (int i = 0; i < 65; ++i) o->add_stop_token_ids(7);
       })},
      {"temperature", false, open([](auto* o) {
         o->mutable_sampling()->set_temperature(-1);
       })},
      {"top_p", false, open([](auto* o) {
         o->mutable_sampling()->set_top_p(2);
       })},
      // Without a seed two nodes would draw different noise.
      {"sampling.seed", false, open([](auto* o) {
         o->mutable_sampling()->set_temperature(1);
         o->mutable_sampling()->clear_seed();
       })},
      {"patience", false, open([](auto* o) {
         o->set_rule(v1::ACCEPTANCE_RULE_RATIO);
         o->set_patience_us(5000);
       })},
      {"rule", false, open([](auto* o) {
         o->set_rule(static_cast<v1::AcceptanceRule>(77));
       })},
      {"logprobs", false, open([](auto* o) { o->set_logprobs(21); })},
      {"choice", false, open([](auto* o) { o->set_choice(-1); })},
      {"source", false, open([](auto* o) { o->set_source(-1); })},
      {"tenant_salt", false, open([](auto* o) {
         o->set_tenant_salt(std::string(65, 'x'));
       })},
      {"decode_until", false, open([](auto* o) { o->set_decode_until(-1); })},
      {"patience", false, open([](auto* o) { o->set_patience_us(-2); })},
      {"max_draft_rows", false, open([](auto* o) {
         o->set_max_draft_rows(257);
       })},
      {"max_draft_rows", false, open([](auto* o) {
         o->set_max_draft_rows(-1);
       })},
  };
}

std::vector<BadMessage> BadFollowers() {
  const auto propose = [](int position, int based_on, std::vector<int32_t> t) {
    return [=](v1::DecodeRequest* r) {
      *r = ProposalRequest(position, based_on, t);
    };
  };
  return {
      {"event", true, [](auto* r) { r->Clear(); }},
      {"event", true, [](auto* r) { *r = OpenRequest({7}, 1, 0); }},
      {"position", true, propose(-1, 4, {7})},
      {"based_on", true, propose(4, -1, {7})},
      {"based_on", true, propose(4, 5, {7})},
      {"tokens", true, propose(4, 4, {7, -1})},
      {"tokens", true, propose(4, 4, {7, 64})},
      {"tokens", true, propose(4, 4, std::vector<int32_t>(257, 7))},
      {"source",
       true,
       [](auto* r) {
         *r = ProposalRequest(4, 4, {7});
         r->mutable_proposal()->set_source(-5);
       }},
      {"q",
       true,
       [](auto* r) {
         *r = ProposalRequest(4, 4, {7});
         r->mutable_proposal()->add_q();
       }},
      {"patience", true, [](auto* r) { *r = TuneRequest(-2, std::nullopt); }},
      {"decode_until", true, [](auto* r) { *r = TuneRequest({}, 1000); }},
      {"max_draft_rows",
       true,
       [](auto* r) { r->mutable_tune()->set_max_draft_rows(257); }},
      {"local_enough",
       true,
       [](auto* r) { r->mutable_tune()->set_local_enough(-0.1f); }},
  };
}

TEST(VerifierIsolationTest, RefusesBadMessagesByNameAndHarmsNobody) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient bystander(verifier.stub());
  bystander.Send(OpenRequest(Prompt(), 100, -1));
  std::vector<BadMessage> messages = BadOpens();
  for (BadMessage& message : BadFollowers()) messages.push_back(message);
  for (size_t i = 0; i < messages.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(i, ": ", messages[i].field));
    DecodeClient client(verifier.stub());
    v1::DecodeRequest request = OpenRequest(Prompt(), 100, -1);
    if (messages[i].after_open) client.Send(request);
    messages[i].spoil(&request);
    client.Send(request);
    const grpc::Status status = client.Drain();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(messages[i].field));
    EXPECT_EQ(client.num_responses(), 0);
  }
  EXPECT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 1; }));
  bystander.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(bystander.Drain().ok());
  EXPECT_EQ(bystander.tokens(), engine.Continue(Prompt(), 100));
  EXPECT_EQ(engine.kv_blocks_used(), 0);
}

TEST(VerifierIsolationTest, EndsAStreamThatFloods) {
  FakeEngine engine;
  VerifierHarness verifier(&engine, {.max_events = 100});
  DecodeClient bystander(verifier.stub());
  bystander.Send(OpenRequest(Prompt(), 20, 0));
  engine.Pause();
  DecodeClient flooder(verifier.stub());
  flooder.Send(OpenRequest(Prompt(), 100, -1));
  ASSERT_TRUE(engine.WaitUntilPaused());
  for (int i = 0; i < 10'000; ++i) {
    if (!flooder.Send(ProposalRequest(4, 4, {7}))) break;
  }
  const grpc::Status status = flooder.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("too many messages"));
  engine.Resume();
  EXPECT_TRUE(bystander.Drain().ok());
  EXPECT_EQ(bystander.tokens(), engine.Continue(Prompt(), 20));
  EXPECT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 0; }));
}

TEST(VerifierIsolationTest, FreesWhatCancelledStreamsHold) {
  FakeEngine engine({.num_blocks = 64, .pass_delay = absl::Microseconds(50)});
  VerifierHarness verifier(&engine);
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  const std::vector<int32_t> prompt = LongPrompt(300);
  for (int i = 0; i < 200; ++i) {
    DecodeClient client(verifier.stub());
    client.Send(OpenRequest(prompt, 200, random() % 2 == 0 ? 0 : -1));
    for (unsigned k = random() % 4; k > 0; --k) {
      client.Send(ProposalRequest(300, 300, LongPrompt(8)));
    }
    absl::SleepFor(absl::Microseconds(random() % 2000));
    client.Cancel();
    EXPECT_EQ(client.Drain().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] {
    return engine.kv_blocks_used() == 0 &&
           verifier.thread().num_sequences() == 0;
  }));
  EXPECT_EQ(verifier.thread().num_waiting(), 0);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 20, 0));
  EXPECT_TRUE(client.Drain().ok());
}

TEST(VerifierIsolationTest, SharesPasses) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient first(verifier.stub());
  DecodeClient second(verifier.stub());
  engine.Pause();
  first.Send(OpenRequest(Prompt(), 60, 0));
  ASSERT_TRUE(engine.WaitUntilPaused());
  second.Send(OpenRequest({7, 8, 9, 10}, 60, 0));
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 2; }));
  engine.Resume();
  EXPECT_TRUE(first.Drain().ok());
  EXPECT_TRUE(second.Drain().ok());
  EXPECT_EQ(first.tokens(), engine.Continue(Prompt(), 60));
  EXPECT_EQ(second.tokens(), engine.Continue({7, 8, 9, 10}, 60));
  EXPECT_EQ(engine.runs().size(), 120u);
  EXPECT_EQ(engine.num_passes(), 61);
  EXPECT_EQ(verifier.Metric("specwire_verify_batch_size_sum"), 120);
}

TEST(VerifierIsolationTest, ALongPromptHoldsUpNobody) {
  FakeEngine engine;
  VerifierHarness verifier(&engine, {.prefill_rows = 64});
  DecodeClient running(verifier.stub());
  engine.Pause();
  running.Send(OpenRequest(Prompt(), 60, 0));
  ASSERT_TRUE(engine.WaitUntilPaused());
  DecodeClient prompted(verifier.stub());
  prompted.Send(OpenRequest(LongPrompt(1001), 3, 0));
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 2; }));
  engine.Resume();
  EXPECT_TRUE(running.Drain().ok());
  EXPECT_TRUE(prompted.Drain().ok());
  EXPECT_EQ(running.tokens(), engine.Continue(Prompt(), 60));
  EXPECT_EQ(prompted.tokens(), engine.Continue(LongPrompt(1001), 3));
  // Every chunk shares its pass with a step of the other, while that runs.
  int num_steps = 0;
  const std::vector<std::pair<int, int>> runs = engine.runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].first == 0) {
      ++num_steps;
      continue;
    }
    EXPECT_LE(runs[i].second, 64);
    if (num_steps < 60) {
      EXPECT_EQ(runs[i - 1].first, 0) << i;
    }
  }
}

TEST(VerifierIsolationTest, StartsHigherPriorityFirst) {
  FakeEngine engine;
  VerifierHarness verifier(&engine, {.max_num_sequences = 1});
  DecodeClient running(verifier.stub());
  DecodeClient low(verifier.stub());
  DecodeClient high(verifier.stub());
  engine.Pause();
  running.Send(OpenRequest(Prompt(), 10, 0));
  ASSERT_TRUE(engine.WaitUntilPaused());
  low.Send(OpenRequest(Prompt(), 30, 0));
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 2; }));
  v1::DecodeRequest open = OpenRequest({7, 8}, 30, 0);
  open.mutable_open()->set_priority(1);
  high.Send(open);
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 3; }));
  engine.Resume();
  EXPECT_TRUE(running.Drain().ok());
  EXPECT_TRUE(low.Drain().ok());
  EXPECT_TRUE(high.Drain().ok());
  const std::vector<std::pair<int, int>> runs = engine.runs();
  ASSERT_EQ(runs.size(), 70u);
  // The prompt of two tokens is the one of higher priority.
  EXPECT_EQ(runs[10].second, 2);
  EXPECT_EQ(runs[40].second, 4);
}

TEST(VerifierIsolationTest, APromptWaitsForRoomUnlessItCanNeverFit) {
  FakeEngine engine({.num_blocks = 20});
  VerifierHarness verifier(&engine);
  DecodeClient holder(verifier.stub());
  holder.Send(OpenRequest(LongPrompt(200), 20, -1));
  ASSERT_TRUE(Eventually([&] { return engine.kv_blocks_used() == 13; }));
  DecodeClient waiting(verifier.stub());
  waiting.Send(OpenRequest(LongPrompt(129), 20, 0));
  ASSERT_TRUE(Eventually([&] { return verifier.thread().num_waiting() == 1; }));
  DecodeClient huge(verifier.stub());
  huge.Send(OpenRequest(LongPrompt(321), 20, 0));
  const grpc::Status status = huge.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("321 tokens need 21 blocks of 16"));
  EXPECT_THAT(status.error_message(), HasSubstr("can never fit"));
  // It holds nothing while it waits.
  EXPECT_EQ(engine.kv_blocks_used(), 13);
  holder.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(holder.Drain().ok());
  EXPECT_EQ(holder.tokens(), engine.Continue(LongPrompt(200), 20));
  EXPECT_TRUE(waiting.Drain().ok());
  EXPECT_EQ(waiting.tokens(), engine.Continue(LongPrompt(129), 20));
}

TEST(VerifierIsolationTest, TheYoungestWaitsWhenTheCacheIsFull) {
  FakeEngine engine({.num_blocks = 8});
  VerifierHarness verifier(&engine);
  // Four blocks each; the first has what it needs for its whole text.
  DecodeClient old(verifier.stub());
  old.Send(OpenRequest(LongPrompt(50), 12, -1));
  ASSERT_TRUE(Eventually([&] { return engine.kv_blocks_used() == 4; }));
  DecodeClient young(verifier.stub());
  young.Send(OpenRequest(LongPrompt(40), 60, 0));
  ASSERT_TRUE(Eventually(
      [&] { return verifier.Metric(metric::kNumPreemptions) == 1; }));
  EXPECT_EQ(engine.kv_blocks_used(), 4);
  EXPECT_EQ(verifier.thread().num_waiting(), 1);
  old.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(old.Drain().ok());
  EXPECT_EQ(old.tokens(), engine.Continue(LongPrompt(50), 12));
  // It goes on where it was.
  EXPECT_TRUE(young.Drain().ok());
  EXPECT_EQ(young.tokens(), engine.Continue(LongPrompt(40), 60));
  EXPECT_EQ(verifier.Metric(metric::kPromptTokens), 90);
  EXPECT_EQ(engine.kv_blocks_used(), 0);
}

TEST(VerifierIsolationTest, EndsASequenceThatOutgrowsTheCache) {
  FakeEngine engine({.num_blocks = 8});
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(LongPrompt(60), 100, 0));
  const grpc::Status status = client.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("of 8 blocks"));
  // All that fitted was delivered: the last token of a text is not cached.
  EXPECT_EQ(client.tokens().size(), 69u);
  EXPECT_EQ(engine.kv_blocks_used(), 0);
}

TEST(VerifierIsolationTest, OneWithoutCreditMakesRoomForOthers) {
  FakeEngine engine({.num_blocks = 8});
  VerifierHarness verifier(&engine);
  DecodeClient slow(verifier.stub());
  v1::DecodeRequest open = OpenRequest(LongPrompt(80), 30, 0);
  open.mutable_open()->set_decode_until(85);
  slow.Send(open);
  while (slow.tokens().size() < 5) ASSERT_TRUE(slow.Read().has_value());
  // There is no room beside it, and it does not move.
  DecodeClient other(verifier.stub());
  other.Send(OpenRequest(LongPrompt(60), 20, 0));
  EXPECT_TRUE(other.Drain().ok());
  EXPECT_EQ(other.tokens(), engine.Continue(LongPrompt(60), 20));
  slow.Send(TuneRequest(std::nullopt, 1 << 20));
  EXPECT_TRUE(slow.Drain().ok());
  EXPECT_EQ(slow.tokens(), engine.Continue(LongPrompt(80), 30));
}

TEST(VerifierIsolationTest, VerifiesFewerDraftTokensRatherThanFillTheCache) {
  FakeEngine engine({.num_blocks = 2});
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(LongPrompt(28), 5, -1));
  // Five rows fit: the last prompt token's and four draft tokens'.
  client.Send(ProposalRequest(28, 28, engine.Continue(LongPrompt(28), 4)));
  ASSERT_TRUE(client.Read().has_value());
  EXPECT_EQ(client.last().num_proposed(), 4);
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(LongPrompt(28), 5));

  DecodeClient longer(verifier.stub());
  longer.Send(OpenRequest(LongPrompt(30), 20, -1));
  longer.Send(ProposalRequest(30, 30, engine.Continue(LongPrompt(30), 10)));
  ASSERT_TRUE(longer.Read().has_value());
  EXPECT_EQ(longer.last().num_proposed(), 2);
  // What is pending is tried again, and now there is no room at all.
  EXPECT_EQ(longer.Drain().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(VerifierIsolationTest, RefusesMoreSequencesThanItMayHold) {
  FakeEngine engine;
  VerifierHarness verifier(&engine,
                           {.max_num_sequences = 2, .max_queued_sequences = 0});
  DecodeClient first(verifier.stub());
  DecodeClient second(verifier.stub());
  first.Send(OpenRequest(Prompt(), 10, -1));
  second.Send(OpenRequest(Prompt(), 10, -1));
  ASSERT_TRUE(
      Eventually([&] { return verifier.thread().num_sequences() == 2; }));
  DecodeClient third(verifier.stub());
  third.Send(OpenRequest(Prompt(), 10, 0));
  const grpc::Status status = third.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max_num_sequences: 2"));
  // The place of one that has told its end is free.
  first.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(first.Drain().ok());
  DecodeClient fourth(verifier.stub());
  fourth.Send(OpenRequest(Prompt(), 10, 0));
  EXPECT_TRUE(fourth.Drain().ok());
}

TEST(VerifierIsolationTest, SurvivesWhateverTheEngineDoes) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient bystander(verifier.stub());
  bystander.Send(OpenRequest(Prompt(), 50, -1));
  const std::pair<int32_t, std::string> failures[] = {
      {FakeEngine::kFailingToken, "failed for test"},
      {FakeEngine::kThrowingToken, "thrown for test"},
      {FakeEngine::kNanToken, "not numbers"},
  };
  for (const auto& [token, message] : failures) {
    for (const bool in_prompt : {true, false}) {
      if (in_prompt && token == FakeEngine::kNanToken) continue;
      SCOPED_TRACE(absl::StrCat(message, " ", in_prompt));
      std::vector<int32_t> prompt = LongPrompt(100);
      prompt[in_prompt ? 10 : 99] = token;
      DecodeClient client(verifier.stub());
      client.Send(OpenRequest(prompt, 50, 0));
      const grpc::Status status = client.Drain();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
      EXPECT_THAT(status.error_message(), HasSubstr(message));
    }
  }
  bystander.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(bystander.Drain().ok());
  EXPECT_EQ(bystander.tokens(), engine.Continue(Prompt(), 50));
}

TEST(VerifierIsolationTest, ADraftTokenWithoutNumbersBehindItIsOnlyWrong) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 10, -1));
  client.Send(ProposalRequest(4, 4, {FakeEngine::kNanToken, 7}));
  ASSERT_TRUE(client.Read().has_value());
  EXPECT_EQ(client.last().num_accepted(), 0);
  client.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 10));
}

TEST(VerifierIsolationTest, EndsStreamsWhenItShutsDown) {
  FakeEngine engine({.pass_delay = absl::Milliseconds(1)});
  VerifierHarness verifier(&engine);
  std::vector<std::unique_ptr<DecodeClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<DecodeClient>(verifier.stub()));
    clients.back()->Send(
        OpenRequest(LongPrompt(200), 3000, i % 2 == 0 ? 0 : -1));
  }
  ASSERT_TRUE(clients[0]->Read().has_value());
  verifier.thread().Stop();
  DecodeClient late(verifier.stub());
  late.Send(OpenRequest(Prompt(), 10, 0));
  const grpc::Status refused = late.Drain();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  for (const auto& client : clients) {
    const grpc::Status status = client->Drain();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "shutting down");
  }
  EXPECT_EQ(engine.kv_blocks_used(), 0);
}

}  // namespace
}  // namespace specwire::verifier
