// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/pipeline.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/sampling/processors.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

std::vector<double> Dense(const TokenDistribution& distribution, size_t size) {
  std::vector<double> dense(size, 0.0);
  for (size_t i = 0; i < distribution.token_ids.size(); ++i) {
    dense[static_cast<size_t>(distribution.token_ids[i])] =
        distribution.probabilities[i];
  }
  return dense;
}

std::vector<int32_t> Ids(absl::Span<const Candidate> candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& c : candidates) ids.push_back(c.token_id);
  return ids;
}

SamplingParams ParamsOf(const nlohmann::json& p) {
  SamplingParams params;
  params.temperature = p["temperature"];
  params.top_k = p["top_k"];
  params.top_p = p["top_p"];
  params.min_p = p["min_p"];
  params.repetition_penalty = p["repetition_penalty"];
  params.frequency_penalty = p["frequency_penalty"];
  params.presence_penalty = p["presence_penalty"];
  for (const auto& [id, bias] : p["logit_bias"].items()) {
    params.logit_bias.push_back({std::stoi(id), bias.get<float>()});
  }
  return params;
}

TEST(PipelineTest, ReproducesEveryReferenceRow) {
  std::ifstream file(std::string(SPECWIRE_TEST_DATA) +
                     "/reference/processors.jsonl");
  ASSERT_TRUE(file.good());
  int num_rows = 0;
  int num_penalised = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    SCOPED_TRACE(row["name"].get<std::string>());
    const SamplingParams params = ParamsOf(row["params"]);
    // One row has a top_p of 0, which requests may not have.
    EXPECT_TRUE(params.top_p == 0 || ValidateSampling(params, 1000).ok());
    const std::vector<float> logits = row["logits"];
    const std::vector<int32_t> prompt = row["prompt_ids"];
    const std::vector<int32_t> output = row["output_ids"];
    const std::vector<double> want = row["probs"];
    ASSERT_EQ(logits.size(), want.size());
    // The output as settled tokens, as a run of draft tokens, and as both.
    for (size_t cut = 0; cut <= output.size(); ++cut) {
      std::vector<int32_t> settled = prompt;
      settled.insert(settled.end(),
                     output.begin(),
                     output.begin() + static_cast<std::ptrdiff_t>(cut));
      Pipeline pipeline(params,
                        {.prompt_length = static_cast<int>(prompt.size()),
                         .end_token_ids = {}});
      const std::vector<double> got =
          Dense(pipeline.Distribution(
                    logits,
                    {.settled = settled,
                     .run = absl::MakeConstSpan(output).subspan(cut)}),
                want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-6) << "token " << i;
        EXPECT_EQ(got[i] == 0, want[i] == 0) << "token " << i;
      }
    }
    num_penalised += LogitProcessors(params, {}).ActiveAt(0) ? 1 : 0;
    ++num_rows;
  }
  EXPECT_EQ(num_rows, 30);
  EXPECT_GE(num_penalised, 8);
}

TEST(PipelineTest, TiesAtACutKeepTheLowestIds) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  SamplingParams params;
  params.top_k = 2;
  EXPECT_EQ(Ids(Pipeline(params, {}).Cut(logits)), (std::vector<int>{1, 2}));
  params.top_k = 0;
  params.top_p = 0.01f;
  EXPECT_EQ(Ids(Pipeline(params, {}).Cut(logits)), (std::vector<int>{1}));
  params.top_p = 0.5f;
  EXPECT_EQ(Ids(Pipeline(params, {}).Cut(logits)), (std::vector<int>{1, 2}));
  // 0 and -0 tie.
  params.top_p = 1;
  params.top_k = 1;
  EXPECT_EQ(Ids(Pipeline(params, {}).Cut({{-0.0f, 0.0f}})),
            (std::vector<int>{0}));
}

TEST(PipelineTest, TopPCountsWhatTopKLeft) {
  // Among the two that top_k leaves, the first alone has 0.62 of the sum.
  const std::vector<float> logits = {1.0f, 0.5f, 0.4f, 0.3f};
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.6f;
  EXPECT_EQ(Ids(Pipeline(params, {}).Cut(logits)), (std::vector<int>{0}));
}

