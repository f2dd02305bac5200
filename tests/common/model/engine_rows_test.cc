// SPDX-License-Identifier: Apache-2.0
// What every engine promises of a row: that it depends on its own sequence
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/model/engine.h"
#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

class EngineRowsTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) {
      GTEST_SKIP() << "NOT TESTED: this processor lacks the instruction set";
    }
  }

  static std::unique_ptr<Engine> LoadTiny(const EngineOptions& options = {}) {
    return Load(GetParam(), SPECWIRE_TINY_MODEL, options);
  }
  static std::unique_ptr<Engine> LoadFile(const std::string& path) {
    return Load(GetParam(), path);
  }

  // Scalar code takes many times as long.
  static int Fewer(int count) {
    return GetParam().isa == "scalar" ? std::max(1, count / 5) : count;
  }

  static void ExpectRaggedBatchesAreEqual(int num_threads, int num_schedules);
};

TEST_P(EngineRowsTest, ARowOfAPassEqualsTheRowAlone) {
  const auto engine = LoadTiny();
  const Tokens tokens = RandomTokens(1, 60);
  const auto expected = OneByOne(*engine, tokens);
  for (size_t rows = 1; rows <= 32; ++rows) {
    const auto kv = engine->NewSequence();
    const auto text = absl::MakeConstSpan(tokens);
    Compute(*engine, kv.get(), text.subspan(0, 21));
    const auto got = Compute(*engine, kv.get(), text.subspan(21, rows));
    ASSERT_EQ(got.size(), rows);
    for (size_t i = 0; i < rows; ++i) {
      ASSERT_TRUE(SameBits(got[i], expected[21 + i])) << i << " of " << rows;
    }
  }
}

// As large as a pass may be: prefill equals decoding.
TEST_P(EngineRowsTest, ALargePrefillEqualsDecoding) {
  const auto engine = LoadTiny();
  const Tokens tokens = RandomTokens(2, 250);
  const auto expected = OneByOne(*engine, tokens);
  const auto first = engine->NewSequence();
  const auto second = engine->NewSequence();
  const auto got =
      Compute(*engine,
              {{.kv = first.get(), .tokens = tokens, .num_logits = 250},
               {.kv = second.get(), .tokens = tokens, .num_logits = 250}});
  ASSERT_EQ(got.size(), 500u);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(SameBits(got[i], expected[i % 250])) << i;
  }
}

// Several texts, cut at random and computed in random company. The rows of a
// run that wants no logits have only the arg-max compared.
void EngineRowsTest::ExpectRaggedBatchesAreEqual(int num_threads,
                                                 int num_schedules) {
  EngineOptions options;
  options.num_threads = num_threads;
  // Another room than the other engine's; it does not show either.
  options.max_model_len = 170;
  const auto engine = LoadTiny(options);
  const auto alone = LoadTiny();
  std::vector<Tokens> texts;
  std::vector<std::vector<LogitRow>> expected;
  for (uint32_t i = 0; i < 6; ++i) {
    texts.push_back(RandomTokens(100 + i, 30 + 25 * static_cast<int>(i)));
    expected.push_back(OneByOne(*alone, texts.back()));
  }
  for (int schedule = 0; schedule < num_schedules; ++schedule) {
    std::mt19937 random(static_cast<uint32_t>(schedule));
    std::vector<std::unique_ptr<KvSequence>> sequences;
    for (size_t i = 0; i < texts.size(); ++i) {
      sequences.push_back(engine->NewSequence());
    }
    const size_t longest = 1 + random() % 60;
    const auto is_done = [&](size_t i) {
      return sequences[i]->length() == static_cast<int>(texts[i].size());
    };
    while (!is_done(0) || !is_done(1) || !is_done(2) || !is_done(3) ||
           !is_done(4) || !is_done(5)) {
      std::vector<ForwardRun> runs;
      std::vector<const LogitRow*> wanted;
      std::vector<const LogitRow*> wanted_best;
      std::vector<int32_t> best(512, -2);
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto done = static_cast<size_t>(sequences[i]->length());
        const size_t count =
            std::min<size_t>(1 + random() % longest, texts[i].size() - done);
        if (count == 0 || random() % 3 == 0) {
          continue;
        }
        const size_t logits = random() % (count + 1);
        auto& rows = random() % 4 == 0 ? wanted_best : wanted;
        runs.push_back(
            {.kv = sequences[i].get(),
             .tokens = absl::MakeConstSpan(texts[i]).subspan(done, count),
             .num_logits = static_cast<int>(logits)});
        if (&rows == &wanted_best) {
          runs.back().best =
              absl::MakeSpan(best).subspan(wanted_best.size(), logits);
        }
        for (size_t row = count - logits; row < count; ++row) {
          rows.push_back(&expected[i][done + row]);
        }
      }
      if (runs.empty()) {
        continue;
      }
      const auto got = Compute(*engine, runs);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(SameBits(got[i], *wanted[i])) << "schedule " << schedule;
      }
      for (size_t i = 0; i < wanted_best.size(); ++i) {
        ASSERT_EQ(best[i], PlainArgMax(*wanted_best[i]))
            << "schedule " << schedule;
      }
      ASSERT_EQ(best[wanted_best.size()], -2);
    }
  }
}

