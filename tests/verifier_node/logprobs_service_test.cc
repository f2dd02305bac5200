// SPDX-License-Identifier: Apache-2.0

// Log-probabilities of generated, given and scored tokens, over gRPC. The fake
// engine's logits are 1 for the next token and 0 for all others.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"
#include "tests/verifier_node/verifier_harness.h"

namespace specwire::verifier {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabSize = FakeEngine::kVocabSize;

float LikeliestLogprob() {
  return static_cast<float>(1 - std::log(std::exp(1.0) + kVocabSize - 1));
}
float OtherLogprob() { return LikeliestLogprob() - 1; }

std::vector<int32_t> Prompt(int length) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(6 + i * 7 % 50);
  return prompt;
}

// Everything about log-probabilities, to the bit.
std::string Bits(const v1::PositionLogprobs& entry) {
  return entry.SerializeAsString();
}

// `next` is the engine's token at the entry's position.
void ExpectEntry(const v1::PositionLogprobs& entry,
                 int32_t token,
                 int32_t next,
                 int top) {
  EXPECT_EQ(entry.chosen().token_id(), token);
  EXPECT_NEAR(entry.chosen().logprob(),
              token == next ? LikeliestLogprob() : OtherLogprob(),
              1e-5);
  ASSERT_EQ(entry.top_size(), top);
  std::vector<int32_t> expected = {next};
  for (int32_t id = 0; static_cast<int>(expected.size()) < top; ++id) {
    if (id != next) expected.push_back(id);
  }
  for (int i = 0; i < top; ++i) {
    EXPECT_EQ(entry.top(i).token_id(), expected[static_cast<size_t>(i)]);
    EXPECT_NEAR(entry.top(i).logprob(),
                i == 0 ? LikeliestLogprob() : OtherLogprob(),
                1e-5);
  }
}

class LogprobsServiceTest : public testing::Test {
 protected:
  struct Reply {
    grpc::Status status;
    std::vector<int32_t> tokens;
    std::vector<v1::PositionLogprobs> logprobs;
    // From position 1 on.
    std::vector<v1::PositionLogprobs> prompt;
  };

  // `proposals` are sent at once; the fault, if any, is in what the test sees.
  Reply Decode(const v1::DecodeRequest& open,
               const std::vector<v1::DecodeRequest>& proposals = {}) {
    DecodeClient client(harness_.stub());
    EXPECT_TRUE(client.Send(open));
    // The sequence may have ended before all of them are there.
    for (const auto& proposal : proposals) client.Send(proposal);
    Reply reply;
    while (const auto response = client.Read()) {
      if (response->has_prompt_logprobs()) {
        EXPECT_EQ(response->tokens_size(), 0);
        EXPECT_TRUE(reply.tokens.empty());
        EXPECT_EQ(response->prompt_logprobs().position(),
                  static_cast<int>(reply.prompt.size()) + 1);
        for (const auto& entry : response->prompt_logprobs().logprobs()) {
          reply.prompt.push_back(entry);
        }
        continue;
      }
      EXPECT_EQ(response->logprobs_size(),
                open.open().has_logprobs() ? response->tokens_size() : 0);
      reply.tokens.insert(reply.tokens.end(),
                          response->tokens().begin(),
                          response->tokens().end());
      reply.logprobs.insert(reply.logprobs.end(),
                            response->logprobs().begin(),
                            response->logprobs().end());
    }
    reply.status = client.Drain();
    return reply;
  }

  // Scores and reads to the end; `position` is that of the first entry.
  grpc::Status Score(const v1::ScoreTokensRequest& request,
                     std::vector<v1::PositionLogprobs>* entries,
                     int* position = nullptr,
                     absl::Duration timeout = kTestDeadline) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const auto reader = harness_.stub()->ScoreTokens(&context, request);
    v1::ScoreTokensResponse response;
    int first = -1;
    while (reader->Read(&response)) {
      if (first < 0) first = response.position();
      EXPECT_EQ(response.position(), first + static_cast<int>(entries->size()));
      entries->insert(entries->end(),
                      response.logprobs().begin(),
                      response.logprobs().end());
    }
    if (position != nullptr) *position = first;
    return reader->Finish();
  }

  FakeEngine engine_;
  VerifierHarness harness_{&engine_};
};

v1::ScoreTokensRequest ScoreRequest(const std::vector<int32_t>& tokens,
                                    int top,
                                    int num_context) {
  v1::ScoreTokensRequest request;
  request.mutable_tokens()->Assign(tokens.begin(), tokens.end());
  request.set_top(top);
  request.set_num_context(num_context);
  return request;
}

