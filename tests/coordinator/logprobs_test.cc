// SPDX-License-Identifier: Apache-2.0

// Log-probabilities on their way through the coordinator.

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/request_machine.h"
#include "coordinator/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabSize = 100;

Commit MakeCommit(int32_t position, const std::vector<int32_t>& tokens) {
  Commit commit;
  commit.position = position;
  commit.tokens = tokens;
  commit.num_proposed = static_cast<int32_t>(tokens.size()) - 1;
  commit.num_accepted = commit.num_proposed;
  for (const int32_t token : tokens) {
    commit.logprobs.push_back({{token, -token * 0.5}, {}});
  }
  return commit;
}

RequestParams Params() {
  RequestParams params;
  params.prompt = {1, 2, 3};
  params.max_tokens = 20;
  params.vocab_size = kVocabSize;
  params.speculation.enabled = true;
  params.speculation.run_length = 8;
  params.speculation.window = 8;
  return params;
}

// A machine whose verifier has been sent `draft`.
std::unique_ptr<RequestMachine> Machine(const std::vector<int32_t>& draft,
                                        TokenJudge judge) {
  auto machine = std::make_unique<RequestMachine>(Params(), std::move(judge));
  machine->Start();
  Proposal proposal;
  proposal.source = 1;
  proposal.position = 3;
  proposal.based_on = 3;
  proposal.tokens = draft;
  machine->OnProposal(proposal);
  return machine;
}

// Of the emitted tokens, as "id:logprob".
std::string Emitted(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    const auto* emit = std::get_if<EmitTokens>(&action);
    if (emit == nullptr) continue;
    EXPECT_EQ(emit->logprobs.size(), emit->tokens.size());
    for (size_t i = 0; i < emit->logprobs.size(); ++i) {
      EXPECT_EQ(emit->logprobs[i].chosen.token_id, emit->tokens[i]);
      EXPECT_EQ(emit->logprobs[i].chosen.logprob, -emit->tokens[i] * 0.5);
      text += std::to_string(emit->tokens[i]) + " ";
    }
  }
  return text;
}

TEST(LogprobsTest, FollowTheTokensOfACommit) {
  const auto machine = Machine({10, 11, 12}, nullptr);
  EXPECT_EQ(Emitted(machine->OnCommit(MakeCommit(3, {10, 11, 12, 13}))),
            "10 11 12 13 ");
}

TEST(LogprobsTest, SkipWhatIsKnownAlready) {
  const auto machine = Machine({10, 11, 12}, nullptr);
  machine->OnCommit(MakeCommit(3, {10}));
  EXPECT_EQ(Emitted(machine->OnCommit(MakeCommit(3, {10, 11}))), "11 ");
}

TEST(LogprobsTest, EndWithTheStopText) {
  const auto machine =
      Machine({10, 11, 12}, [](int32_t token) { return token == 11; });
  EXPECT_EQ(Emitted(machine->OnCommit(MakeCommit(3, {10, 11, 12, 13}))),
            "10 11 ");
  EXPECT_TRUE(machine->finished());
}

v1::DecodeResponse Response(int num_logprobs) {
  v1::DecodeResponse response;
  response.set_position(3);
  for (const int32_t token : {7, 8}) response.add_tokens(token);
  for (int i = 0; i < num_logprobs; ++i) {
    v1::PositionLogprobs* entry = response.add_logprobs();
    entry->mutable_chosen()->set_token_id(7 + i);
    entry->mutable_chosen()->set_logprob(-1.5f);
    for (const int32_t token : {3, 4}) {
      v1::TokenLogprob* candidate = entry->add_top();
      candidate->set_token_id(token);
      candidate->set_logprob(-0.25f);
    }
  }
  response.set_num_proposed(1);
  return response;
}

TEST(LogprobsTest, OfACommitAreParsed) {
  const auto commit = ParseCommit(Response(2), kVocabSize, 2);
  ASSERT_TRUE(commit.ok()) << commit.status();
  ASSERT_EQ(commit->logprobs.size(), 2u);
  EXPECT_EQ(commit->logprobs[1].chosen.token_id, 8);
  EXPECT_EQ(commit->logprobs[1].chosen.logprob, -1.5);
  ASSERT_EQ(commit->logprobs[1].top.size(), 2u);
  EXPECT_EQ(commit->logprobs[1].top[1].token_id, 4);
  v1::DecodeResponse impossible = Response(2);
  impossible.mutable_logprobs(0)->mutable_chosen()->set_logprob(
      -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(ParseCommit(impossible, kVocabSize, 2).ok());
}

TEST(LogprobsTest, BadOnesOfACommitAreRefused) {
  const auto expect_refused = [](const v1::DecodeResponse& response,
                                 std::optional<int> asked,
                                 const std::string& what) {
    const auto commit = ParseCommit(response, kVocabSize, asked);
    EXPECT_THAT(std::string(commit.status().message()), HasSubstr(what));
  };
  expect_refused(Response(0), 2, "logprobs: 0 entries for 2 tokens");
  expect_refused(Response(1), 2, "logprobs: 1 entries");
  expect_refused(Response(2), std::nullopt, "logprobs: 2 entries");
  expect_refused(Response(2), 1, "top");
  v1::DecodeResponse response = Response(2);
  response.mutable_logprobs(1)->mutable_chosen()->set_token_id(9);
  expect_refused(response, 2, "chosen");
  response = Response(2);
  response.mutable_logprobs(0)->clear_chosen();
  expect_refused(response, 2, "chosen");
  response = Response(2);
  response.mutable_logprobs(0)->mutable_top(0)->set_token_id(kVocabSize);
  expect_refused(response, 2, "token_id");
  for (const float logprob : {0.5f, std::nanf("")}) {
    response = Response(2);
    response.mutable_logprobs(1)->mutable_top(1)->set_logprob(logprob);
    expect_refused(response, 2, "logprob");
  }
}

TEST(LogprobsTest, OfThePromptAreChecked) {
  CheckedRequest request;
  request.params.prompt = {5, 6, 7, 8};
  request.params.vocab_size = kVocabSize;
  v1::PromptLogprobs logprobs;
  logprobs.set_position(2);
  for (const int32_t token : {7, 8}) {
    v1::PositionLogprobs* entry = logprobs.add_logprobs();
    entry->mutable_chosen()->set_token_id(token);
    entry->mutable_chosen()->set_logprob(-2);
  }
  // Nobody asked.
  EXPECT_FALSE(CheckPromptLogprobs(logprobs, request).ok());
  request.prompt_logprobs = 0;
  EXPECT_TRUE(CheckPromptLogprobs(logprobs, request).ok());
  for (const int32_t position : {-1, 0, 1, 3, 4, INT32_MAX}) {
    logprobs.set_position(position);
    EXPECT_FALSE(CheckPromptLogprobs(logprobs, request).ok()) << position;
  }
  EXPECT_FALSE(CheckPromptLogprobs(v1::PromptLogprobs(), request).ok());
}

}  // namespace
}  // namespace specwire::coordinator
