// SPDX-License-Identifier: Apache-2.0
#include "common/model_drafting/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/drafting/random.h"
#include "common/model/engine.h"
#include "common/sampling/coupled.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/greedy_text.h"

namespace specwire {
namespace {

std::unique_ptr<Drafter> MakeModelDrafter(ModelDrafterOptions options,
                                          int num_layers = 0) {
  EngineOptions engine_options;
  engine_options.kv_cache_mib = 8;
  engine_options.num_layers = num_layers;
  auto engine = LoadEngine(SPECWIRE_TINY_MODEL, engine_options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  auto drafter = ModelDrafter::Create(*std::move(engine), std::move(options));
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  return *std::move(drafter);
}

DraftSequenceParams Greedy() {
  DraftSequenceParams params;
  params.sampling.temperature = 0;
  return params;
}

DraftSequenceParams Seeded(float temperature) {
  DraftSequenceParams params;
  params.sampling.temperature = temperature;
  params.sampling.top_p = 0.95f;
  params.sampling.seed = 77;
  return params;
}

// What the target says after `path` by the request's parameters, one pass a
// token.
std::vector<int32_t> TargetText(Engine* target,
                                const DraftSequenceParams& params,
                                std::vector<int32_t> path,
                                int num_tokens) {
  CoupledSampler sampler(params.sampling, params.choice, params.context);
  const std::unique_ptr<KvSequence> kv = target->NewSequence();
  std::vector<int32_t> text;
  for (int i = 0; i < num_tokens; ++i) {
    const auto start = static_cast<size_t>(kv->length());
    const ForwardRun run = {.kv = kv.get(),
                            .tokens = absl::MakeConstSpan(path).subspan(start),
                            .num_logits = 1};
    const auto logits = target->Forward(absl::MakeConstSpan(&run, 1));
    EXPECT_TRUE(logits.ok()) << logits.status();
    text.push_back(sampler.Choose(*logits, {.settled = path, .run = {}}));
    path.push_back(text.back());
  }
  return text;
}

const std::vector<int32_t> kPrompt = {20, 84, 104, 101, 33};

TEST(ModelDrafterTest, TheOracleProposesTheTargetsGreedyText) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  ASSERT_NE(target, nullptr);
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  EXPECT_EQ(drafter->name(), "oracle");
  EXPECT_EQ(drafter->model_digest(), target->info().model_digest);
  const auto tokenizer = Tokenizer::Create(target->tokenizer_model());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(drafter->vocabulary_fingerprint(), (*tokenizer)->fingerprint());

  const auto sequence = drafter->NewSequence(Greedy());
  std::vector<int32_t> path = kPrompt;
  for (int step = 0; step < 6; ++step) {
    const std::vector<int32_t> expected = GreedyText(target.get(), path, 7);
    const auto run = sequence->Propose(path, {7});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->tokens, expected) << step;
    // Take some of it, then go astray: the cache has to be rolled back.
    path.insert(path.end(), expected.begin(), expected.begin() + step);
    path.push_back(200 + step);
  }
}

TEST(ModelDrafterTest, TheOracleDrawsWithTheTargetsNoise) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  for (const float temperature : {0.7f, 1.0f, 1.5f}) {
    const DraftSequenceParams params = Seeded(temperature);
    const auto run = drafter->NewSequence(params)->Propose(kPrompt, {12});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->tokens, TargetText(target.get(), params, kPrompt, 12));
  }
}

TEST(ModelDrafterTest, TheOracleCountsTokensAndKeepsEndsOutAsTheTargetDoes) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  for (DraftSequenceParams params : {Greedy(), Seeded(1.0f)}) {
    const std::vector<int32_t> plain =
        TargetText(target.get(), params, kPrompt, 12);
    params.sampling.repetition_penalty = 1.4f;
    params.sampling.frequency_penalty = 1.0f;
    params.context = {.prompt_length = static_cast<int>(kPrompt.size()),
                      .min_tokens = 8,
                      .end_token_ids = {plain[0]}};
    const std::vector<int32_t> expected =
        TargetText(target.get(), params, kPrompt, 12);
    EXPECT_NE(expected, plain);
    const auto sequence = drafter->NewSequence(params);
    std::vector<int32_t> path = kPrompt;
    for (size_t step = 0; step < 4; ++step) {
      // After a rollback too: what was drafted counts no longer.
      const auto run = sequence->Propose(path, {6});
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(run->tokens,
                std::vector<int32_t>(
                    expected.begin() + static_cast<std::ptrdiff_t>(step),
                    expected.begin() + static_cast<std::ptrdiff_t>(step) + 6));
      path.push_back(expected[step]);
    }
  }
}