TEST_F(LogprobsServiceTest, OfGeneratedTokensAreThoseOfTheRawLogits) {
  const std::vector<int32_t> prompt = Prompt(10);
  for (const int top : {0, 1, 5, 20}) {
    v1::DecodeRequest open = OpenRequest(prompt, 12, 0);
    open.mutable_open()->set_logprobs(top);
    // What changes the choice does not change the numbers.
    open.mutable_open()->mutable_sampling()->set_temperature(2);
    open.mutable_open()->mutable_sampling()->set_repetition_penalty(1.5f);
    const Reply reply = Decode(open);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    ASSERT_EQ(reply.tokens.size(), 12u);
    ASSERT_EQ(reply.logprobs.size(), 12u);
    std::vector<int32_t> log = prompt;
    for (size_t i = 0; i < reply.tokens.size(); ++i) {
      ExpectEntry(
          reply.logprobs[i], reply.tokens[i], engine_.Continue(log, 1)[0], top);
      log.push_back(reply.tokens[i]);
    }
  }
}

TEST_F(LogprobsServiceTest, AreTheSameBitsWithEveryDraft) {
  const std::vector<int32_t> prompt = Prompt(20);
  for (const float temperature : {0.0f, 1.0f}) {
    v1::DecodeRequest open = OpenRequest(prompt, 40, 0);
    open.mutable_open()->set_logprobs(7);
    open.mutable_open()->mutable_sampling()->set_temperature(temperature);
    // Of the special ones some break the engine, as they should.
    for (int32_t id = 0; id <= FakeEngine::kLastSpecial; ++id) {
      v1::LogitBias* const bias =
          open.mutable_open()->mutable_sampling()->add_logit_bias();
      bias->set_token_id(id);
      bias->set_bias(-100);
    }
    const Reply plain = Decode(open);
    ASSERT_EQ(plain.logprobs.size(), 40u);
    for (const int run_length : {1, 2, 5, 12}) {
      for (const int wrong_every : {0, 1, 3}) {
        SCOPED_TRACE(
            absl::StrCat(temperature, " ", run_length, " ", wrong_every));
        v1::DecodeRequest patient = open;
        // Nothing follows what a wrong token makes stale.
        patient.mutable_open()->set_patience_us(wrong_every == 0 ? 200000 : 0);
        patient.mutable_open()->set_max_draft_rows(run_length);
        std::vector<int32_t> draft = plain.tokens;
        for (size_t i = 0; wrong_every > 0 && i < draft.size(); ++i) {
          if (static_cast<int>(i) % wrong_every == wrong_every - 1) {
            draft[i] = draft[i] == 6 ? 7 : draft[i] - 1;
          }
        }
        const Reply reply = Decode(patient, {ProposalRequest(20, 20, draft)});
        ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
        EXPECT_EQ(reply.tokens, plain.tokens);
        ASSERT_EQ(reply.logprobs.size(), plain.logprobs.size());
        for (size_t i = 0; i < plain.logprobs.size(); ++i) {
          EXPECT_EQ(Bits(reply.logprobs[i]), Bits(plain.logprobs[i])) << i;
        }
      }
    }
  }
}

TEST_F(LogprobsServiceTest, EndWithEos) {
  FakeEngine engine({.eos_position = 14});
  VerifierHarness harness(&engine);
  v1::DecodeRequest open = OpenRequest(Prompt(10), 30, 0);
  open.mutable_open()->set_logprobs(0);
  DecodeClient client(harness.stub());
  ASSERT_TRUE(client.Send(open));
  std::vector<v1::PositionLogprobs> logprobs;
  while (const auto response = client.Read()) {
    for (const auto& entry : response->logprobs()) logprobs.push_back(entry);
  }
  EXPECT_TRUE(client.Drain().ok());
  ASSERT_EQ(client.tokens().size(), 5u);
  ASSERT_EQ(logprobs.size(), 5u);
  EXPECT_EQ(logprobs.back().chosen().token_id(), FakeEngine::kEos);
  EXPECT_NEAR(logprobs.back().chosen().logprob(), LikeliestLogprob(), 1e-5);
}

