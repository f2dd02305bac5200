// SPDX-License-Identifier: Apache-2.0
#include "common/model/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tokens = std::vector<int32_t>;
// Logits of one row; compared bit by bit.
using LogitRow = std::vector<float>;

std::unique_ptr<Engine> Load(const std::string& path = SPECWIRE_TINY_MODEL,
                             const EngineOptions& options = {}) {
  auto engine = LoadEngine(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

Tokens RandomTokens(uint32_t seed, int count) {
  std::mt19937 random(seed);
  Tokens tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % 320));
  }
  return tokens;
}

// Computes runs in one pass and returns all of their logits.
std::vector<LogitRow> Compute(Engine& engine,
                              const std::vector<ForwardRun>& runs) {
  const auto logits = engine.Forward(runs);
  EXPECT_TRUE(logits.ok()) << logits.status();
  std::vector<LogitRow> rows;
  if (logits.ok()) {
    const auto width = static_cast<size_t>(engine.info().vocab_size);
    for (size_t i = 0; i < logits->size(); i += width) {
      const auto row = logits->subspan(i, width);
      rows.emplace_back(row.begin(), row.end());
    }
  }
  return rows;
}

std::vector<LogitRow> Compute(Engine& engine,
                              KvSequence* kv,
                              absl::Span<const int32_t> tokens) {
  return Compute(engine, {{kv, tokens, static_cast<int>(tokens.size())}});
}

// All rows of a text, each computed in a pass of its own.
std::vector<LogitRow> OneByOne(Engine& engine, const Tokens& tokens) {
  const auto kv = engine.NewSequence();
  std::vector<LogitRow> rows;
  for (const int32_t& token : tokens) {
    rows.push_back(
        Compute(engine, kv.get(), absl::MakeConstSpan(&token, 1)).at(0));
  }
  return rows;
}

bool SameBits(const LogitRow& a, const LogitRow& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameRows(const std::vector<LogitRow>& a,
                    const std::vector<LogitRow>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(SameBits(a[i], b[i])) << "row " << i;
  }
}

int32_t ArgMax(const LogitRow& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) -
                              row.begin());
}

TEST(EngineTest, GreedyTextIsThatOfPlainPython) {
  // Printed by make_tiny_model.py --greedy 40.
  const Tokens expected = {298, 287, 221, 50,  141, 48,  131, 256, 222, 37,
                           169, 66,  36,  143, 247, 131, 36,  222, 36,  36,
                           153, 111, 15,  138, 29,  303, 21,  29,  261, 13,
                           153, 169, 238, 284, 150, 104, 175, 138, 305, 239};
  const auto engine = Load();
  const auto kv = engine->NewSequence();
  Tokens text = {1, 84, 104, 101};
  const size_t prompt = text.size();
  while (text.size() < prompt + expected.size()) {
    const auto rest =
        absl::MakeConstSpan(text).subspan(static_cast<size_t>(kv->length()));
    text.push_back(ArgMax(Compute(*engine, {{kv.get(), rest, 1}}).at(0)));
  }
  EXPECT_EQ(Tokens(text.begin() + static_cast<int>(prompt), text.end()),
            expected);
}

TEST(EngineTest, DescribesTheModel) {
  const auto engine = Load();
  EXPECT_EQ(engine->info().name, "tiny");
  EXPECT_EQ(engine->info().architecture, "llama");
  EXPECT_EQ(engine->info().engine, "reference");
  EXPECT_EQ(engine->info().vocab_size, 320);
  EXPECT_EQ(engine->info().num_layers, 3);
  EXPECT_EQ(engine->info().max_model_len, 256);
  EXPECT_THAT(engine->info().eos_ids, ElementsAre(2));
  EXPECT_EQ(engine->info().model_digest.size(), 64u);
  EXPECT_EQ(engine->tokenizer_model().tokens.size(), 320u);
  EXPECT_EQ(engine->kv_block_size(), 16);
  EXPECT_EQ(engine->kv_blocks_used(), 0);
}

