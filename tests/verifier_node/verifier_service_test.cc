// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/service.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/drafting/suffix.h"
#include "common/metrics/names.h"
#include "common/rpc/convert.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"
#include "tests/verifier_node/verifier_harness.h"

namespace specwire::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<int32_t>& Prompt() {
  static const auto* const kPrompt = new std::vector<int32_t>{10, 20, 30, 40};
  return *kPrompt;
}

// What the engine generates from `from` to `to`, in positions, after Prompt().
std::vector<int32_t> Text(const FakeEngine& engine, int from, int to) {
  const int length = static_cast<int>(Prompt().size());
  std::vector<int32_t> text = engine.Continue(Prompt(), to - length);
  text.erase(text.begin(), text.begin() + (from - length));
  return text;
}

TEST(VerifierServiceTest, TellsItsModelAndTokenizer) {
  FakeEngine engine;
  VerifierHarness verifier(
      &engine, {.max_num_sequences = 7, .max_queued_sequences = 21});
  grpc::ClientContext context;
  const auto reader = verifier.stub()->GetModel(&context, {});
  v1::GetModelResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.model().name(), "fake");
  EXPECT_EQ(message.model().model_digest(), engine.info().model_digest);
  EXPECT_EQ(message.model().vocab_size(), FakeEngine::kVocabSize);
  EXPECT_EQ(message.model().max_model_len(), 4096);
  EXPECT_EQ(message.model().max_num_sequences(), 7);
  EXPECT_EQ(message.model().max_queued_sequences(), 21);
  EXPECT_EQ(message.model().local_drafter(), "");
  EXPECT_THAT(message.model().eos_token_ids(), ElementsAre(FakeEngine::kEos));
  const auto tokenizer = Tokenizer::Create(engine.tokenizer_model());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(message.model().vocabulary_fingerprint(),
            (*tokenizer)->fingerprint());
  ASSERT_EQ(message.step_costs_size(), 2);
  EXPECT_EQ(message.step_costs(1).num_rows(), 4);
  EXPECT_EQ(message.step_costs(1).duration_us(), 20);
  std::string bytes;
  while (reader->Read(&message)) {
    EXPECT_FALSE(message.has_model());
    EXPECT_LE(message.tokenizer_chunk().size(), 262144u);
    bytes += message.tokenizer_chunk();
  }
  EXPECT_TRUE(reader->Finish().ok());
  const auto model = ParseTokenizer(bytes);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->tokens, engine.tokenizer_model().tokens);
}

TEST(VerifierServiceTest, DecodesPlainly) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 50, 0));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 50));
  EXPECT_EQ(client.num_responses(), 50);
  EXPECT_EQ(client.last().finish().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(client.last().position(), 53);
  // The pass that computes the prompt gives the first token.
  EXPECT_EQ(engine.num_passes(), 50);
  EXPECT_EQ(engine.num_rows(), 53);
  EXPECT_EQ(engine.kv_blocks_used(), 0);
  EXPECT_EQ(verifier.thread().num_sequences(), 0);
}

TEST(VerifierServiceTest, DecodesAPromptOfOneToken) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest({9}, 5, 0));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue({9}, 5));
  EXPECT_EQ(engine.num_passes(), 5);
}

TEST(VerifierServiceTest, ContinuesWhatWasGeneratedElsewhere) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  const std::vector<int32_t> text = engine.Continue(Prompt(), 30);
  std::vector<int32_t> log = Prompt();
  log.insert(log.end(), text.begin(), text.begin() + 10);
  v1::DecodeRequest open = OpenRequest(log, 30, 0);
  open.mutable_open()->set_prompt_length(4);
  DecodeClient client(verifier.stub());
  client.Send(open);
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(),
            std::vector<int32_t>(text.begin() + 10, text.end()));
}