TEST_F(LogprobsServiceTest, OfThePromptComeFromPrefill) {
  for (const int length : {1, 2, 3, 64, 65, 66, 200}) {
    for (const int top : {0, 3}) {
      SCOPED_TRACE(absl::StrCat(length, " tokens, top ", top));
      const std::vector<int32_t> prompt = Prompt(length);
      v1::DecodeRequest open = OpenRequest(prompt, 4, 0);
      open.mutable_open()->set_prompt_logprobs(top);
      const Reply reply = Decode(open);
      ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
      EXPECT_EQ(reply.tokens, engine_.Continue(prompt, 4));
      EXPECT_TRUE(reply.logprobs.empty());
      ASSERT_EQ(reply.prompt.size(), prompt.size() - 1);
      for (size_t i = 1; i < prompt.size(); ++i) {
        const std::vector<int32_t> before(
            prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i));
        ExpectEntry(reply.prompt[i - 1],
                    prompt[i],
                    engine_.Continue(before, 1)[0],
                    top);
      }
      // Of a sequence that moved, the prompt is what it was, the completion so
      // far is not among it.
      v1::DecodeRequest moved = open;
      for (const int32_t id : reply.tokens)
        moved.mutable_open()->add_tokens(id);
      moved.mutable_open()->set_max_tokens(6);
      moved.mutable_open()->set_logprobs(0);
      const Reply again = Decode(moved);
      EXPECT_EQ(again.tokens.size(), 2u);
      ASSERT_EQ(again.prompt.size(), reply.prompt.size());
      for (size_t i = 0; i < reply.prompt.size(); ++i) {
        EXPECT_EQ(Bits(again.prompt[i]), Bits(reply.prompt[i]));
      }
    }
  }
}

TEST_F(LogprobsServiceTest, WrongFieldsAreNamed) {
  for (const int value : {-1, 21}) {
    v1::DecodeRequest open = OpenRequest(Prompt(3), 4, 0);
    open.mutable_open()->set_logprobs(value);
    EXPECT_THAT(Decode(open).status.error_message(), HasSubstr("logprobs"));
    open.mutable_open()->clear_logprobs();
    open.mutable_open()->set_prompt_logprobs(value);
    EXPECT_THAT(Decode(open).status.error_message(),
                HasSubstr("prompt_logprobs"));
  }
  std::vector<v1::PositionLogprobs> entries;
  const std::vector<int32_t> tokens = Prompt(5);
  const auto expect_refused = [&](const v1::ScoreTokensRequest& request,
                                  const std::string& field) {
    const grpc::Status status = Score(request, &entries);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  expect_refused(ScoreRequest({}, 0, 0), "tokens");
  expect_refused(ScoreRequest(Prompt(4097), 0, 0), "tokens");
  expect_refused(ScoreRequest({6, kVocabSize}, 0, 0), "tokens[1]");
  expect_refused(ScoreRequest({-1}, 0, 0), "tokens[0]");
  expect_refused(ScoreRequest(tokens, 21, 0), "top");
  expect_refused(ScoreRequest(tokens, -1, 0), "top");
  expect_refused(ScoreRequest(tokens, 0, 5), "num_context");
  expect_refused(ScoreRequest(tokens, 0, -1), "num_context");
  EXPECT_TRUE(entries.empty());
  // The engine's own faults end the score alone.
  EXPECT_EQ(
      Score(ScoreRequest({6, FakeEngine::kThrowingToken, 7}, 0, 0), &entries)
          .error_code(),
      grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(Score(ScoreRequest(tokens, 0, 0), &entries).ok());
}

TEST_F(LogprobsServiceTest, ScoresGivenTokens) {
  for (const int length : {1, 2, 64, 65, 66, 300}) {
    const std::vector<int32_t> tokens = Prompt(length);
    for (const int num_context : std::set<int>{0, 1, length / 2, length - 1}) {
      if (num_context >= length) continue;
      SCOPED_TRACE(absl::StrCat(length, " tokens, context ", num_context));
      std::vector<v1::PositionLogprobs> entries;
      int position = 0;
      const grpc::Status status =
          Score(ScoreRequest(tokens, 2, num_context), &entries, &position);
      ASSERT_TRUE(status.ok()) << status.error_message();
      const int first = std::max(num_context, 1);
      ASSERT_EQ(static_cast<int>(entries.size()), length - first);
      if (!entries.empty()) {
        EXPECT_EQ(position, first);
      }
      for (int i = first; i < length; ++i) {
        ExpectEntry(
            entries[static_cast<size_t>(i - first)],
            tokens[static_cast<size_t>(i)],
            engine_.Continue({tokens.begin(), tokens.begin() + i}, 1)[0],
            2);
      }
    }
  }
  EXPECT_TRUE(Eventually([&] { return engine_.kv_blocks_used() == 0; }));
}

TEST_F(LogprobsServiceTest, AScoreDoesNotStallRunningStreams) {
  FakeEngine engine(
      {.max_model_len = 4096, .pass_delay = absl::Milliseconds(1)});
  VerifierHarness harness(&engine, {.prefill_rows = 16});
  DecodeClient client(harness.stub());
  ASSERT_TRUE(client.Send(OpenRequest(Prompt(4), 400, 0)));
  ASSERT_TRUE(client.Read().has_value());
  std::thread scorer([&] {
    grpc::ClientContext context;
    const auto reader =
        harness.stub()->ScoreTokens(&context, ScoreRequest(Prompt(4000), 0, 0));
    v1::ScoreTokensResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  });
  EXPECT_TRUE(client.Drain().ok());
  scorer.join();
  EXPECT_EQ(client.tokens().size(), 400u);
  // The two share passes while both run: never two chunks between two tokens.
  const std::vector<std::pair<int, int>> runs = engine.runs();
  int chunks = 0;
  int most = 0;
  int64_t shared = 0;
  int steps = 0;
  for (const auto& [sequence, rows] : runs) {
    if (sequence == 0) {
      if (steps++ > 0) most = std::max(most, chunks);
      if (chunks > 0 && steps < 400) ++shared;
      chunks = 0;
    } else {
      ++chunks;
      if (steps > 0 && steps < 399) {
        EXPECT_LE(rows, 16);
      }
    }
  }
  EXPECT_LE(most, 1);
  EXPECT_GT(shared, 50);
}

TEST_F(LogprobsServiceTest, ACancelledScoreFreesAllAtOnce) {
  engine_.Pause();
  grpc::ClientContext context;
  const auto reader =
      harness_.stub()->ScoreTokens(&context, ScoreRequest(Prompt(2000), 0, 0));
  ASSERT_TRUE(engine_.WaitUntilPaused());
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  engine_.Resume();
  EXPECT_TRUE(Eventually([&] {
    return engine_.kv_blocks_used() == 0 &&
           harness_.thread().num_sequences() == 0 &&
           harness_.thread().num_waiting() == 0;
  }));
  EXPECT_LT(engine_.num_rows(), 2000);
}

TEST_F(LogprobsServiceTest, AScoreEndsWithItsDeadline) {
  FakeEngine engine({.pass_delay = absl::Milliseconds(20)});
  VerifierHarness harness(&engine);
  grpc::ClientContext context;
  context.set_deadline(
      absl::ToChronoTime(absl::Now() + absl::Milliseconds(100)));
  const auto reader =
      harness.stub()->ScoreTokens(&context, ScoreRequest(Prompt(4000), 0, 0));
  v1::ScoreTokensResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return engine.kv_blocks_used() == 0; }));
}