TEST(EngineTest, ARowOfAPassEqualsTheRowAlone) {
  const auto engine = Load();
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

// Several texts, cut at random and computed in random company.
void ExpectRaggedBatchesAreEqual(int num_threads, int num_schedules) {
  EngineOptions options;
  options.num_threads = num_threads;
  // Another room than the other engine's; it does not show either.
  options.max_model_len = 170;
  const auto engine = Load(SPECWIRE_TINY_MODEL, options);
  const auto alone = Load();
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
    while (true) {
      std::vector<ForwardRun> runs;
      std::vector<const LogitRow*> wanted;
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto done = static_cast<size_t>(sequences[i]->length());
        const size_t count =
            std::min<size_t>(1 + random() % longest, texts[i].size() - done);
        if (count == 0 || random() % 3 == 0) {
          continue;
        }
        const size_t logits = random() % (count + 1);
        runs.push_back({sequences[i].get(),
                        absl::MakeConstSpan(texts[i]).subspan(done, count),
                        static_cast<int>(logits)});
        for (size_t row = count - logits; row < count; ++row) {
          wanted.push_back(&expected[i][done + row]);
        }
      }
      if (runs.empty()) {
        if (std::all_of(texts.begin(), texts.end(), [&](const Tokens& text) {
              const auto i = static_cast<size_t>(&text - texts.data());
              return sequences[i]->length() == static_cast<int>(text.size());
            })) {
          break;
        }
        continue;
      }
      const auto got = Compute(*engine, runs);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(SameBits(got[i], *wanted[i])) << "schedule " << schedule;
      }
    }
  }
}

TEST(EngineTest, RaggedBatchesEqualEachTextAlone) {
  ExpectRaggedBatchesAreEqual(1, 30);
}

TEST(EngineTest, TheNumberOfThreadsDoesNotShow) {
  for (const int threads : {2, 3, 4}) {
    ExpectRaggedBatchesAreEqual(threads, 5);
  }
}

TEST(EngineTest, RollbackAtEveryPositionEqualsAFreshPrefill) {
  constexpr size_t kRun = 20;
  const auto engine = Load();
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
        Compute(*engine, {{fresh.get(), text, static_cast<int>(right.size())}});
    ExpectSameRows(got, expected);
  }
}

// Keys and values of the tiny model take 12 KiB a block, 1 MiB holds 85.
EngineOptions OneMib() {
  EngineOptions options;
  options.kv_cache_mib = 1;
  return options;
}

TEST(EngineTest, AnExhaustedPoolChangesNothing) {
  const auto engine = Load(SPECWIRE_TINY_MODEL, OneMib());
  ASSERT_EQ(engine->kv_blocks_total(), 85);
  const Tokens tokens = RandomTokens(8, 256);
  const auto text = absl::MakeConstSpan(tokens);
  std::vector<std::unique_ptr<KvSequence>> fillers;
  for (int i = 0; i < 5; ++i) {
    fillers.push_back(engine->NewSequence());
    Compute(*engine, {{fillers.back().get(), text, 0}});
  }
  ASSERT_EQ(engine->kv_blocks_used(), 80);
  const auto first = engine->NewSequence();
  const auto second = engine->NewSequence();
  Compute(*engine, {{first.get(), text.subspan(0, 30), 0}});
  Compute(*engine, {{second.get(), text.subspan(0, 20), 0}});
  ASSERT_EQ(engine->kv_blocks_used(), 84);
  // One more block would do for the first, but not for both.
  const std::vector<ForwardRun> runs = {
      {first.get(), text.subspan(30, 5), 1},
      {second.get(), text.subspan(20, 20), 1}};
  const auto refused = engine->Forward(runs);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("2 blocks"));
  EXPECT_EQ(first->length(), 30);
  EXPECT_EQ(second->length(), 20);
  EXPECT_EQ(engine->kv_blocks_used(), 84);
  fillers.pop_back();
  EXPECT_EQ(engine->kv_blocks_used(), 68);
  const auto got = Compute(*engine, runs);
  const auto expected =
      OneByOne(*engine, Tokens(text.begin(), text.begin() + 40));
  EXPECT_TRUE(SameBits(got.at(0), expected[34]));
  EXPECT_TRUE(SameBits(got.at(1), expected[39]));
}