TEST_P(EngineRowsTest, RaggedBatchesEqualEachTextAlone) {
  ExpectRaggedBatchesAreEqual(1, Fewer(30));
}

TEST_P(EngineRowsTest, TheNumberOfThreadsDoesNotShow) {
  for (const int threads : {2, 3, 4}) {
    ExpectRaggedBatchesAreEqual(threads, Fewer(5));
  }
}

TEST_P(EngineRowsTest, RollbackAtEveryPositionEqualsAFreshPrefill) {
  constexpr size_t kRun = 20;
  const auto engine = LoadTiny();
  const Tokens prompt = RandomTokens(5, 25);
  const Tokens wrong = RandomTokens(6, kRun);
  const Tokens right = RandomTokens(7, 18);
  for (size_t accepted = 0; accepted <= kRun; ++accepted) {
    const auto kv = engine->NewSequence();
    Compute(*engine, kv.get(), prompt);
    Compute(*engine, kv.get(), wrong);
    const auto kept = static_cast<int>(prompt.size() + accepted);
    kv->Truncate(kept);
    EXPECT_EQ(kv->length(), kept);
    EXPECT_EQ(engine->kv_blocks_used(), (kept + 15) / 16);
    const auto got = Compute(*engine, kv.get(), right);

    Tokens text = prompt;
    text.insert(text.end(),
                wrong.begin(),
                wrong.begin() + static_cast<std::ptrdiff_t>(accepted));
    text.insert(text.end(), right.begin(), right.end());
    const auto fresh = engine->NewSequence();
    const auto expected =
        Compute(*engine,
                {{.kv = fresh.get(),
                  .tokens = text,
                  .num_logits = static_cast<int>(right.size())}});
    ExpectSameRows(got, expected);
  }
}

EngineOptions OneMib() {
  EngineOptions options;
  options.kv_cache_mib = 1;
  return options;
}

TEST_P(EngineRowsTest, AnExhaustedPoolChangesNothing) {
  const auto engine = LoadTiny(OneMib());
  // Keys and values of the tiny model take 12 KiB a block in float32, and half
  // of that in half precision.
  const int64_t total = engine->kv_blocks_total();
  ASSERT_EQ(total, GetParam().engine == "reference" ? 85 : 170);
  const Tokens tokens = RandomTokens(8, 256);
  const auto text = absl::MakeConstSpan(tokens);
  std::vector<std::unique_ptr<KvSequence>> fillers;
  while (engine->kv_blocks_used() < total - 5) {
    const int64_t room = total - 5 - engine->kv_blocks_used();
    fillers.push_back(engine->NewSequence());
    const auto count = static_cast<size_t>(std::min<int64_t>(16 * room, 256));
    Compute(*engine,
            {{.kv = fillers.back().get(), .tokens = text.first(count)}});
  }
  const auto first = engine->NewSequence();
  const auto second = engine->NewSequence();
  Compute(*engine, {{.kv = first.get(), .tokens = text.subspan(0, 30)}});
  Compute(*engine, {{.kv = second.get(), .tokens = text.subspan(0, 20)}});
  ASSERT_EQ(engine->kv_blocks_used(), total - 1);
  // One more block would do for the first, but not for both.
  const std::vector<ForwardRun> runs = {
      {.kv = first.get(), .tokens = text.subspan(30, 5), .num_logits = 1},
      {.kv = second.get(), .tokens = text.subspan(20, 20), .num_logits = 1}};
  const auto refused = engine->Forward(runs);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("2 blocks"));
  EXPECT_EQ(first->length(), 30);
  EXPECT_EQ(second->length(), 20);
  EXPECT_EQ(engine->kv_blocks_used(), total - 1);
  fillers.pop_back();
  EXPECT_LT(engine->kv_blocks_used(), total - 4);
  const auto got = Compute(*engine, runs);
  const auto expected =
      OneByOne(*engine, Tokens(text.begin(), text.begin() + 40));
  EXPECT_TRUE(SameBits(got.at(0), expected[34]));
  EXPECT_TRUE(SameBits(got.at(1), expected[39]));
}

