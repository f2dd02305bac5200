// SPDX-License-Identifier: Apache-2.0

// A model drafter with a draft model whose head is trimmed, against the whole
// model with the other tokens masked.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/model/engine.h"
#include "common/model_drafting/model_drafter.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/greedy_text.h"

namespace specwire {
namespace {

const std::vector<int32_t> kPrompt = {20, 84, 104, 101, 33};

DraftSequenceParams Seeded(float temperature) {
  DraftSequenceParams params;
  params.sampling.temperature = temperature;
  params.sampling.top_p = 0.95f;
  params.sampling.seed = 77;
  return params;
}

std::string TargetsFingerprint() {
  const auto target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  return (*Tokenizer::Create(target->tokenizer_model()))->fingerprint();
}

std::unique_ptr<ModelDrafter> MakeTrimmedDrafter(const std::string& engine) {
  EngineOptions options;
  options.engine = engine;
  options.kv_cache_mib = 8;
  options.allow_draft_model = true;
  auto loaded = LoadEngine(SPECWIRE_TINY_DRAFT_MODEL, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  auto drafter = ModelDrafter::Create(*std::move(loaded), {});
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  return *std::move(drafter);
}

// The untrimmed model, one pass a token, with -infinity for all tokens that are
// not in the trimmed head.
class MaskedModel {
 public:
  explicit MaskedModel(const std::string& engine) {
    EngineOptions options;
    options.engine = engine;
    options.kv_cache_mib = 8;
    model_ = *LoadEngine(SPECWIRE_TINY_MODEL, options);
    options.allow_draft_model = true;
    const auto trimmed = LoadEngine(SPECWIRE_TINY_DRAFT_MODEL, options);
    const auto ids = (*trimmed)->info().head_token_ids();
    head_.assign(ids.begin(), ids.end());
    kv_ = model_->NewSequence();
  }

  bool Has(int32_t token) const {
    return std::binary_search(head_.begin(), head_.end(), token);
  }
  // After all of `path`, which only ever grows.
  std::vector<float> Logits(const std::vector<int32_t>& path) {
    const auto start = static_cast<size_t>(kv_->length());
    const ForwardRun row = {.kv = kv_.get(),
                            .tokens = absl::MakeConstSpan(path).subspan(start),
                            .num_logits = 1};
    const auto logits = model_->Forward(absl::MakeConstSpan(&row, 1));
    EXPECT_TRUE(logits.ok());
    std::vector<float> masked(logits->size(),
                              -std::numeric_limits<float>::infinity());
    for (const int32_t id : head_) {
      masked[static_cast<size_t>(id)] = (*logits)[static_cast<size_t>(id)];
    }
    return masked;
  }

 private:
  std::unique_ptr<Engine> model_;
  std::unique_ptr<KvSequence> kv_;
  std::vector<int32_t> head_;
};

std::vector<DraftSequenceParams> ManyParams() {
  std::vector<DraftSequenceParams> all = {
      Seeded(0), Seeded(1.0f), Seeded(0.6f), Seeded(2.0f)};
  all[3].sampling.top_p = 1;
  DraftSequenceParams params = Seeded(1.2f);
  params.choice = 3;
  params.sampling.top_p = 1;
  params.sampling.top_k = 12;
  all.push_back(params);
  params.sampling.top_k = 0;
  params.sampling.min_p = 0.1f;
  all.push_back(params);
  // Processors: a token of the head and one that is not.
  for (const float temperature : {0.0f, 1.0f}) {
    params = Seeded(temperature);
    params.sampling.repetition_penalty = 1.3f;
    params.sampling.frequency_penalty = 0.7f;
    params.sampling.presence_penalty = 0.3f;
    for (int32_t id = 30; id < 60; ++id) {
      params.sampling.logit_bias.push_back(
          {.token_id = id, .bias = id % 2 == 0 ? 4.0f : -4.0f});
    }
    params.context = {.prompt_length = static_cast<int>(kPrompt.size()),
                      .min_tokens = 6,
                      .end_token_ids = {2, 31, 32, 36}};
    all.push_back(params);
  }
  return all;
}

TEST(TrimmedModelTest, DraftsAsIfTheOthersHadNoProbability) {
  for (const char* engine : {"int8", "reference"}) {
    const auto drafter = MakeTrimmedDrafter(engine);
    EXPECT_EQ(drafter->vocabulary_fingerprint(), TargetsFingerprint());
    int index = 0;
    for (const DraftSequenceParams& params : ManyParams()) {
      SCOPED_TRACE(std::string(engine) + std::to_string(index++));
      const auto run = drafter->NewSequence(params)->Propose(kPrompt, {12});
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_EQ(run->tokens.size(), 12u);
      EXPECT_EQ(run->survival.size(), 12u);
      MaskedModel masked(engine);
      CoupledSampler sampler(params.sampling, params.choice, params.context);
      std::vector<int32_t> path = kPrompt;
      for (const int32_t token : run->tokens) {
        EXPECT_TRUE(masked.Has(token));
        ASSERT_EQ(
            token,
            sampler.Choose(masked.Logits(path), {.settled = path, .run = {}}));
        path.push_back(token);
      }
    }
  }
}

TEST(TrimmedModelTest, ItsRatioDistributionsAreOfItsTokens) {
  const auto drafter = MakeTrimmedDrafter("int8");
  int index = 0;
  for (DraftSequenceParams params : ManyParams()) {
    SCOPED_TRACE(index++);
    params.rule = AcceptanceRule::kRatio;
    const auto run = drafter->NewSequence(params)->Propose(kPrompt, {8});
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->tokens.size(), 8u);
    ASSERT_EQ(run->q.size(), 8u);
    MaskedModel masked("int8");
    Pipeline pipeline(params.sampling, params.context);
    std::vector<int32_t> path = kPrompt;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(ValidateDraft(run->q[i], run->tokens[i], 320).ok());
      const DraftDistribution q =
          TruncateForDraft(pipeline.Distribution(masked.Logits(path),
                                                 {.settled = path, .run = {}}),
                           kMaxDraftDistribution);
      ASSERT_EQ(run->q[i].token_ids, q.token_ids);
      for (size_t j = 0; j < q.token_ids.size(); ++j) {
        EXPECT_TRUE(masked.Has(q.token_ids[j]));
        EXPECT_FLOAT_EQ(run->q[i].probabilities[j], q.probabilities[j]);
      }
      path.push_back(run->tokens[i]);
    }
  }
}

TEST(TrimmedModelTest, OnlyTheTargetsOwnFileServesOracleAndAdversary) {
  for (const char* name : {"oracle", "adversarial"}) {
    EngineOptions options;
    options.allow_draft_model = true;
    const auto status =
        ModelDrafter::Create(*LoadEngine(SPECWIRE_TINY_DRAFT_MODEL, options),
                             {.name = name})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace specwire
