// SPDX-License-Identifier: Apache-2.0
// Small random models of many shapes: what the engines promise holds for each,
// not only where sizes are multiples of a vector's.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/shape_file.h"

namespace specwire {
namespace {

constexpr GgmlType kF32 = GgmlType::kF32;
constexpr GgmlType kF16 = GgmlType::kF16;
constexpr GgmlType kBF16 = GgmlType::kBF16;
constexpr GgmlType kQ8_0 = GgmlType::kQ8_0;
constexpr GgmlType kQ4_0 = GgmlType::kQ4_0;
constexpr GgmlType kQ4_1 = GgmlType::kQ4_1;
constexpr GgmlType kQ5_0 = GgmlType::kQ5_0;
constexpr GgmlType kQ5_1 = GgmlType::kQ5_1;
constexpr GgmlType kQ4_K = GgmlType::kQ4_K;
constexpr GgmlType kQ5_K = GgmlType::kQ5_K;
constexpr GgmlType kQ6_K = GgmlType::kQ6_K;

std::vector<ModelShape> Shapes() {
  return {
      {.name = "smallest",
       .hidden = 8,
       .heads = 1,
       .kv_heads = 1,
       .head_dim = 2,
       .ffn = 8},
      {.name = "three_heads",
       .hidden = 24,
       .heads = 3,
       .kv_heads = 1,
       .head_dim = 8,
       .ffn = 40,
       .vocab = 333,
       .types = {kF32, kF16, kBF16}},
      {.name = "five_heads_untied",
       .hidden = 40,
       .heads = 5,
       .kv_heads = 5,
       .head_dim = 8,
       .ffn = 72,
       .vocab = 321,
       .untied = true,
       .types = {kBF16, kF32, kF16, kF32}},
      // The down projection alone can be in blocks.
      {.name = "nine_heads_of_24",
       .hidden = 72,
       .heads = 9,
       .kv_heads = 3,
       .head_dim = 24,
       .ffn = 96,
       .vocab = 335,
       .rope_factors = true,
       .types = {kQ4_1, kQ8_0, kF16}},
      {.name = "one_head_of_64",
       .hidden = 64,
       .heads = 1,
       .kv_heads = 1,
       .head_dim = 64,
       .ffn = 96,
       .types = {kQ8_0, kQ4_0, kQ4_1, kF32, kBF16, kF16, kQ4_1}},
      {.name = "seven_heads_of_16",
       .hidden = 96,
       .heads = 7,
       .kv_heads = 7,
       .head_dim = 16,
       .ffn = 160,
       .types = {kQ4_0}},
      {.name = "seven_heads_of_80",
       .hidden = 160,
       .heads = 7,
       .kv_heads = 1,
       .head_dim = 80,
       .ffn = 224,
       .vocab = 350,
       .untied = true,
       .types = {kQ4_1}},
      {.name = "three_heads_of_128",
       .hidden = 128,
       .heads = 3,
       .kv_heads = 3,
       .head_dim = 128,
       .ffn = 32,
       .rope_factors = true,
       .types = {kQ8_0}},
      // SmolLM2's, a third as wide: 4-bit layers under an 8-bit embedding.
      {.name = "nine_heads_of_64",
       .hidden = 192,
       .heads = 9,
       .kv_heads = 3,
       .head_dim = 64,
       .ffn = 480,
       .vocab = 497,
       .types = {kQ8_0,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1,
                 kQ4_1}},
      {.name = "heads_of_256",
       .hidden = 32,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 256,
       .ffn = 200,
       .types = {kQ4_0, kQ4_1}},
      {.name = "six_heads_of_10",
       .hidden = 56,
       .heads = 6,
       .kv_heads = 2,
       .head_dim = 10,
       .ffn = 88,
       .vocab = 336,
       .types = {kF16}},
      // More queries for one KV head than any kernel computes together.
      {.name = "seventeen_to_one",
       .hidden = 136,
       .heads = 17,
       .kv_heads = 1,
       .head_dim = 34,
       .ffn = 264,
       .types = {kBF16}},
      {.name = "five_bit_blocks",
       .hidden = 96,
       .heads = 3,
       .kv_heads = 1,
       .head_dim = 32,
       .ffn = 128,
       .types = {kQ5_1, kQ5_0}},
      // The usual mixture: most of it Q4_K, the rest in more bits.
      {.name = "super_blocks",
       .hidden = 256,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 64,
       .ffn = 512,
       .types = {kQ6_K, kQ4_K, kQ4_K, kQ6_K, kQ4_K, kQ4_K, kQ5_K, kQ6_K}},
      {.name = "super_blocks_beside_small_ones",
       .hidden = 256,
       .heads = 5,
       .kv_heads = 5,
       .head_dim = 32,
       .ffn = 288,
       .untied = true,
       .types = {kQ5_K, kQ4_K, kQ5_0, kQ6_K, kQ5_1}},
  };
}

class ModelShapesTest : public ::testing::TestWithParam<ModelShape> {
 protected:
  void SetUp() override {
    path_ = WriteModel(GetParam());
    // Across three blocks of the cache.
    tokens_ = RandomTokens(31, 43, GetParam().vocab);
  }

