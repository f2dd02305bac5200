// SPDX-License-Identifier: Apache-2.0
// A second real model: gemma3-270m in Q4_K_M, which has a vocabulary of 262,144
// tokens, local layers, norms everywhere and a gate of its own. Compared with
// what Hugging Face transformers computes from the same file in float32
// (tests/data/make_gemma_logits.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/engine.h"
#include "common/text/tokenizer.h"
#include "tests/common/model/engine_test_util.h"

namespace specwire {
namespace {

constexpr char kModel[] = SPECWIRE_MODEL_DIR "/gemma-3-270m-q4_k_m.gguf";

class GemmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) {
      GTEST_SKIP() << "NOT TESTED: models/gemma-3-270m-q4_k_m.gguf is absent; "
                      "docs/models.md says how to get it";
    }
    std::ifstream in(SPECWIRE_TEST_DATA "/reference/gemma3_270m.json");
    rows_ = nlohmann::json::parse(in, nullptr, false);
    ASSERT_EQ(rows_.size(), 7u);
  }

  // How many of the greedy tokens that are no near-tie (by `margin`) the engine
  // agrees with, and how many there are.
  std::pair<int, int> Agreement(Engine& engine, double margin) const {
    int agreed = 0;
    int compared = 0;
    for (const auto& row : rows_) {
      const auto kv = engine.NewSequence();
      Tokens next = row["ids"].get<Tokens>();
      for (size_t i = 0; i < row["greedy"].size(); ++i) {
        LogitRow last;
        for (size_t done = 0; done < next.size(); done += 512) {
          last = Compute(engine,
                         kv.get(),
                         absl::MakeConstSpan(next).subspan(done, 512))
                     .back();
        }
        next = {row["greedy"][i].get<int32_t>()};
        if (row["margins"][i].get<double>() < margin) continue;
        ++compared;
        agreed += PlainArgMax(last) == next[0];
      }
    }
    return {agreed, compared};
  }

  nlohmann::json rows_;
};

TEST_F(GemmaTest, TheReferenceIsTransformers) {
  const auto engine = Load({}, kModel);
  for (const auto& row : rows_) {
    const Tokens ids = row["ids"].get<Tokens>();
    if (ids.size() > 512) continue;
    const auto logits =
        Compute(*engine, engine->NewSequence().get(), ids).back();
    for (size_t i = 0; i < row["top"].size(); ++i) {
      EXPECT_NEAR(double{logits[row["top"][i].get<size_t>()]},
                  row["top_logits"][i].get<double>(),
                  2e-3)
          << row["text"];
    }
  }
  const auto [agreed, compared] = Agreement(*engine, 4e-3);
  EXPECT_EQ(agreed, compared);
  EXPECT_GT(compared, 200);
}

// Where the best token leads by as much as int8 may be off.
TEST_F(GemmaTest, Int8WritesTheSameWhereItIsClear) {
  const auto engine = Load({"int8", ""}, kModel);
  const auto [agreed, compared] = Agreement(*engine, 0.7);
  EXPECT_EQ(agreed, compared);
  EXPECT_GT(compared, 100);
}

TEST_F(GemmaTest, TokenizesAsTransformers) {
  const auto engine = Load({"int8", ""}, kModel);
  const auto tokenizer = Tokenizer::Create(engine->tokenizer_model());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->add_bos());
  for (const auto& row : rows_) {
    const auto ids =
        (*tokenizer)
            ->Encode(row["text"].get<std::string>(), SpecialTokens::kRecognise);
    ASSERT_TRUE(ids.ok()) << ids.status();
    Tokens with_bos = *ids;
    with_bos.insert(with_bos.begin(), (*tokenizer)->bos_id().value());
    EXPECT_EQ(with_bos, row["ids"].get<Tokens>());
  }
}

}  // namespace
}  // namespace specwire