TEST(VerifierServiceTest, StopsAtEosAndStopTokens) {
  FakeEngine engine({.eos_position = 12});
  VerifierHarness verifier(&engine);
  {
    DecodeClient client(verifier.stub());
    client.Send(OpenRequest(Prompt(), 50, 0));
    EXPECT_TRUE(client.Drain().ok());
    EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 9));
    EXPECT_EQ(client.last().finish().reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(client.last().finish().stop_token_id(), FakeEngine::kEos);
  }
  {
    v1::DecodeRequest open = OpenRequest(Prompt(), 50, 0);
    open.mutable_open()->set_ignore_eos(true);
    DecodeClient client(verifier.stub());
    client.Send(open);
    EXPECT_TRUE(client.Drain().ok());
    EXPECT_EQ(client.tokens().size(), 50u);
  }
  {
    const std::vector<int32_t> text = engine.Continue(Prompt(), 9);
    v1::DecodeRequest open = OpenRequest(Prompt(), 50, 0);
    open.mutable_open()->add_stop_token_ids(text[3]);
    DecodeClient client(verifier.stub());
    client.Send(open);
    EXPECT_TRUE(client.Drain().ok());
    EXPECT_LE(client.tokens().size(), 4u);
    EXPECT_EQ(client.last().finish().stop_token_id(), text[3]);
  }
}

// A perfect drafter's proposals of four tokens each, in lock-step.
TEST(VerifierServiceTest, CommitsARunAndABonusTokenInEveryPass) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 50, -1));
  int length = 4;
  while (length < 54) {
    client.Send(ProposalRequest(
        length, length, Text(engine, length, std::min(length + 4, 54))));
    const auto response = client.Read();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->position(), length);
    length += response->tokens_size();
    if (length < 54) {
      EXPECT_EQ(response->tokens_size(), 5);
      EXPECT_EQ(response->num_proposed(), 4);
      EXPECT_EQ(response->num_accepted(), 4);
    }
  }
  // Whatever is left of a metric must be there with the last message.
  EXPECT_EQ(verifier.Metric(metric::kNumDrafts), 10);
  EXPECT_EQ(verifier.Metric(metric::kNumDraftTokens), 40);
  EXPECT_EQ(verifier.Metric(metric::kNumAcceptedTokens), 40);
  EXPECT_EQ(verifier.Metric(metric::kNumAcceptedTokensPerPos), 40);
  EXPECT_EQ(verifier.Metric(metric::kNumAcceptedTokensPerPos, "position=\"3\""),
            10);
  EXPECT_EQ(verifier.Metric(metric::kGenerationTokens), 50);
  EXPECT_EQ(verifier.Metric(metric::kPromptTokens), 4);
  EXPECT_EQ(verifier.Metric(metric::kNumRows, "verify"), 50);
  EXPECT_EQ(verifier.Metric("specwire_step_duration_seconds_count", "verify"),
            10);
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 50));
  // The prompt had a pass of its own, unless the first proposal was faster.
  EXPECT_GE(engine.num_passes(), 10);
  EXPECT_LE(engine.num_passes(), 11);
}

TEST(VerifierServiceTest, GivesTheSameTextForWrongProposals) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 40, -1));
  int length = 4;
  for (int step = 0; length < 44; ++step) {
    // Right up to a place that moves, then wrong.
    std::vector<int32_t> run = Text(engine, length, length + 6);
    int32_t& spoilt = run[static_cast<size_t>(step) % run.size()];
    spoilt = spoilt == 6 ? 7 : 6;
    client.Send(ProposalRequest(length, length, run));
    const auto response = client.Read();
    ASSERT_TRUE(response.has_value());
    if (length + 6 < 44) {
      EXPECT_EQ(response->num_accepted(), step % 6);
      EXPECT_EQ(response->tokens_size(), step % 6 + 1);
    }
    length += response->tokens_size();
  }
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 40));
}

