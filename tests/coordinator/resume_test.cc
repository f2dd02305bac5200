// SPDX-License-Identifier: Apache-2.0

// resume_token_ids: a reply that is cut anywhere goes on with the same ids and
// the same text. The fake model's text is full of broken characters, so many of
// the cuts lie within one.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/detokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

// The request that goes on with `whole` behind its first `count` tokens.
v1::GenerateRequest Resume(const v1::GenerateRequest& original,
                           const GenerateResult& whole,
                           size_t count) {
  v1::GenerateRequest request = original;
  *request.mutable_token_ids()->mutable_ids() =
      whole.started.prompt_token_ids();
  *request.mutable_sampling() = whole.started.sampling();
  *request.mutable_stop() = whole.started.stop();
  request.mutable_resume_token_ids()->Assign(
      whole.token_ids.begin(),
      whole.token_ids.begin() + static_cast<std::ptrdiff_t>(count));
  return request;
}

// The text that the first `count` tokens release.
std::string Released(const GenerateResult& whole, size_t count) {
  const auto tokenizer = *Tokenizer::Create(FakeModel().Tokenizer());
  Detokenizer detokenizer(tokenizer.get(), /*skip_special=*/true);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += detokenizer.Push(whole.token_ids[i]);
  }
  return text;
}

// Everything that must hold of the reply behind the first `count` tokens.
void ExpectRest(const GenerateResult& rest,
                const GenerateResult& whole,
                size_t count) {
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  std::vector<int32_t> ids = {
      whole.token_ids.begin(),
      whole.token_ids.begin() + static_cast<std::ptrdiff_t>(count)};
  ids.insert(ids.end(), rest.token_ids.begin(), rest.token_ids.end());
  EXPECT_EQ(ids, whole.token_ids);
  EXPECT_EQ(Released(whole, count) + rest.text, whole.text);
  const v1::GenerateFinished& finished = rest.finished;
  EXPECT_EQ(finished.finish_reason(), whole.finished.finish_reason());
  EXPECT_EQ(finished.matched_case(), whole.finished.matched_case());
  EXPECT_EQ(finished.usage().prompt_tokens(),
            whole.finished.usage().prompt_tokens());
  EXPECT_EQ(finished.usage().completion_tokens(),
            whole.finished.usage().completion_tokens());
  const v1::SpeculationStats& stats = finished.speculation();
  EXPECT_EQ(stats.num_drafted_tokens(),
            stats.num_draft_tokens() + stats.num_overlapped_tokens() +
                stats.num_stale_tokens() + stats.num_trimmed_tokens() +
                stats.num_unused_tokens());
  EXPECT_LE(stats.num_accepted_draft_tokens() + 0u, rest.token_ids.size());
  EXPECT_EQ(rest.started.stop().max_tokens(),
            whole.started.stop().max_tokens());
}

// GenerateResult's own check of first_index supposes a start at 0; with
// `count` resumed tokens only the first delta may differ, and by that much.
void ExpectFirstIndex(const v1::GenerateDelta& delta, size_t* next) {
  EXPECT_EQ(delta.first_index(), static_cast<int>(*next));
  *next += static_cast<size_t>(delta.token_ids_size());
}

void ResumeEverywhere(InProcessCluster* cluster,
                      const v1::GenerateRequest& request,
                      const GenerateResult& whole) {
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (size_t count = 0; count <= whole.token_ids.size(); ++count) {
    SCOPED_TRACE(absl::StrCat("behind ", count, " tokens"));
    size_t next = count;
    const GenerateResult rest = cluster->Generate(
        Resume(request, whole, count), [&next](const v1::GenerateDelta& delta) {
          ExpectFirstIndex(delta, &next);
          return true;
        });
    ExpectRest(rest, whole, count);
    EXPECT_EQ(next, whole.token_ids.size());
  }
}