// With every position that belongs to nobody set to NaN, reading one anywhere
// shows in the logits.
TEST_P(EngineRowsTest, FreedAndUntouchedBlocksNeverShow) {
  EngineOptions options = OneMib();
  options.poison_free_kv = true;
  const auto poisoned = LoadTiny(options);
  const auto clean = LoadTiny();
  std::mt19937 random(9);
  std::vector<std::unique_ptr<KvSequence>> sequences(4);
  std::vector<Tokens> texts(4);
  for (int step = 0; step < Fewer(300); ++step) {
    const size_t i = random() % sequences.size();
    if (sequences[i] == nullptr || random() % 8 == 0 || texts[i].size() > 150) {
      sequences[i] = poisoned->NewSequence();
      texts[i].clear();
    }
    if (random() % 3 == 0) {
      texts[i].resize(random() % (texts[i].size() + 1));
      sequences[i]->Truncate(static_cast<int>(texts[i].size()));
    }
    const Tokens more = RandomTokens(static_cast<uint32_t>(random()),
                                     1 + static_cast<int>(random() % 40));
    texts[i].insert(texts[i].end(), more.begin(), more.end());
    const auto got =
        Compute(*poisoned,
                {{.kv = sequences[i].get(), .tokens = more, .num_logits = 1}});
    const auto kv = clean->NewSequence();
    const auto expected = Compute(
        *clean, {{.kv = kv.get(), .tokens = texts[i], .num_logits = 1}});
    ASSERT_TRUE(SameBits(got.at(0), expected.at(0))) << "step " << step;
  }
}

