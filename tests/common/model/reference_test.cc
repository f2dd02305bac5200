// SPDX-License-Identifier: Apache-2.0
// The default model against the reference data: all logits, and a part of the
// rest; reference_slow_test does all of it.
#include <gtest/gtest.h>

#include "tests/common/model/reference_data.h"

namespace specwire {
namespace {

TEST_F(ReferenceTest, DescribesTheDefaultModel) {
  EXPECT_EQ(engine_->info().architecture, "llama");
  EXPECT_EQ(engine_->info().vocab_size, 49152);
  EXPECT_EQ(engine_->info().num_layers, 30);
  EXPECT_EQ(engine_->info().max_model_len, 8192);
  EXPECT_EQ(engine_->info().eos_ids, std::vector<int32_t>({2}));
}

TEST_F(ReferenceTest, LogitsMatch) {
  const auto rows = Rows("logits.jsonl");
  ASSERT_EQ(rows.size(), 10u);
  for (const auto& row : rows) {
    const Tokens ids = row["prompt_ids"];
    const auto kv = engine_->NewSequence();
    const auto logits = Compute(kv.get(), ids, ids.size());
    ASSERT_EQ(logits.size(), ids.size());
    const auto& last = logits.back();
    for (const auto& pair : row["last_logits_top20"]) {
      EXPECT_NEAR(last[pair[0].get<size_t>()], pair[1].get<double>(), 2e-3);
    }
    EXPECT_EQ(ArgMax(last), row["last_logits_top20"][0][0].get<int32_t>());
    double sum = 0;
    for (const float logit : last) {
      sum += logit;
    }
    EXPECT_NEAR(sum, row["last_logits_sum"].get<double>(), 98);
    for (size_t i = 1; i < ids.size(); ++i) {
      EXPECT_NEAR(LogProbability(logits[i - 1], ids[i]),
                  row["logprobs_of_prompt"][i].get<double>(),
                  2e-3);
    }
  }
}

TEST_F(ReferenceTest, SomeGreedyCompletionsMatch) {
  const auto rows = Rows("greedy.jsonl");
  ASSERT_EQ(rows.size(), 40u);
  for (const size_t row : {0, 8, 13, 26, 32}) {
    CheckGreedyInOnePass(rows[row]);
  }
  // The shortest that ends with a stop token.
  CheckGreedyDecoding(rows[34]);
}

TEST_F(ReferenceTest, SomePerplexitiesMatch) {
  const auto rows = Rows("perplexity.jsonl");
  ASSERT_EQ(rows.size(), 13u);
  CheckPerplexity(rows[1]);
  CheckPerplexity(rows[3]);
}

// The real model's shapes, where the tiny model's might take other paths of
// the matrix library.
TEST_F(ReferenceTest, RowsAreIndependent) {
  const Tokens ids = Rows("perplexity.jsonl")[0]["ids"];
  const auto text = absl::MakeConstSpan(ids).first(60);
  const auto whole = engine_->NewSequence();
  const auto expected = Compute(whole.get(), text, text.size());
  const auto cut = engine_->NewSequence();
  Compute(cut.get(), text.first(19), 0);
  size_t done = 19;
  for (const size_t rows : {1, 2, 3, 5, 8, 9, 1, 12}) {
    const auto got = Compute(cut.get(), text.subspan(done, rows), rows);
    for (size_t i = 0; i < rows; ++i) {
      ASSERT_EQ(got[i], expected[done + i]) << rows << " rows, row " << i;
    }
    done += rows;
  }
}

}  // namespace
}  // namespace specwire
