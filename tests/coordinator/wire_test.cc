// SPDX-License-Identifier: Apache-2.0
#include "coordinator/wire.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocabSize = 100;

v1::DecodeResponse GoodResponse() {
  v1::DecodeResponse response;
  response.set_position(5);
  response.add_tokens(7);
  response.add_tokens(8);
  response.set_num_proposed(3);
  response.set_num_accepted(1);
  response.mutable_counters()->set_stale(4);
  return response;
}

TEST(ParseCommitTest, TakesWhatASoundVerifierSends) {
  v1::DecodeResponse response = GoodResponse();
  response.mutable_finish()->set_reason(v1::FINISH_REASON_STOP);
  response.mutable_finish()->set_stop_token_id(8);
  const auto commit = ParseCommit(response, kVocabSize);
  ASSERT_TRUE(commit.ok()) << commit.status();
  EXPECT_EQ(commit->position, 5);
  EXPECT_THAT(commit->tokens, ElementsAre(7, 8));
  EXPECT_EQ(commit->num_proposed, 3);
  EXPECT_EQ(commit->num_accepted, 1);
  EXPECT_EQ(commit->counters.stale, 4);
  EXPECT_EQ(commit->finish, FinishReason::kStop);
  EXPECT_EQ(commit->stop_token_id, 8);
}

TEST(ParseCommitTest, RefusesByField) {
  using Response = v1::DecodeResponse;
  struct Case {
    const char* field;
    void (*spoil)(Response*);
  };
  const Case cases[] = {
      {"position", [](Response* r) { r->set_position(-1); }},
      {"tokens", [](Response* r) { r->set_tokens(0, -1); }},
      {"tokens", [](Response* r) { r->set_tokens(1, kVocabSize); }},
      {"tokens", [](Response* r) { r->mutable_tokens()->Resize(258, 1); }},
      {"tokens",
       [](Response* r) {
         r->clear_tokens();
         r->set_num_accepted(0);
       }},
      {"num_proposed", [](Response* r) { r->set_num_proposed(-1); }},
      {"num_proposed", [](Response* r) { r->set_num_proposed(257); }},
      {"num_accepted", [](Response* r) { r->set_num_accepted(-1); }},
      {"num_accepted", [](Response* r) { r->set_num_accepted(4); }},
      {"num_accepted", [](Response* r) { r->set_num_accepted(3); }},
      {"counters",
       [](Response* r) { r->mutable_counters()->set_overlapped(-1); }},
      {"finish.reason",
       [](Response* r) {
         r->mutable_finish()->set_reason(v1::FINISH_REASON_ERROR);
       }},
      {"finish.reason", [](Response* r) { r->mutable_finish(); }},
      {"reason",
       [](Response* r) {
         r->mutable_finish()->set_reason(static_cast<v1::FinishReason>(99));
       }},
  };
  for (const Case& c : cases) {
    Response response = GoodResponse();
    c.spoil(&response);
    const absl::Status status = ParseCommit(response, kVocabSize).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
  }
}

TEST(WireTest, PatienceWithoutLimitIsMinusOne) {
  CheckedRequest request;
  request.params.prompt = {1, 2};
  OpenVerifier open;
  open.tokens = {1, 2, 3};
  open.patience = absl::InfiniteDuration();
  EXPECT_EQ(MakeDecodeOpen(request, open).open().patience_us(), -1);
  EXPECT_EQ(MakeDecodeOpen(request, open).open().prompt_length(), 2);
  EXPECT_EQ(MakeDecodeOpen(request, open).open().tokens_size(), 3);
  SendDecodeTune tune;
  tune.patience = absl::Microseconds(7);
  EXPECT_EQ(MakeDecodeTune(tune).tune().patience_us(), 7);
  EXPECT_FALSE(MakeDecodeTune(tune).tune().has_decode_until());
}

TEST(WireTest, DraftSettingsAreThoseOfTheStream) {
  CheckedRequest request;
  request.params.prompt = {1, 2};
  OpenDrafter open;
  open.tokens = {1, 2, 3};
  open.run_length = 16;
  open.window = 40;
  open.min_survival = 0.25f;
  const v1::DraftRequest opened = MakeDraftOpen(request, open);
  EXPECT_EQ(opened.open().run_length(), 16);
  EXPECT_EQ(opened.open().window(), 40);
  EXPECT_EQ(opened.open().min_survival(), 0.25f);
  SendDraftTune tune;
  tune.min_survival = 0.5f;
  const v1::DraftRequest tuned = MakeDraftTune(tune);
  EXPECT_EQ(tuned.tune().min_survival(), 0.5f);
  EXPECT_FALSE(tuned.tune().has_run_length());
  EXPECT_FALSE(tuned.tune().has_window());
}

// All four messages of a round, late in a long text, at run length 8; without
// logprobs and timings.
TEST(WireTest, ProposalAndCommitOfEightAreSmall) {
  constexpr int kPosition = 8000;
  constexpr int32_t kToken = 49151;
  v1::DraftResponse drafted;
  drafted.set_position(kPosition);
  drafted.set_based_on(kPosition - 8);
  drafted.mutable_tokens()->Resize(8, kToken);
  drafted.set_confidence(0.5f);
  const v1::DecodeRequest proposed = MakeProposal(ParseProposal(drafted, 3));
  v1::DecodeResponse decoded;
  decoded.set_position(kPosition);
  decoded.mutable_tokens()->Resize(9, kToken);
  decoded.set_num_proposed(8);
  decoded.set_num_accepted(8);
  decoded.mutable_counters()->set_overlapped(100000);
  decoded.mutable_counters()->set_stale(100000);
  decoded.mutable_counters()->set_trimmed(100000);
  const v1::DraftRequest committed =
      MakeDraftCommit({3, kPosition, std::vector<int32_t>(9, kToken)});
  ASSERT_EQ(proposed.proposal().tokens_size(), 8);
  ASSERT_EQ(committed.commit().tokens_size(), 9);
  EXPECT_LE(drafted.ByteSizeLong() + proposed.ByteSizeLong() +
                decoded.ByteSizeLong() + committed.ByteSizeLong(),
            256u);
}

TEST(WireTest, StatsOfARequestWithoutDraftsAreZero) {
  const v1::SpeculationStats stats =
      MakeStats(SpeculationFigures(), SpeculationSettings(), "");
  EXPECT_EQ(stats.mean_acceptance_length(), 0);
  EXPECT_EQ(stats.draft_acceptance_rate(), 0);
}

TEST(WireTest, StatsFollowTheDefinitions) {
  SpeculationFigures figures;
  figures.num_spec_steps = 4;
  figures.num_draft_tokens = 16;
  figures.num_accepted_draft_tokens = 6;
  figures.acceptance_histogram = {1, 1, 1, 1};
  figures.num_ahead_hits = 5;
  figures.num_ahead_misses = 6;
  figures.predicted_speedup = 1.5;
  const v1::SpeculationStats stats =
      MakeStats(figures, SpeculationSettings(), "ngram");
  EXPECT_EQ(stats.mean_acceptance_length(), 2.5);
  EXPECT_EQ(stats.draft_acceptance_rate(), 0.375);
  EXPECT_EQ(stats.acceptance_histogram_size(), 4);
  EXPECT_EQ(stats.num_spec_tokens(), 4);
  EXPECT_EQ(stats.num_ahead_hits(), 5);
  EXPECT_EQ(stats.num_ahead_misses(), 6);
  EXPECT_EQ(stats.predicted_speedup(), 1.5);
  EXPECT_EQ(stats.drafter(), "ngram");
}

}  // namespace
}  // namespace specwire::coordinator
