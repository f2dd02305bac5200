// SPDX-License-Identifier: Apache-2.0
// The int8 engine on the default model, against what the float32 reference
// computed. bench/quality.cc measures more, on more text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "common/kernels/kernels.h"
#include "tests/common/model/reference_data.h"

namespace specwire {
namespace {

class Int8ReferenceTest : public ReferenceTest {
 protected:
  static void SetUpTestSuite() {
    if (BestKernels().isa != Isa::kScalar) LoadSuiteEngine("int8");
  }
  void SetUp() override {
    if (BestKernels().isa == Isa::kScalar) {
      GTEST_SKIP() << "NOT TESTED: scalar code would take minutes";
    }
    ReferenceTest::SetUp();
  }

  // Negative log-likelihood, and how many tokens it is of.
  struct Score {
    double nll = 0;
    double count = 0;
    double perplexity() const { return std::exp(nll / count); }
  };

  // A row of perplexity.jsonl, with its own windows.
  static Score ScoreOf(const nlohmann::json& row) {
    const Tokens ids = row["ids"];
    const auto all = absl::MakeConstSpan(ids);
    if (row["method"] == "single_window") {
      return {Nll(all, ids.size()), row["num_scored_tokens"]};
    }
    Score score = {0, row["token_count"]};
    for (const auto& window : row["windows"]) {
      const size_t begin = window["begin"];
      const size_t end = window["end"];
      score.nll += Nll(all.subspan(begin, end - begin), window["targets"]);
    }
    return score;
  }

  static Score ExpectedOf(const nlohmann::json& row) {
    if (row["method"] == "single_window") {
      return {row["nll_sum"], row["num_scored_tokens"]};
    }
    return {row["token_nll_sum"], row["token_count"]};
  }
};

TEST_F(Int8ReferenceTest, PerplexityIsThatOfTheReference) {
  Score got;
  Score expected;
  for (const auto& row : Rows("perplexity.jsonl")) {
    const Score of_row = ScoreOf(row);
    const Score wanted = ExpectedOf(row);
    // One short text may lie off by chance.
    EXPECT_NEAR(of_row.perplexity() / wanted.perplexity(), 1, 0.03);
    got.nll += of_row.nll;
    got.count += of_row.count;
    expected.nll += wanted.nll;
    expected.count += wanted.count;
  }
  const double ratio = got.perplexity() / expected.perplexity();
  std::printf("perplexity %.4f, of the reference %.4f (%+.3f %%)\n",
              got.perplexity(),
              expected.perplexity(),
              100 * (ratio - 1));
  EXPECT_NEAR(ratio, 1, 0.01);
}

// Each completion in one pass. Where another token is likelier than the
// reference's, the two must be close: 0.5 is as close as the reference's own
// two best may be there, and the engines' logits differ by less than 0.5.
TEST_F(Int8ReferenceTest, GreedyCompletionsPartOnlyWhereTwoTokensAreClose) {
  const auto rows = Rows("greedy.jsonl");
  int tokens = 0;
  int same = 0;
  double widest = 0;
  for (const size_t row : {0, 8, 13, 20, 22, 26, 29, 32, 33, 38}) {
    Tokens text = rows[row]["prompt_ids"];
    const Tokens completion = rows[row]["completion_ids"];
    text.insert(text.end(), completion.begin(), completion.end() - 1);
    const auto kv = engine_->NewSequence();
    const auto logits = Compute(kv.get(), text, completion.size());
    ASSERT_EQ(logits.size(), completion.size());
    for (size_t i = 0; i < completion.size(); ++i) {
      const float best = *std::max_element(logits[i].begin(), logits[i].end());
      const float gap = best - logits[i][static_cast<size_t>(completion[i])];
      ++tokens;
      same += gap == 0 ? 1 : 0;
      widest = std::max(widest, static_cast<double>(gap));
    }
  }
  std::printf(
      "%d of %d likeliest tokens are the reference's, others are at "
      "most %.3f above it\n",
      same,
      tokens,
      widest);
  EXPECT_GT(same, tokens * 95 / 100);
  EXPECT_LT(widest, 1.0);
}

}  // namespace
}  // namespace specwire