TEST(PipelineTest, WhatIsNoNumberIsCutAndInfinityLeavesOnlyItself) {
  Pipeline pipeline({}, {});
  EXPECT_EQ(Ids(pipeline.Cut({{kNan, -kInf, 1.0f, kNan, -5.0f}})),
            (std::vector<int>{2, 4}));
  EXPECT_TRUE(pipeline.Cut({{kNan, -kInf}}).empty());
  EXPECT_EQ(Ids(pipeline.Cut({{1.0f, kInf, kNan, kInf}})),
            (std::vector<int>{1, 3}));
  const TokenDistribution& both =
      pipeline.Distribution({{1.0f, kInf, kNan, kInf}}, At(0));
  EXPECT_EQ(both.probabilities, (std::vector<double>{0.5, 0.5}));
  EXPECT_TRUE(pipeline.Distribution({{kNan, -kInf}}, At(0)).token_ids.empty());
}

TEST(PipelineTest, GreedyIsTheArgMaxOfProcessedLogits) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{2, 5.0f}};
  Pipeline pipeline(params, {});
  const TokenDistribution& one =
      pipeline.Distribution({{3.0f, 4.0f, 0.0f, 5.0f}}, At(0));
  EXPECT_EQ(one.token_ids, (std::vector<int32_t>{2}));
  EXPECT_EQ(one.probabilities, (std::vector<double>{1.0}));
}

TEST(PipelineTest, ShortcutsKeepWhatThePlainDefinitionKeeps) {
  for (int round = 0; round < 3000; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const SamplingParams params = RandomCuts(seed);
    const size_t size = round % 50 == 0 ? 49152 : 1 + seed * 37 % 3000;
    const std::vector<float> logits = HardLogits(size, round % 63, seed);
    const std::vector<Candidate> want = CutPlainly(logits, params);
    Pipeline pipeline(params, {});
    const absl::Span<const Candidate> got = pipeline.Cut(logits);
    ASSERT_EQ(got.size(), want.size()) << "round " << round;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].token_id, want[i].token_id) << "round " << round;
      ASSERT_EQ(got[i].score, want[i].score) << "round " << round;
    }
  }
}

TEST(PipelineTest, AnUncutDistributionHasTheBitsOfOneWhoseCutsCutNothing) {
  for (int round = 0; round < 300; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const std::vector<float> logits =
        HardLogits(1 + seed * 31 % 4000, round, seed);
    SamplingParams params;
    params.temperature = round % 2 == 0 ? 1.0f : 0.8f;
    Pipeline uncut(params, {});
    params.min_p = 1e-45f;
    params.top_k = 1 << 20;
    Pipeline cut(params, {});
    const TokenDistribution& got = uncut.Distribution(logits, At(0));
    const TokenDistribution& want = cut.Distribution(logits, At(0));
    double sum = 0;
    for (const double probability : got.probabilities) sum += probability;
    if (!got.token_ids.empty()) {
      EXPECT_NEAR(sum, 1, 1e-12);
    }
    // What min_p cuts here, nobody can draw.
    size_t j = 0;
    for (size_t i = 0; i < got.token_ids.size(); ++i) {
      if (j < want.token_ids.size() && want.token_ids[j] == got.token_ids[i]) {
        ASSERT_EQ(got.probabilities[i], want.probabilities[j++]);
      } else {
        ASSERT_LT(got.probabilities[i], 1e-40);
      }
    }
    ASSERT_EQ(j, want.token_ids.size());
  }
}

TEST(PipelineTest, OneObjectServesManyRows) {
  // Scratch memory of one row leaves no trace in the next.
  SamplingParams params;
  params.top_p = 0.9f;
  Pipeline kept(params, {});
  for (int round = 0; round < 200; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const std::vector<float> logits = HardLogits(1 + seed * 17, round, seed);
    EXPECT_EQ(Ids(kept.Cut(logits)), Ids(Pipeline(params, {}).Cut(logits)));
  }
}

}  // namespace
}  // namespace specwire