TEST_F(LogprobsServiceTest, AScoreThatDoesNotFitIsRefused) {
  FakeEngine engine({.num_blocks = 10});
  VerifierHarness harness(&engine);
  grpc::ClientContext context;
  const auto reader =
      harness.stub()->ScoreTokens(&context, ScoreRequest(Prompt(162), 0, 0));
  v1::ScoreTokensResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("KV cache"));
  EXPECT_EQ(harness.thread().num_sequences(), 0);
}

// A trace needs the logits of greedy passes too, and changes no token.
TEST_F(LogprobsServiceTest, ATraceTellsOfDraftsAndChoices) {
  const std::vector<int32_t> prompt = Prompt(20);
  const std::vector<int32_t> next = engine_.Continue(prompt, 6);
  v1::DecodeRequest open = OpenRequest(prompt, 6, /*patience_us=*/-1);
  open.mutable_open()->set_trace(true);
  DecodeClient client(harness_.stub());
  ASSERT_TRUE(client.Send(open));
  const int32_t wrong = next[1] == 6 ? 7 : 6;
  ASSERT_TRUE(client.Send(ProposalRequest(20, 20, {next[0], wrong, 9})));
  const auto response = client.Read();
  ASSERT_TRUE(response.has_value());
  const v1::DecodeTrace& trace = response->trace();
  ASSERT_EQ(trace.drafts_size(), 3);
  EXPECT_EQ(trace.num_received(), 3);
  EXPECT_GE(trace.held_us(), 0);
  const auto expect = [](const v1::TargetProbability& got, bool likeliest) {
    EXPECT_EQ(got.probability(), likeliest ? 1 : 0);
    EXPECT_NEAR(
        got.logprob(),
        static_cast<double>(likeliest ? LikeliestLogprob() : OtherLogprob()),
        1e-5);
  };
  EXPECT_EQ(trace.drafts(0).outcome(), v1::DRAFT_OUTCOME_ACCEPTED);
  EXPECT_EQ(trace.drafts(1).outcome(), v1::DRAFT_OUTCOME_REJECTED);
  EXPECT_EQ(trace.drafts(2).outcome(), v1::DRAFT_OUTCOME_DISCARDED);
  expect(trace.drafts(0).target(), true);
  expect(trace.drafts(1).target(), false);
  EXPECT_FALSE(trace.drafts(2).has_target());
  ASSERT_EQ(trace.choices_size(), 2);
  expect(trace.choices(0), true);
  expect(trace.choices(1), true);
  // Nothing to propose: the rest is decoded plainly.
  ASSERT_TRUE(client.Send(TuneRequest(0, std::nullopt)));
  client.Drain();
  EXPECT_EQ(client.tokens(), next);
  EXPECT_EQ(client.last().trace().choices_size(), 1);
}

}  // namespace
}  // namespace specwire::verifier