TEST(ModelDrafterTest, TheAdversaryNeverProposesWhatTheTargetChooses) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  const auto drafter = MakeModelDrafter({.name = "adversarial"});
  for (const DraftSequenceParams& params : {Greedy(), Seeded(1.0f)}) {
    const auto sequence = drafter->NewSequence(params);
    std::vector<int32_t> path = kPrompt;
    for (int step = 0; step < 10; ++step) {
      const auto run = sequence->Propose(path, {4});
      ASSERT_TRUE(run.ok()) << run.status();
      const int32_t right = TargetText(target.get(), params, path, 1)[0];
      ASSERT_EQ(run->tokens.size(), 4u);
      EXPECT_NE(run->tokens[0], right);
      path.push_back(right);
    }
  }
}

// --- The ratio rule ---

DraftSequenceParams Ratio(float temperature, int64_t seed = 77) {
  DraftSequenceParams params = Seeded(temperature);
  params.sampling.seed = seed;
  params.rule = AcceptanceRule::kRatio;
  return params;
}

TEST(ModelDrafterTest, RatioProposesWhatEachTokenWasDrawnFrom) {
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  const DraftSequenceParams params = Ratio(1.0f);
  const auto run = drafter->NewSequence(params)->Propose(kPrompt, {8});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->tokens.size(), 8u);
  ASSERT_EQ(run->q.size(), 8u);
  Pipeline pipeline(params.sampling, params.context);
  const std::unique_ptr<KvSequence> kv = target->NewSequence();
  std::vector<int32_t> path = kPrompt;
  for (size_t i = 0; i < 8; ++i) {
    const auto start = static_cast<size_t>(kv->length());
    const ForwardRun row = {.kv = kv.get(),
                            .tokens = absl::MakeConstSpan(path).subspan(start),
                            .num_logits = 1};
    const auto logits = target->Forward(absl::MakeConstSpan(&row, 1));
    ASSERT_TRUE(logits.ok());
    const DraftDistribution q = TruncateForDraft(
        pipeline.Distribution(*logits, {.settled = path, .run = {}}),
        kMaxDraftDistribution);
    EXPECT_EQ(run->q[i].token_ids, q.token_ids);
    EXPECT_EQ(run->q[i].probabilities, q.probabilities);
    EXPECT_TRUE(
        ValidateDraft(run->q[i], run->tokens[i], target->info().vocab_size)
            .ok());
    EXPECT_EQ(run->tokens[i],
              DrawDraft(q, {.seed = 77, .position = static_cast<int>(5 + i)}));
    path.push_back(run->tokens[i]);
  }
}

TEST(ModelDrafterTest, RatioGreedyIsCertain) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  const auto run = drafter->NewSequence(Ratio(0))->Propose(kPrompt, {6});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->tokens, GreedyText(target.get(), kPrompt, 6));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(run->q[i].token_ids, std::vector<int32_t>{run->tokens[i]});
    EXPECT_EQ(run->q[i].probabilities, std::vector<float>{1.0f});
  }
}