// With every position that belongs to nobody set to NaN, reading one anywhere
// shows in the logits.
TEST(EngineTest, FreedAndUntouchedBlocksNeverShow) {
  EngineOptions options = OneMib();
  options.poison_free_kv = true;
  const auto poisoned = Load(SPECWIRE_TINY_MODEL, options);
  const auto clean = Load();
  std::mt19937 random(9);
  std::vector<std::unique_ptr<KvSequence>> sequences(4);
  std::vector<Tokens> texts(4);
  for (int step = 0; step < 300; ++step) {
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
    const auto got = Compute(*poisoned, {{sequences[i].get(), more, 1}});
    const auto kv = clean->NewSequence();
    const auto expected = Compute(*clean, {{kv.get(), texts[i], 1}});
    ASSERT_TRUE(SameBits(got.at(0), expected.at(0))) << "step " << step;
  }
}

TEST(EngineTest, RowsBeyondTheTokenizerDoNotExist) {
  TinyFile tiny;
  auto& embedding = tiny.tensors["token_embd.weight"];
  embedding.shape[0] += 32;
  // Large enough to win every arg-max.
  embedding.data += PackFloats(std::vector<float>(32 * 64, 50.0F));
  const auto padded = Load(tiny.Write("padded"));
  const auto plain = Load();
  EXPECT_EQ(padded->info().vocab_size, 320);
  const Tokens tokens = RandomTokens(10, 20);
  ExpectSameRows(OneByOne(*padded, tokens), OneByOne(*plain, tokens));
  EXPECT_NE(padded->info().model_digest, plain->info().model_digest);
  const auto kv = padded->NewSequence();
  const Tokens beyond = {320};
  EXPECT_EQ(padded->Forward({{{kv.get(), beyond, 1}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EngineTest, AHeadOfItsOwnIsUsed) {
  TinyFile tiny;
  tiny.tensors["output.weight"] = tiny.tensors["token_embd.weight"];
  const auto same = Load(tiny.Write("untied_same"));
  const Tokens tokens = RandomTokens(11, 10);
  const auto plain = OneByOne(*Load(), tokens);
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
  auto reversed = OneByOne(*Load(tiny.Write("untied_reversed")), tokens);
  for (size_t i = 0; i < plain.size(); ++i) {
    std::reverse(reversed[i].begin(), reversed[i].end());
    for (size_t id = 0; id < 320; ++id) {
      ASSERT_NEAR(reversed[i][id], plain[i][id], 1e-4);
    }
  }
}

TEST(EngineTest, TheFirstLayersAreAModelOfTheirOwn) {
  TinyFile tiny;
  tiny.ints["llama.block_count"] = 2;
  for (auto it = tiny.tensors.begin(); it != tiny.tensors.end();) {
    it = it->first.rfind("blk.2.", 0) == 0 ? tiny.tensors.erase(it)
                                           : std::next(it);
  }
  const auto two = Load(tiny.Write("two_layers"));
  EngineOptions options;
  options.num_layers = 2;
  const auto first_two = Load(SPECWIRE_TINY_MODEL, options);
  EXPECT_EQ(first_two->info().num_layers, 2);
  EXPECT_NE(first_two->info().model_digest, Load()->info().model_digest);
  const Tokens tokens = RandomTokens(12, 30);
  ExpectSameRows(OneByOne(*first_two, tokens), OneByOne(*two, tokens));
}

TEST(EngineTest, RefusesBadRunsAndChangesNothing) {
  const auto engine = Load();
  const auto other = Load();
  const auto kv = engine->NewSequence();
  const auto foreign = other->NewSequence();
  const Tokens tokens = RandomTokens(13, 300);
  const auto text = absl::MakeConstSpan(tokens);
  Compute(*engine, kv.get(), text.subspan(0, 10));
  const Tokens negative = {5, -1};
  const Tokens large = {320};
  const struct {
    std::vector<ForwardRun> runs;
    const char* message;
  } cases[] = {
      {{}, "runs: 0 rows"},
      {{{kv.get(), {}, 0}}, "runs: 0 rows"},
      {{{nullptr, text.subspan(0, 2), 0}}, "runs[0].kv"},
      {{{foreign.get(), text.subspan(0, 2), 0}}, "runs[0].kv"},
      {{{kv.get(), text.subspan(0, 1), 0}, {kv.get(), text.subspan(0, 1), 0}},
       "runs[1].kv"},
      {{{kv.get(), text.subspan(0, 2), 3}}, "runs[0].num_logits: 3"},
      {{{kv.get(), text.subspan(0, 2), -1}}, "runs[0].num_logits: -1"},
      {{{kv.get(), negative, 1}}, "runs[0].tokens[1]: -1"},
      {{{kv.get(), large, 1}}, "runs[0].tokens[0]: 320 is not in [0, 320)"},
      {{{kv.get(), text.subspan(0, 247), 1}}, "max_model_len 256"},
  };
  for (const auto& bad : cases) {
    const auto result = engine->Forward(bad.runs);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(bad.message));
    EXPECT_EQ(kv->length(), 10);
    EXPECT_EQ(engine->kv_blocks_used(), 1);
  }
  const auto second = engine->NewSequence();
  const auto third = engine->NewSequence();
  EXPECT_THAT(
      std::string(engine
                      ->Forward({{{second.get(), text.subspan(0, 256), 0},
                                  {third.get(), text.subspan(0, 255), 0},
                                  {kv.get(), text.subspan(0, 2), 0}}})
                      .status()
                      .message()),
      HasSubstr("runs: 513 rows"));
  // To the last position it goes.
  EXPECT_EQ(Compute(*engine, kv.get(), text.subspan(0, 246)).size(), 246u);
  EXPECT_EQ(kv->length(), 256);
}

TEST(EngineTest, TheLongestSequenceIsWhatFileOptionAndPoolAllow) {
  EngineOptions options;
  options.max_model_len = 100;
  EXPECT_EQ(Load(SPECWIRE_TINY_MODEL, options)->info().max_model_len, 100);
  options.max_model_len = 257;
  EXPECT_THAT(
      std::string(LoadEngine(SPECWIRE_TINY_MODEL, options).status().message()),
      HasSubstr("max_model_len: 257"));
  // 85 blocks hold 1360 positions.
  TinyFile tiny;
  tiny.ints["llama.context_length"] = 5000;
  const std::string path = tiny.Write("long");
  EXPECT_EQ(Load(path, OneMib())->info().max_model_len, 1360);
  options = OneMib();
  options.max_model_len = 1361;
  EXPECT_THAT(std::string(LoadEngine(path, options).status().message()),
              HasSubstr("kv_cache_mib 1 holds 1360"));
}

TEST(EngineTest, TheDigestIsThatOfTheModelAlone) {
  const std::string digest = Load()->info().model_digest;
  EngineOptions options = OneMib();
  options.num_threads = 2;
  options.max_model_len = 64;
  options.served_model_name = "another";
  const auto engine = Load(SPECWIRE_TINY_MODEL, options);
  EXPECT_EQ(engine->info().name, "another");
  EXPECT_EQ(engine->info().model_digest, digest);
  // The same model in a file with its tensors and keys in another order.
  EXPECT_EQ(Load(TinyFile().Write("reordered"))->info().model_digest, digest);

  TinyFile weights;
  weights.tensors["blk.1.ffn_up.weight"].data[1] ^= 1;
  EXPECT_NE(Load(weights.Write("weights"))->info().model_digest, digest);
  TinyFile tokens;
  tokens.tokens[300] += "x";
  EXPECT_NE(Load(tokens.Write("tokens"))->info().model_digest, digest);
  TinyFile merges;
  std::swap(merges.merges[3], merges.merges[4]);
  EXPECT_NE(Load(merges.Write("merges"))->info().model_digest, digest);
  TinyFile chat;
  chat.strings["tokenizer.chat_template"] += " ";
  EXPECT_NE(Load(chat.Write("chat"))->info().model_digest, digest);
  TinyFile theta;
  theta.floats["llama.rope.freq_base"] = 20000;
  EXPECT_NE(Load(theta.Write("theta"))->info().model_digest, digest);
}

TEST(EngineTest, NamesTheModelAfterItsFile) {
  TinyFile tiny;
  tiny.strings["general.name"] = "some training run";
  EXPECT_EQ(Load(tiny.Write("named"))->info().name, "specwire_named");
}

TEST(LoadEngineTest, RefusesBadOptions) {
  const auto expect_error = [](void (*change)(EngineOptions&),
                               const char* message) {
    EngineOptions options;
    change(options);
    const auto engine = LoadEngine(SPECWIRE_TINY_MODEL, options);
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(message));
  };
  expect_error([](EngineOptions& o) { o.engine = "int8"; },
               "\"int8\" is not there yet");
  expect_error([](EngineOptions& o) { o.engine = "fast"; },
               "engine: \"fast\" is unknown");
  expect_error([](EngineOptions& o) { o.num_threads = 0; }, "num_threads: 0");
  expect_error([](EngineOptions& o) { o.num_threads = 1000; },
               "num_threads: 1000");
  expect_error([](EngineOptions& o) { o.kv_cache_mib = 0; }, "kv_cache_mib: 0");
  expect_error([](EngineOptions& o) { o.max_model_len = -1; },
               "max_model_len: -1");
  expect_error([](EngineOptions& o) { o.num_layers = 4; }, "num_layers: 4");
  expect_error([](EngineOptions& o) { o.num_layers = -1; }, "num_layers: -1");
}

TEST(LoadEngineTest, NamesTheFileAndWhatIsWrongWithIt) {
  const auto expect_error = [](const std::string& path,
                               absl::StatusCode code,
                               const std::string& message) {
    const auto engine = LoadEngine(path, {});
    EXPECT_EQ(engine.status().code(), code) << engine.status();
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(path));
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(message));
  };
  expect_error(::testing::TempDir() + "specwire_nothing.gguf",
               absl::StatusCode::kNotFound,
               "");
  const std::string path = ::testing::TempDir() + "specwire_bad.gguf";
  const std::string good = TinyFile().Build();
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ASSERT_TRUE(WriteBytes(path, "not a model"));
  expect_error(path, invalid, "");
  ASSERT_TRUE(WriteBytes(path, good.substr(0, good.size() / 2)));
  expect_error(path, invalid, "");

  TinyFile tiny;
  tiny.tensors.erase("blk.2.ffn_gate.weight");
  expect_error(tiny.Write("bad"), invalid, "blk.2.ffn_gate.weight");
  tiny = TinyFile();
  tiny.tensors.erase("token_embd.weight");
  expect_error(tiny.Write("bad"), invalid, "token_embd.weight");
  tiny = TinyFile();
  tiny.tensors["blk.0.attn_q.bias"] = tiny.tensors["blk.0.attn_norm.weight"];
  expect_error(tiny.Write("bad"), invalid, "blk.0.attn_q.bias");
  tiny = TinyFile();
  tiny.tensors["blk.3.ffn_norm.weight"] =
      tiny.tensors["blk.0.attn_norm.weight"];
  expect_error(tiny.Write("bad"), invalid, "blk.3.ffn_norm.weight");
  tiny = TinyFile();
  std::swap(tiny.tensors["blk.0.attn_k.weight"],
            tiny.tensors["blk.0.attn_q.weight"]);
  expect_error(tiny.Write("bad"), invalid, "blk.0.attn_q.weight");
  tiny = TinyFile();
  tiny.tensors["output.weight"] = tiny.tensors["blk.0.ffn_up.weight"];
  expect_error(tiny.Write("bad"), invalid, "output.weight");
  tiny = TinyFile();
  tiny.tensors["token_embd.weight"].shape[0] = 319;
  tiny.tensors["token_embd.weight"].data.resize(319 * 64 * sizeof(float));
  expect_error(tiny.Write("bad"), invalid, "token_embd.weight");
  tiny = TinyFile();
  tiny.tensors["blk.1.ffn_down.weight"].data.replace(
      40, 4, PackFloats({std::nanf("")}));
  expect_error(tiny.Write("bad"), invalid, "blk.1.ffn_down.weight");
  tiny = TinyFile();
  tiny.tensors["rope_freqs.weight"] = {
      GgmlType::kF32, {8}, PackFloats({1, 1, 1, 1, 0, 1, 1, 1})};
  expect_error(tiny.Write("bad"), invalid, "rope_freqs.weight");
}

}  // namespace
}  // namespace specwire
