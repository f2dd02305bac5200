// SPDX-License-Identifier: Apache-2.0
// Attention weights and counts of key rows, which a pass tells on demand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "common/model/engine.h"
#include "tests/common/model/engine_test_util.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

constexpr char kRealModel[] =
    SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";

// A text's weights, in one pass.
std::vector<float> Weights(Engine& engine, const Tokens& tokens, int layer) {
  const auto kv = engine.NewSequence();
  AttentionProbe probe = {.layer = layer};
  Compute(engine, {{.kv = kv.get(), .tokens = tokens, .attention = &probe}});
  return probe.weights;
}

class AttentionTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) GTEST_SKIP() << "the processor cannot";
    engine_ = Load(GetParam(), SPECWIRE_TINY_MODEL);
    ASSERT_NE(engine_, nullptr);
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(AttentionTest, RowsSumToOneAndSeeNothingBehindThemselves) {
  const Tokens tokens = RandomTokens(3, 40);
  const auto heads = static_cast<size_t>(engine_->info().num_heads);
  ASSERT_GT(heads, 1u);
  for (int layer = 0; layer < engine_->info().num_layers; ++layer) {
    const std::vector<float> weights = Weights(*engine_, tokens, layer);
    ASSERT_EQ(weights.size(), heads * 40 * 40);
    for (size_t row = 0; row < heads * 40; ++row) {
      const float* const begin = weights.data() + row * 40;
      EXPECT_NEAR(std::accumulate(begin, begin + 40, 0.0), 1, 1e-5);
      for (size_t i = row % 40 + 1; i < 40; ++i) EXPECT_EQ(begin[i], 0);
      for (size_t i = 0; i <= row % 40; ++i) EXPECT_GT(begin[i], 0);
    }
  }
}

TEST_P(AttentionTest, LaterTokensAndChunksDoNotShow) {
  const Tokens tokens = RandomTokens(4, 37);
  const std::vector<float> whole = Weights(*engine_, tokens, 2);
  const Tokens prefix(tokens.begin(), tokens.begin() + 20);
  const std::vector<float> part = Weights(*engine_, prefix, 2);
  const auto kv = engine_->NewSequence();
  Compute(*engine_, {{.kv = kv.get(), .tokens = prefix}});
  AttentionProbe rest = {.layer = 2};
  Compute(*engine_,
          {{.kv = kv.get(),
            .tokens = absl::MakeConstSpan(tokens).subspan(20),
            .attention = &rest}});
  const auto heads = static_cast<size_t>(engine_->info().num_heads);
  ASSERT_EQ(rest.weights.size(), heads * 17 * 37);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < 37; ++row) {
      for (size_t i = 0; i <= row; ++i) {
        const float want = whole[(head * 37 + row) * 37 + i];
        EXPECT_EQ(row < 20 ? part[(head * 20 + row) * 20 + i]
                           : rest.weights[(head * 17 + row - 20) * 37 + i],
                  want);
      }
    }
  }
}

TEST_P(AttentionTest, LogitsAreTheSameBitsBesideOthersToo) {
  const Tokens tokens = RandomTokens(5, 30);
  const Tokens other = RandomTokens(6, 30);
  const auto expected = OneByOne(*engine_, tokens);
  const auto kv = engine_->NewSequence();
  const auto other_kv = engine_->NewSequence();
  AttentionProbe probe = {.layer = 1};
  ExpectSameRows(Compute(*engine_,
                         {{.kv = other_kv.get(), .tokens = other},
                          {.kv = kv.get(),
                           .tokens = tokens,
                           .num_logits = 30,
                           .attention = &probe}}),
                 expected);
  EXPECT_EQ(probe.weights, Weights(*engine_, tokens, 1));
}

TEST_P(AttentionTest, RefusesALayerThatIsNotThere) {
  const Tokens tokens = RandomTokens(7, 3);
  const auto kv = engine_->NewSequence();
  for (const int layer : {-1, engine_->info().num_layers}) {
    AttentionProbe probe = {.layer = layer};
    const ForwardRun run = {
        .kv = kv.get(), .tokens = tokens, .attention = &probe};
    const absl::Status status = engine_->Forward({&run, 1}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("attention.layer"));
    EXPECT_EQ(kv->length(), 0);
  }
}

TEST_P(AttentionTest, CountsKeyRowsOfEveryLayer) {
  const Tokens tokens = RandomTokens(8, 12);
  const auto kv = engine_->NewSequence();
  EXPECT_EQ(engine_->kv_rows_projected(), 0);
  Compute(*engine_, {{.kv = kv.get(), .tokens = tokens}});
  EXPECT_EQ(engine_->kv_rows_projected(), 12 * engine_->info().num_layers);
  // Cached ones are not computed again.
  Compute(*engine_,
          {{.kv = kv.get(), .tokens = absl::MakeConstSpan(tokens).first(1)}});
  EXPECT_EQ(engine_->kv_rows_projected(), 13 * engine_->info().num_layers);
}

INSTANTIATE_TEST_SUITE_P(Engines,
                         AttentionTest,
                         ::testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.Name(); });

// make_attention.py computes the same in float64, without any of our code.
TEST(RealModelAttentionTest, EqualsAnIndependentComputation) {
  if (!std::filesystem::exists(kRealModel)) {
    GTEST_SKIP() << "NOT TESTED: the model is absent; scripts/setup.sh "
                    "fetches it";
  }
  std::ifstream in(SPECWIRE_TEST_DATA "/attention.json");
  const auto expected = nlohmann::json::parse(in);
  const Tokens ids = expected["token_ids"];
  // Activations of eight bits move most weights by less than a hundredth, and
  // one by seven.
  for (const auto& [name, tolerance, mean] :
       std::vector<std::tuple<std::string, double, double>>{
           {"reference", 1e-4, 1e-5}, {"int8", 0.15, 0.01}}) {
    const auto engine = Load({name, ""}, kRealModel);
    for (const auto& layer : expected["layers"]) {
      const std::vector<float> weights =
          Weights(*engine, ids, layer["layer"].get<int>());
      const std::vector<double> want = layer["weights"];
      ASSERT_EQ(weights.size(), want.size());
      double sum = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(weights[i], want[i], tolerance) << name << " " << i;
        sum += std::abs(weights[i] - want[i]);
      }
      EXPECT_LT(sum / static_cast<double>(want.size()), mean) << name;
    }
  }
}

}  // namespace
}  // namespace specwire