TEST(ModelDrafterTest, RatioEndsARunByQAloneNotByTheTokenDrawn) {
  // The first place of a run: it has a token for all seeds or for none.
  for (const float least : {0.05f, 0.2f, 0.5f}) {
    const auto drafter = MakeModelDrafter({});
    const DraftLimits limits = {.max_tokens = 1, .min_survival = least};
    const bool has_token = !drafter->NewSequence(Ratio(1.0f, 0))
                                ->Propose(kPrompt, limits)
                                ->tokens.empty();
    for (int64_t seed = 1; seed < 40; ++seed) {
      const auto run =
          drafter->NewSequence(Ratio(1.0f, seed))->Propose(kPrompt, limits);
      ASSERT_TRUE(run.ok());
      EXPECT_EQ(!run->tokens.empty(), has_token) << least;
      EXPECT_EQ(run->q.size(), run->tokens.size());
    }
  }
}

TEST(ModelDrafterTest, FewerLayersAreAnotherModelWithTheSameVocabulary) {
  const auto whole = MakeModelDrafter({});
  const auto part = MakeModelDrafter({}, /*num_layers=*/1);
  EXPECT_EQ(part->vocabulary_fingerprint(), whole->vocabulary_fingerprint());
  EXPECT_NE(part->model_digest(), whole->model_digest());
  const auto run = part->NewSequence(Greedy())->Propose(kPrompt, {8});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->tokens.size(), 8u);
}

// --- Survival ---

TEST(ModelDrafterTest, SurvivalIsTheProductOfProbabilitiesAtFirst) {
  const std::unique_ptr<Engine> model = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  for (const float temperature : {0.0f, 0.7f, 1.3f}) {
    DraftSequenceParams params = Seeded(temperature);
    params.sampling.top_p = 1;
    const auto run =
        MakeModelDrafter({})->NewSequence(params)->Propose(kPrompt, {6});
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->survival.size(), 6u);
    const std::unique_ptr<KvSequence> kv = model->NewSequence();
    std::vector<int32_t> path = kPrompt;
    double survival = 1;
    for (size_t i = 0; i < 6; ++i) {
      const auto start = static_cast<size_t>(kv->length());
      const ForwardRun row = {
          .kv = kv.get(),
          .tokens = absl::MakeConstSpan(path).subspan(start),
          .num_logits = 1};
      const auto logits = model->Forward(absl::MakeConstSpan(&row, 1));
      ASSERT_TRUE(logits.ok());
      double sum = 0;
      const double scale =
          temperature > 0 ? 1 / static_cast<double>(temperature) : 1;
      const auto weight = [&](float logit) {
        return std::exp(static_cast<double>(logit) * scale);
      };
      for (const float logit : *logits) sum += weight(logit);
      survival *= weight((*logits)[static_cast<size_t>(run->tokens[i])]) / sum;
      EXPECT_NEAR(run->survival[i], survival, 1e-5) << temperature;
      path.push_back(run->tokens[i]);
    }
  }
}

TEST(ModelDrafterTest, ARunEndsBeforeATokenThatSurvivesTooSeldom) {
  for (const DraftSequenceParams& params : {Greedy(), Seeded(0.8f)}) {
    const auto whole =
        MakeModelDrafter({})->NewSequence(params)->Propose(kPrompt, {16});
    ASSERT_TRUE(whole.ok());
    ASSERT_EQ(whole->tokens.size(), 16u);
    ASSERT_EQ(whole->survival.size(), 16u);
    EXPECT_TRUE(
        std::is_sorted(whole->survival.rbegin(), whole->survival.rend()));
    for (const size_t cut : {0u, 1u, 2u, 5u}) {
      // Passes that the rest would need are not computed.
      const float least =
          cut == 0 ? std::nextafter(whole->survival[0], 1.0f)
                   : (whole->survival[cut - 1] + whole->survival[cut]) / 2;
      const auto drafter = MakeModelDrafter({});
      const auto sequence = drafter->NewSequence(params);
      DraftTask task = {.sequence = sequence.get(),
                        .path = kPrompt,
                        .limits = {.max_tokens = 16, .min_survival = least}};
      size_t num_passes = 0;
      for (; !task.result.has_value(); ++num_passes) {
        drafter->Propose(absl::MakeSpan(&task, 1));
      }
      ASSERT_TRUE(task.result->ok());
      const DraftRun& run = **task.result;
      ASSERT_EQ(run.tokens.size(), cut);
      EXPECT_TRUE(std::equal(
          run.tokens.begin(), run.tokens.end(), whole->tokens.begin()));
      EXPECT_TRUE(std::equal(
          run.survival.begin(), run.survival.end(), whole->survival.begin()));
      EXPECT_FALSE(run.more);
      EXPECT_EQ(num_passes, cut + 1);
    }
  }
}