  // All logits and arg-maxima in pieces of random size, half of the passes with
  // a second sequence, everything that belongs to nobody being NaN.
  void ExpectEqual(const EngineCase& engine,
                   int threads,
                   const std::vector<LogitRow>& expected) const {
    EngineOptions options;
    options.num_threads = threads;
    options.poison_free_kv = true;
    options.kv_cache_mib = 1;
    options.max_model_len = 60;
    const auto loaded = Load(engine, path_, options);
    std::mt19937 random(static_cast<uint32_t>(threads));
    const auto text = absl::MakeConstSpan(tokens_);
    const auto kv = loaded->NewSequence();
    const auto other = loaded->NewSequence();
    for (size_t done = 0; done < text.size();) {
      const auto part = text.subspan(done, 1 + random() % 20);
      const int rows = static_cast<int>(part.size());
      std::vector<int32_t> best(part.size());
      std::vector<ForwardRun> runs = {
          {.kv = kv.get(), .tokens = part, .num_logits = rows}};
      if (random() % 2 == 0) {
        other->Truncate(0);
        runs.push_back({.kv = other.get(),
                        .tokens = part,
                        .num_logits = rows,
                        .best = absl::MakeSpan(best)});
      }
      const auto got = Compute(*loaded, runs);
      ASSERT_EQ(got.size(), part.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(SameBits(got[i], expected[done + i])) << done + i;
      }
      if (runs.size() == 2 && done == 0) {
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(best[i], PlainArgMax(got[i]));
        }
      }
      done += part.size();
    }
  }

  std::string path_;
  Tokens tokens_;
};

TEST_P(ModelShapesTest, RowsThreadsAndInstructionSetsDoNotShow) {
  const auto expected = OneByOne(*Load({"int8", ""}, path_), tokens_);
  for (const EngineCase& engine : Int8Engines()) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(engine.Name(), ", threads: ", threads));
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(engine, threads, expected));
    }
  }
}

TEST_P(ModelShapesTest, TheReferenceKeepsItsBitsToo) {
  const auto expected = OneByOne(*Load({}, path_), tokens_);
  ASSERT_NO_FATAL_FAILURE(ExpectEqual({}, 3, expected));
}

// Two layers of normally distributed weights, scaled to leave sizes as they
// are: a dozen roundings of 0.7 % each between embedding and logits, whose
// squares add up to some 2.5 %. A head, a group or a row in the wrong place
// makes that more than half.
TEST_P(ModelShapesTest, LogitsLieNearTheReference) {
  const auto reference = OneByOne(*Load({}, path_), tokens_);
  const auto int8 = OneByOne(*Load({"int8", ""}, path_), tokens_);
  const double error = RelativeError(int8, reference);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LT(error, 0.05);
}

INSTANTIATE_TEST_SUITE_P(All,
                         ModelShapesTest,
                         ::testing::ValuesIn(Shapes()),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace specwire