TEST(VerifierServiceTest, CountsWhatIsNotVerified) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 10, -1));
  // A gap; then more than can ever be verified: the tenth token is the
  // target's own.
  client.Send(ProposalRequest(6, 4, Text(engine, 6, 8)));
  client.Send(ProposalRequest(4, 4, Text(engine, 4, 16)));
  ASSERT_TRUE(client.Read().has_value());
  EXPECT_EQ(client.last().num_proposed(), 9);
  EXPECT_EQ(client.last().counters().stale(), 2);
  EXPECT_EQ(client.last().counters().trimmed(), 3);
  EXPECT_EQ(verifier.Metric(metric::kNumUnverifiedTokens, "stale"), 2);
  EXPECT_EQ(verifier.Metric(metric::kNumUnverifiedTokens, "trimmed"), 3);
  EXPECT_TRUE(client.Drain().ok());
}

TEST(VerifierServiceTest, WaitsInLockStepForAnAnswer) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 10, -1));
  ASSERT_TRUE(Eventually([&] { return verifier.thread().progress() == 1; }));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(engine.num_passes(), 1);
  // "Nothing to propose" is an answer: one plain token, then it waits again.
  client.Send(ProposalRequest(4, 4, {}));
  ASSERT_TRUE(client.Read().has_value());
  EXPECT_EQ(client.last().num_proposed(), 0);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(engine.num_passes(), 2);
  // Without patience it runs by itself.
  client.Send(TuneRequest(0, std::nullopt));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 10));
}

TEST(VerifierServiceTest, DecodesPlainlyWhenPatienceIsOver) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  const absl::Time start = absl::Now();
  client.Send(OpenRequest(Prompt(), 5, 20'000));
  EXPECT_TRUE(client.Drain().ok());
  // The first token comes with the prompt, and the last has no room for a
  // draft: there is nothing to wait for.
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(60));
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 5));
  EXPECT_GE(client.last().timings().verify_us(), 0);
}

TEST(VerifierServiceTest, CommitsNothingBeyondItsCredit) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  v1::DecodeRequest open = OpenRequest(Prompt(), 20, 0);
  open.mutable_open()->set_decode_until(9);
  DecodeClient client(verifier.stub());
  client.Send(open);
  // Its proposal reaches beyond the credit too.
  client.Send(ProposalRequest(4, 4, Text(engine, 4, 20)));
  while (client.tokens().size() < 5) ASSERT_TRUE(client.Read().has_value());
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(client.tokens().size(), 5u);
  client.Send(TuneRequest(std::nullopt, 12));
  while (client.tokens().size() < 8) ASSERT_TRUE(client.Read().has_value());
  client.Send(TuneRequest(std::nullopt, 100));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 20));
}

TEST(VerifierServiceTest, DraftsForItself) {
  FakeEngine engine;
  VerifierHarness verifier(
      &engine, {}, std::make_unique<LocalDrafter>(*SuffixDrafter::Create({})));
  {
    grpc::ClientContext context;
    const auto reader = verifier.stub()->GetModel(&context, {});
    v1::GetModelResponse message;
    ASSERT_TRUE(reader->Read(&message));
    EXPECT_EQ(message.model().local_drafter(), "suffix");
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    reader->Finish();
  }
  // In lock-step each step verifies all that was found.
  v1::DecodeRequest open = OpenRequest(Prompt(), 30, -1);
  open.mutable_open()->set_local_run_length(4);
  {
    // The first time it finds little, so it must not wait.
    v1::DecodeRequest first = open;
    first.mutable_open()->set_patience_us(0);
    DecodeClient client(verifier.stub());
    client.Send(first);
    EXPECT_TRUE(client.Drain().ok());
  }
  DecodeClient client(verifier.stub());
  client.Send(open);
  bool expected = false;
  int num_accepted = 0;
  while (const auto response = client.Read()) {
    if (client.num_responses() > 1) {
      EXPECT_EQ(response->local(), expected);
    }
    expected = response->local_next();
    if (response->local()) num_accepted += response->num_accepted();
  }
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 30));
  EXPECT_GT(num_accepted, 15);
  EXPECT_GE(verifier.Metric(metric::kNumAcceptedTokens), num_accepted);
}