// What a drafter says of the last token that it proposes for a text in which
// its tokens are always, or never, right.
struct Learnt {
  float survival = -1;
  // What one says that has seen nothing.
  float at_first = -1;
};
Learnt SurvivalAfter(bool right, float min_survival = 0) {
  const auto drafter = MakeModelDrafter({});
  const auto sequence = drafter->NewSequence(Greedy());
  std::vector<int32_t> path = kPrompt;
  Learnt learnt;
  for (int step = 0; step < 150; ++step) {
    const auto run = sequence->Propose(
        path, {.max_tokens = 1, .min_survival = min_survival});
    const auto fresh =
        MakeModelDrafter({})->NewSequence(Greedy())->Propose(path, {1});
    EXPECT_TRUE(run.ok() && fresh.ok());
    if (!run->tokens.empty()) {
      learnt = {.survival = run->survival[0], .at_first = fresh->survival[0]};
    }
    path.push_back(right ? fresh->tokens[0] : (fresh->tokens[0] + 1) % 320);
  }
  return learnt;
}

TEST(ModelDrafterTest, SurvivalFollowsWhatBecameOfEarlierTokens) {
  const Learnt right = SurvivalAfter(true);
  EXPECT_LT(right.at_first, 0.5f);
  EXPECT_GT(right.survival, 0.7f);
  const Learnt wrong = SurvivalAfter(false);
  EXPECT_GT(wrong.at_first, 0.1f);
  EXPECT_LT(wrong.survival, 0.05f);
}

TEST(ModelDrafterTest, TokensThatWereHeldBackCountToo) {
  // Or it could never be found out that they would have survived.
  const Learnt right = SurvivalAfter(true, 0.7f);
  EXPECT_LT(right.at_first, 0.7f);
  EXPECT_GT(right.survival, 0.7f);
}

TEST(ModelDrafterTest, TheOracleAndTheAdversaryEstimateNothing) {
  for (const char* name : {"oracle", "adversarial"}) {
    const auto run =
        MakeModelDrafter({.name = name})
            ->NewSequence(Greedy())
            ->Propose(kPrompt, {.max_tokens = 4, .min_survival = 0.99f});
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->tokens.size(), 4u);
    EXPECT_TRUE(run->survival.empty());
  }
}

TEST(ModelDrafterTest, EndsAtTheContextsEnd) {
  const auto drafter = MakeModelDrafter({.name = "oracle"});
  const auto sequence = drafter->NewSequence(Greedy());
  const auto length = static_cast<size_t>(drafter->max_model_len());
  const auto run = sequence->Propose(std::vector<int32_t>(length - 3, 50), {8});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GE(run->tokens.size(), 3u);
  EXPECT_LE(run->tokens.size(), 4u);
  const auto none =
      sequence->Propose(std::vector<int32_t>(length + 1, 50), {8});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->tokens.empty());
}

TEST(RandomDrafterTest, DrawsFromTheWholeVocabularyAndNothingElse) {
  RandomDrafter drafter;
  DraftSequenceParams params;
  params.vocab_size = 10;
  const auto sequence = drafter.NewSequence(params);
  std::vector<int> seen(10, 0);
  const auto run = sequence->Propose(kPrompt, {256});
  ASSERT_TRUE(run.ok());
  for (const int32_t token : run->tokens) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 10);
    ++seen[static_cast<size_t>(token)];
  }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 5);
  // The same path and seed, the same tokens.
  EXPECT_EQ(drafter.NewSequence(params)->Propose(kPrompt, {256})->tokens,
            run->tokens);
  params.vocab_size = 0;
  EXPECT_TRUE(
      drafter.NewSequence(params)->Propose(kPrompt, {8})->tokens.empty());
}

}  // namespace
}  // namespace specwire
