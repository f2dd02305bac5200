// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/synthetic_engine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/sampling/greedy.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<SyntheticEngine> Make(SyntheticEngineOptions options = {}) {
  return *SyntheticEngine::Create(options);
}

// The next token after `tokens`, computed in one pass.
int32_t NextToken(Engine* engine, const std::vector<int32_t>& tokens) {
  const auto kv = engine->NewSequence();
  int32_t best = -1;
  const ForwardRun run = {.kv = kv.get(),
                          .tokens = tokens,
                          .num_logits = 1,
                          .best = absl::MakeSpan(&best, 1)};
  EXPECT_TRUE(engine->Forward(absl::MakeConstSpan(&run, 1)).ok());
  return best;
}

TEST(SyntheticEngineTest, LogitsAndBestAreThoseOfTheLanguage) {
  const auto engine = Make();
  const SyntheticLanguage language(engine->info().vocab_size);
  const std::vector<int32_t> tokens = {70, 71, 72, 73, 74};
  const auto logits_kv = engine->NewSequence();
  const auto best_kv = engine->NewSequence();
  std::vector<int32_t> best(3);
  const std::vector<ForwardRun> runs = {
      {.kv = best_kv.get(),
       .tokens = tokens,
       .num_logits = 3,
       .best = absl::MakeSpan(best)},
      {.kv = logits_kv.get(), .tokens = tokens, .num_logits = 3}};
  const auto logits = engine->Forward(runs);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto vocab = static_cast<size_t>(language.vocab_size());
  ASSERT_EQ(logits->size(), 3 * vocab);
  uint64_t state = language.Begin();
  for (size_t i = 0; i < tokens.size(); ++i) {
    state = language.Extend(state, tokens[i]);
    if (i < 2) continue;
    EXPECT_EQ(best[i - 2], language.Next(state));
    EXPECT_EQ(ArgMax(logits->subspan((i - 2) * vocab, vocab)), best[i - 2]);
  }
  EXPECT_EQ(engine->rows_computed(), 10);
  EXPECT_TRUE(engine->info().synthetic);
  EXPECT_EQ(engine->info().engine, "synthetic");
}

TEST(SyntheticEngineTest, RollingBackForgetsTokens) {
  const auto engine = Make();
  const auto kv = engine->NewSequence();
  std::vector<int32_t> text = {80, 81, 82};
  const auto forward = [&](const std::vector<int32_t>& tokens) {
    int32_t best = -1;
    const ForwardRun run = {.kv = kv.get(),
                            .tokens = tokens,
                            .num_logits = 1,
                            .best = absl::MakeSpan(&best, 1)};
    EXPECT_TRUE(engine->Forward(absl::MakeConstSpan(&run, 1)).ok());
    return best;
  };
  forward(text);
  forward({90, 91, 92});
  kv->Truncate(3);
  EXPECT_EQ(forward({95}), NextToken(engine.get(), {80, 81, 82, 95}));
  EXPECT_EQ(kv->length(), 4);
}

TEST(SyntheticEngineTest, BlocksAreCountedAndReturned) {
  // 4096 blocks of 16 tokens.
  const auto engine = Make({.max_model_len = 1 << 20, .kv_cache_mib = 1});
  EXPECT_EQ(engine->kv_blocks_total(), 4096);
  // No longer than the pool.
  EXPECT_EQ(engine->info().max_model_len, 4096 * 16);
  const std::vector<int32_t> tokens(512, 70);
  {
    const auto kv = engine->NewSequence();
    const ForwardRun run = {.kv = kv.get(), .tokens = tokens};
    for (int i = 0; i < 128; ++i) {
      ASSERT_TRUE(engine->Forward(absl::MakeConstSpan(&run, 1)).ok());
    }
    EXPECT_EQ(engine->kv_blocks_used(), 4096);
    const auto other = engine->NewSequence();
    const ForwardRun more = {.kv = other.get(), .tokens = tokens};
    EXPECT_TRUE(absl::IsResourceExhausted(
        engine->Forward(absl::MakeConstSpan(&more, 1)).status()));
    EXPECT_EQ(other->length(), 0);
    kv->Truncate(1);
    EXPECT_EQ(engine->kv_blocks_used(), 1);
  }
  EXPECT_EQ(engine->kv_blocks_used(), 0);
}

TEST(SyntheticEngineTest, BadRunsChangeNothing) {
  const auto engine = Make({.max_model_len = 8});
  const auto kv = engine->NewSequence();
  for (const std::vector<int32_t>& tokens :
       {std::vector<int32_t>(),
        std::vector<int32_t>{-1},
        std::vector<int32_t>{engine->info().vocab_size},
        std::vector<int32_t>(9, 70)}) {
    const ForwardRun run = {.kv = kv.get(), .tokens = tokens};
    EXPECT_TRUE(absl::IsInvalidArgument(
        engine->Forward(absl::MakeConstSpan(&run, 1)).status()));
    EXPECT_EQ(kv->length(), 0);
  }
}

TEST(SyntheticEngineTest, PassTakesItsTime) {
  const auto engine = Make(
      {.step_time = absl::Milliseconds(10), .row_time = absl::Milliseconds(2)});
  const auto start = std::chrono::steady_clock::now();
  NextToken(engine.get(), {70, 71, 72, 73, 74});
  // No less; how much more is the machine's affair.
  EXPECT_GE(std::chrono::steady_clock::now() - start,
            std::chrono::milliseconds(20));
}

TEST(SyntheticEngineTest, BadOptionsAreNamed) {
  const auto message = [](const SyntheticEngineOptions& options) {
    return std::string(SyntheticEngine::Create(options).status().message());
  };
  EXPECT_THAT(message({.vocab_size = 3}), HasSubstr("--synthetic_vocab: 3"));
  EXPECT_THAT(message({.step_time = -absl::Microseconds(1)}),
              HasSubstr("--synthetic_step_us: -1"));
  EXPECT_THAT(message({.row_time = absl::Hours(1)}),
              HasSubstr("--synthetic_row_us"));
  EXPECT_THAT(message({.max_model_len = 1 << 21}),
              HasSubstr("--max_model_len"));
}

}  // namespace
}  // namespace specwire::verifier