TEST_P(EngineRowsTest, RowsBeyondTheTokenizerDoNotExist) {
  TinyFile tiny;
  auto& embedding = tiny.tensors["token_embd.weight"];
  embedding.shape[0] += 32;
  // Large enough to win every arg-max.
  embedding.data += PackFloats(std::vector<float>(32 * 64, 50.0F));
  const auto padded = LoadFile(tiny.Write("padded"));
  const auto plain = LoadTiny();
  EXPECT_EQ(padded->info().vocab_size, 320);
  const Tokens tokens = RandomTokens(10, 20);
  ExpectSameRows(OneByOne(*padded, tokens), OneByOne(*plain, tokens));
  // They decide no token.
  EXPECT_EQ(padded->info().model_digest, plain->info().model_digest);
  const auto kv = padded->NewSequence();
  const Tokens beyond = {320};
  EXPECT_EQ(
      padded->Forward({{{.kv = kv.get(), .tokens = beyond, .num_logits = 1}}})
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(EngineRowsTest, AHeadOfItsOwnIsUsed) {
  TinyFile tiny;
  tiny.tensors["output.weight"] = tiny.tensors["token_embd.weight"];
  const auto same = LoadFile(tiny.Write("untied_same"));
  const Tokens tokens = RandomTokens(11, 10);
  const auto plain = OneByOne(*LoadTiny(), tokens);
  ExpectSameRows(OneByOne(*same, tokens), plain);
  // Rows in the opposite order give the logits in the opposite order.
  const std::string& data = tiny.tensors["token_embd.weight"].data;
  std::string& head = tiny.tensors["output.weight"].data;
  const size_t row_bytes = 64 * sizeof(float);
  for (size_t row = 0; row < 320; ++row) {
    head.replace(row * row_bytes,
                 row_bytes,
                 data.substr((319 - row) * row_bytes, row_bytes));
  }
  auto reversed = OneByOne(*LoadFile(tiny.Write("untied_reversed")), tokens);
  for (size_t i = 0; i < plain.size(); ++i) {
    std::reverse(reversed[i].begin(), reversed[i].end());
    for (size_t id = 0; id < 320; ++id) {
      ASSERT_NEAR(reversed[i][id], plain[i][id], 1e-4);
    }
  }
}

TEST_P(EngineRowsTest, TheFirstLayersAreAModelOfTheirOwn) {
  TinyFile tiny;
  tiny.ints["llama.block_count"] = 2;
  for (auto it = tiny.tensors.begin(); it != tiny.tensors.end();) {
    it = it->first.rfind("blk.2.", 0) == 0 ? tiny.tensors.erase(it)
                                           : std::next(it);
  }
  const auto two = LoadFile(tiny.Write("two_layers"));
  EngineOptions options;
  options.num_layers = 2;
  const auto first_two = LoadTiny(options);
  EXPECT_EQ(first_two->info().num_layers, 2);
  EXPECT_NE(first_two->info().model_digest, LoadTiny()->info().model_digest);
  const Tokens tokens = RandomTokens(12, 30);
  ExpectSameRows(OneByOne(*first_two, tokens), OneByOne(*two, tokens));
}

// Equal rows of the head give equal logits: the lowest id wins, within a block
// of outputs and across what is computed together.
TEST_P(EngineRowsTest, BestIsTheLowestIdAmongEquals) {
  TinyFile tiny;
  std::string& data = tiny.tensors["token_embd.weight"].data;
  const size_t row_bytes = 64 * sizeof(float);
  // Ids 0 to 39 once more as 40 to 79, and so on to 319.
  for (size_t row = 40; row < 320; ++row) {
    data.replace(row * row_bytes,
                 row_bytes,
                 data.substr(row % 40 * row_bytes, row_bytes));
  }
  EngineOptions options;
  options.num_threads = 2;
  const auto engine = Load(GetParam(), tiny.Write("ties"), options);
  const Tokens tokens = RandomTokens(14, 33);
  const auto kv = engine->NewSequence();
  const auto rows = Compute(*engine, kv.get(), tokens);
  std::vector<int32_t> best(33);
  const auto again = engine->NewSequence();
  EXPECT_THAT(Compute(*engine,
                      {{.kv = again.get(),
                        .tokens = tokens,
                        .num_logits = 33,
                        .best = absl::MakeSpan(best)}}),
              ::testing::IsEmpty());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(best[i], PlainArgMax(rows[i]));
    ASSERT_LT(best[i], 40);
    ASSERT_EQ(rows[i][static_cast<size_t>(best[i])],
              rows[i][static_cast<size_t>(best[i]) + 280]);
  }
}

// Finite weights whose products are not.
TEST_P(EngineRowsTest, BestIsNoneWhereNoLogitIsANumber) {
  TinyFile tiny;
  tiny.tensors["output_norm.weight"].data =
      PackFloats(std::vector<float>(64, 3e38F));
  const auto engine = LoadFile(tiny.Write("overflow"));
  const Tokens tokens = RandomTokens(15, 3);
  const auto kv = engine->NewSequence();
  std::vector<int32_t> best(2);
  Compute(*engine,
          {{.kv = kv.get(),
            .tokens = tokens,
            .num_logits = 2,
            .best = absl::MakeSpan(best)}});
  kv->Truncate(0);
  const auto rows = Compute(*engine, kv.get(), tokens);
  EXPECT_EQ(best[0], PlainArgMax(rows[1]));
  EXPECT_EQ(best[1], PlainArgMax(rows[2]));
  if (GetParam().engine == "int8") {
    // A group with infinities is no number as a whole.
    EXPECT_EQ(best[0], -1);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         EngineRowsTest,
                         ::testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.Name(); });

}  // namespace
}  // namespace specwire