TEST(VerifierServiceTest, ATuneSaysWhatLocalDraftIsEnough) {
  FakeEngine engine;
  VerifierHarness verifier(
      &engine, {}, std::make_unique<LocalDrafter>(*SuffixDrafter::Create({})));
  v1::DecodeRequest open = OpenRequest(Prompt(), 30, 0);
  open.mutable_open()->set_local_run_length(4);
  {
    DecodeClient client(verifier.stub());
    client.Send(open);
    EXPECT_TRUE(client.Drain().ok());
  }
  // Nothing is ever enough, so it waits, although it has found something.
  open.mutable_open()->set_local_enough(100);
  open.mutable_open()->set_patience_us(-1);
  const int64_t num_passes = engine.num_passes();
  DecodeClient client(verifier.stub());
  client.Send(open);
  ASSERT_TRUE(Eventually([&] { return engine.num_passes() > num_passes; }));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(engine.num_passes(), num_passes + 1);
  v1::DecodeRequest tune;
  tune.mutable_tune()->set_local_enough(0);
  client.Send(tune);
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 30));
}

TEST(VerifierServiceTest, GoesOnPlainlyAfterHalfClose) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.Send(OpenRequest(Prompt(), 10, -1));
  client.WritesDone();
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 10));
}

TEST(VerifierServiceTest, EndsAHalfClosedStreamWithoutCredit) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  v1::DecodeRequest open = OpenRequest(Prompt(), 10, 0);
  open.mutable_open()->set_decode_until(7);
  DecodeClient client(verifier.stub());
  client.Send(open);
  client.WritesDone();
  const grpc::Status status = client.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("decode_until"));
  EXPECT_EQ(client.tokens(), engine.Continue(Prompt(), 3));
}

TEST(VerifierServiceTest, TellsWhatThePrefixCacheHad) {
  FakeEngine engine({.prefix_cache = true});
  VerifierHarness verifier(&engine);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 50; ++i) prompt.push_back(6 + i % 40);
  const std::vector<int32_t> text = engine.Continue(prompt, 8);
  const auto decode = [&](const std::string& salt, bool prompt_logprobs) {
    v1::DecodeRequest open = OpenRequest(prompt, 8, 0);
    open.mutable_open()->set_tenant_salt(salt);
    if (prompt_logprobs) open.mutable_open()->set_prompt_logprobs(0);
    DecodeClient client(verifier.stub());
    client.Send(open);
    int cached = 0;
    bool first = true;
    while (const auto response = client.Read()) {
      if (response->has_prompt_logprobs()) continue;
      if (first) cached = response->cached_prompt_tokens();
      if (!first) {
        EXPECT_EQ(response->cached_prompt_tokens(), 0);
      }
      first = false;
    }
    EXPECT_TRUE(client.Drain().ok());
    EXPECT_EQ(client.tokens(), text);
    return cached;
  };
  EXPECT_EQ(decode("a", false), 0);
  EXPECT_EQ(decode("a", false), 48);
  EXPECT_EQ(decode("b", false), 0);
  // What is cached has no logits.
  EXPECT_EQ(decode("a", true), 0);
  EXPECT_EQ(verifier.Metric(metric::kPrefixCacheQueries), 150);
  EXPECT_EQ(verifier.Metric(metric::kPrefixCacheHits), 48);
  EXPECT_EQ(verifier.Metric(metric::kPromptTokens), 200);
}

TEST(VerifierServiceTest, EndsAStreamThatWasNeverOpened) {
  FakeEngine engine;
  VerifierHarness verifier(&engine);
  DecodeClient client(verifier.stub());
  client.WritesDone();
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_THAT(client.tokens(), IsEmpty());
}

}  // namespace
}  // namespace specwire::verifier
