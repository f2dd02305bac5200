// SPDX-License-Identifier: Apache-2.0

// Speculation changes when tokens arrive, never which: the tiny model in real
// processes, one draft node of each kind.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/exactness_matrix.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

constexpr int kMaxTokens = 40;
constexpr int kRunLengths[] = {1, 2, 4, 8};
constexpr int64_t kPatiences[] = {0, 5000, kLockStep};
const char* const kDrafters[] = {
    "ngram", "model", "oracle", "adversarial", "random", "local", "none"};

constexpr SamplingSetting kSettings[] = {
    {"greedy", 0},
    {"T=0.7", 0.7f},
    {"T=1", 1},
    {"T=0.7 top_p=0.95", 0.7f, 0, 0.95f},
    {"T=1 top_k=40", 1, 40},
    {"T=1 top_k=40 top_p=0.95", 1, 40, 0.95f},
    {"greedy, processors", 0, 0, 1, true},
    {"T=0.7 top_p=0.95, processors", 0.7f, 0, 0.95f, true},
};

std::vector<std::vector<int32_t>> Prompts() {
  std::vector<std::vector<int32_t>> prompts = {RepeatingPrompt(), {5}};
  if (FullTest()) {
    prompts.push_back(RepeatingPrompt(20));
    prompts.push_back({1, 84, 104, 101, 2});
  }
  return prompts;
}

class ExactnessTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = StartWithEveryDrafter(SPECWIRE_TINY_MODEL);
    ASSERT_NE(cluster_, nullptr);
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static inline std::unique_ptr<ProcessCluster> cluster_;
};

TEST_F(ExactnessTest, PlainAndSpeculativeIdsAreEqual) {
  const std::map<std::string, int64_t> accepted =
      ExpectExact(*cluster_,
                  {.prompts = Prompts(),
                   .settings = kSettings,
                   .drafters = kDrafters,
                   .run_lengths = kRunLengths,
                   .patiences = kPatiences,
                   .max_tokens = kMaxTokens});
  // The comparison says something only if drafts were used.
  for (const char* drafter : {"ngram", "model", "oracle", "local"}) {
    EXPECT_GT(accepted.at(drafter), 0) << drafter;
  }
}

// With a perfect drafter that works no further ahead than one run, every pass
// but the last emits run length + 1 tokens.
TEST_F(ExactnessTest, LockStepCountsPasses) {
  for (const SamplingSetting& setting : kSettings) {
    for (const int run_length : kRunLengths) {
      for (const int max_tokens : {1, run_length + 1, 59}) {
        SCOPED_TRACE(absl::StrCat(
            setting.name, ", ", run_length, ", ", max_tokens, " tokens"));
        v1::GenerateRequest request =
            SeededRequest(RepeatingPrompt(), setting, max_tokens);
        const GenerateResult plain = cluster_->Generate(Plain(request));
        v1::Speculation* how = request.mutable_speculation();
        how->set_drafter("oracle");
        how->set_max_draft_tokens(run_length);
        how->set_window(run_length);
        how->set_patience_us(kLockStep);
        const GenerateResult result = cluster_->Generate(request);
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(result.fault, "");
        EXPECT_EQ(result.token_ids, plain.token_ids);
        const v1::SpeculationStats& stats = result.finished.speculation();
        EXPECT_EQ(stats.num_passes(),
                  (max_tokens + run_length) / (run_length + 1));
        EXPECT_EQ(stats.num_accepted_draft_tokens(), stats.num_draft_tokens());
      }
    }
  }
}

TEST_F(ExactnessTest, UnseededTextsDifferAndTheToldSeedRepeatsThem) {
  constexpr int kTexts = 64;
  v1::GenerateRequest request = SeededRequest({5}, {}, 32);
  request.clear_sampling();
  std::vector<GenerateResult> first(kTexts);
  InParallel(kTexts, kMatrixConcurrency, [&](int i) {
    first[static_cast<size_t>(i)] = cluster_->Generate(request);
  });
  std::set<std::vector<int32_t>> texts;
  std::set<int64_t> seeds;
  for (const GenerateResult& result : first) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.fault, "");
    const v1::SamplingParams& told = result.started.sampling();
    EXPECT_TRUE(told.has_seed());
    EXPECT_EQ(told.temperature(), 1);
    EXPECT_EQ(told.top_p(), 1);
    EXPECT_TRUE(told.has_top_k());
    EXPECT_EQ(told.top_k(), 0);
    EXPECT_TRUE(told.has_min_p());
    EXPECT_EQ(told.min_p(), 0);
    EXPECT_EQ(result.started.stop().max_tokens(), 32);
    texts.insert(result.token_ids);
    seeds.insert(told.seed());
  }
  EXPECT_EQ(seeds.size(), size_t{kTexts});
  EXPECT_GE(texts.size(), 60u);

  std::vector<GenerateResult> again(kTexts);
  InParallel(kTexts, kMatrixConcurrency, [&](int i) {
    v1::GenerateRequest repeat = request;
    *repeat.mutable_sampling() =
        first[static_cast<size_t>(i)].started.sampling();
    repeat.mutable_speculation()->set_drafter(
        kDrafters[static_cast<size_t>(i) % std::size(kDrafters)]);
    again[static_cast<size_t>(i)] = cluster_->Generate(repeat);
  });
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(again[i].token_ids, first[i].token_ids);
    EXPECT_EQ(again[i].text, first[i].text);
  }
}

TEST_F(ExactnessTest, OneSeedGivesOneText) {
  std::vector<GenerateResult> results(64);
  InParallel(64, kMatrixConcurrency, [&](int i) {
    results[static_cast<size_t>(i)] =
        cluster_->Generate(SeededRequest({5}, {"T=1", 1}, 32));
  });
  std::set<std::vector<int32_t>> texts;
  for (const GenerateResult& result : results) texts.insert(result.token_ids);
  EXPECT_EQ(texts.size(), 1u);
  // Another seed, another text.
  v1::GenerateRequest other = SeededRequest({5}, {"T=1", 1}, 32);
  other.mutable_sampling()->set_seed(-76);
  EXPECT_FALSE(texts.contains(cluster_->Generate(other).token_ids));
}

}  // namespace
}  // namespace specwire