TEST(ResumeTest, AnyCutGoesOnWithTheSameIdsAndText) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 80);
  const GenerateResult whole = cluster.Generate(request);
  ExpectComplete(whole, "hello", 80);
  // Some cut lies within a character, or the test is worth little.
  size_t shorter = 0;
  for (size_t count = 0; count <= 80; ++count) {
    const std::vector<int32_t> ids = {
        whole.token_ids.begin(),
        whole.token_ids.begin() + static_cast<std::ptrdiff_t>(count)};
    shorter += Released(whole, count) == Decode(ids) ? 0 : 1;
  }
  EXPECT_GT(shorter, 2u);
  ResumeEverywhere(&cluster, request, whole);
}

TEST(ResumeTest, AnyCutGoesOnWithSpeculation) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  cluster.AddDrafter({.wrong_every = 3});
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const v1::GenerateRequest request = LockStep(GreedyRequest("hello", 40), 4);
  const GenerateResult whole = cluster.Generate(request);
  ExpectComplete(whole, "hello", 40);
  ResumeEverywhere(&cluster, request, whole);
}

TEST(ResumeTest, AnyCutOfATextThatEosEndsGoesOn) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.eos_position = 25;
  cluster.AddVerifier(verifier);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const v1::GenerateRequest request = GreedyRequest("hello", 100);
  const GenerateResult whole = cluster.Generate(request);
  ASSERT_EQ(whole.finished.eos_token_id(), FakeModel::kEos);
  ResumeEverywhere(&cluster, request, whole);
  // A stop that was met ends at once, and asks no verifier.
  const GenerateResult rest =
      cluster.Generate(Resume(request, whole, whole.token_ids.size()));
  EXPECT_TRUE(rest.token_ids.empty());
  EXPECT_EQ(rest.finished.eos_token_id(), FakeModel::kEos);
  EXPECT_EQ(rest.finished.speculation().num_passes(), 0);
}

TEST(ResumeTest, AnyCutGoesOnToTheEndOfTheContext) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.max_model_len = 30;
  cluster.AddVerifier(verifier);
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 1);
  request.mutable_stop()->clear_max_tokens();
  const GenerateResult whole = cluster.Generate(request);
  ASSERT_EQ(whole.token_ids.size(), 25u);
  ResumeEverywhere(&cluster, request, whole);
}

TEST(ResumeTest, ExhaustedBudgetEndsAtOnce) {
  InProcessCluster cluster;
  FakeVerifier* verifier = cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 2);
  request.add_resume_token_ids('a');
  request.add_resume_token_ids(0xe2);
  const GenerateResult rest = cluster.Generate(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_TRUE(rest.token_ids.empty());
  EXPECT_EQ(rest.text, "\xef\xbf\xbd");
  EXPECT_EQ(rest.finished.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(rest.finished.usage().completion_tokens(), 2);
  EXPECT_EQ(verifier->num_opened(), 0);
}

TEST(ResumeTest, TokensBehindAStopAreRefused) {
  InProcessCluster cluster;
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  v1::GenerateRequest request = GreedyRequest("hello", 9);
  for (const int32_t id : {int32_t{'a'}, FakeModel::kEos, int32_t{'b'}}) {
    request.add_resume_token_ids(id);
  }
  const absl::Status status = cluster.Generate(request).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("resume_token_ids[2]"));
}

TEST(ResumeTest, VerifierLostBehindAResumeIsReplaced) {
  InProcessCluster cluster;
  cluster.AddVerifier({.lose_streams_after = 7});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  cluster.AddVerifier({.name = "verifier-2"});
  ASSERT_TRUE(cluster.WaitServing(2, 0));
  const v1::GenerateRequest request = GreedyRequest("hello", 40);
  const GenerateResult whole = cluster.Generate(request);
  ExpectComplete(whole, "hello", 40);
  for (const size_t count : {1, 5, 20}) {
    ExpectRest(cluster.Generate(Resume(request, whole, count)), whole, count);
  }
}

}  // namespace
}  // namespace specwire::coordinator
