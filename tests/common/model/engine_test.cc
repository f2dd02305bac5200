// SPDX-License-Identifier: Apache-2.0
#include "common/model/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The reference; what is tested here is the same for all engines, or about the
// reference alone.
std::unique_ptr<Engine> LoadReference(
    const std::string& path = SPECWIRE_TINY_MODEL,
    const EngineOptions& options = {}) {
  return Load(EngineCase{}, path, options);
}

EngineOptions OneMib() {
  EngineOptions options;
  options.engine = "reference";
  options.kv_cache_mib = 1;
  return options;
}

TEST(EngineTest, GreedyTextIsThatOfPlainPython) {
  // Printed by make_tiny_model.py --greedy 40.
  const Tokens expected = {298, 287, 221, 50,  141, 48,  131, 256, 222, 37,
                           169, 66,  36,  143, 247, 131, 36,  222, 36,  36,
                           153, 111, 15,  138, 29,  303, 21,  29,  261, 13,
                           153, 169, 238, 284, 150, 104, 175, 138, 305, 239};
  const auto engine = LoadReference();
  const auto kv = engine->NewSequence();
  Tokens text = {1, 84, 104, 101};
  const size_t prompt = text.size();
  while (text.size() < prompt + expected.size()) {
    const auto rest =
        absl::MakeConstSpan(text).subspan(static_cast<size_t>(kv->length()));
    text.push_back(PlainArgMax(
        Compute(*engine, {{.kv = kv.get(), .tokens = rest, .num_logits = 1}})
            .at(0)));
  }
  EXPECT_EQ(Tokens(text.begin() + static_cast<int>(prompt), text.end()),
            expected);
}

TEST(EngineTest, DescribesTheModel) {
  EngineOptions options;
  const auto engine = LoadReference();
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
  options.served_model_name = "another";
  EXPECT_EQ(LoadReference(SPECWIRE_TINY_MODEL, options)->info().name,
            "another");
}

TEST(EngineTest, RefusesBadRunsAndChangesNothing) {
  const auto engine = LoadReference();
  const auto other = LoadReference();
  const auto kv = engine->NewSequence();
  const auto foreign = other->NewSequence();
  const Tokens tokens = RandomTokens(13, 300);
  const auto text = absl::MakeConstSpan(tokens);
  Compute(*engine, kv.get(), text.subspan(0, 10));
  const Tokens negative = {5, -1};
  const Tokens large = {320};
  Tokens best = {7, 7};
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
      {{{kv.get(), text.subspan(0, 2), 1, absl::MakeSpan(best)}},
       "runs[0].best: holds 2, not 1"},
      {{{kv.get(), text.subspan(0, 2), 0, absl::MakeSpan(best)}},
       "runs[0].best: holds 2, not 0"},
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
    EXPECT_THAT(best, ElementsAre(7, 7));
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
  EXPECT_EQ(LoadReference(SPECWIRE_TINY_MODEL, options)->info().max_model_len,
            100);
  options.max_model_len = 257;
  EXPECT_THAT(
      std::string(LoadEngine(SPECWIRE_TINY_MODEL, options).status().message()),
      HasSubstr("max_model_len: 257"));
  // 85 blocks hold 1360 positions.
  TinyFile tiny;
  tiny.ints["llama.context_length"] = 5000;
  const std::string path = tiny.Write("long");
  EXPECT_EQ(LoadReference(path, OneMib())->info().max_model_len, 1360);
  options = OneMib();
  options.max_model_len = 1361;
  EXPECT_THAT(std::string(LoadEngine(path, options).status().message()),
              HasSubstr("kv_cache_mib 1 holds 1360"));
}

TEST(EngineTest, TheDigestIsThatOfTheModelAlone) {
  for (const char* name : {"reference", "int8"}) {
    SCOPED_TRACE(name);
    const auto digest_of = [name](const std::string& path,
                                  const EngineOptions& options = {}) {
      return Load({name, ""}, path, options)->info().model_digest;
    };
    const std::string digest = digest_of(SPECWIRE_TINY_MODEL);
    EngineOptions options = OneMib();
    options.num_threads = 2;
    options.max_model_len = 64;
    options.served_model_name = "another";
    EXPECT_EQ(digest_of(SPECWIRE_TINY_MODEL, options), digest);
    // The same model in a file with its tensors and keys in another order.
    EXPECT_EQ(digest_of(TinyFile().Write("reordered")), digest);

    TinyFile weights;
    weights.tensors["blk.1.ffn_up.weight"].data.replace(
        0, 4, PackFloats({1.0F}));
    EXPECT_NE(digest_of(weights.Write("weights")), digest);
    TinyFile norm;
    norm.tensors["blk.2.ffn_norm.weight"].data[0] ^= 1;
    EXPECT_NE(digest_of(norm.Write("norm")), digest);
    TinyFile tokens;
    tokens.tokens[300] += "x";
    EXPECT_NE(digest_of(tokens.Write("tokens")), digest);
    TinyFile merges;
    std::swap(merges.merges[3], merges.merges[4]);
    EXPECT_NE(digest_of(merges.Write("merges")), digest);
    TinyFile chat;
    chat.strings["tokenizer.chat_template"] += " ";
    EXPECT_NE(digest_of(chat.Write("chat")), digest);
    TinyFile theta;
    theta.floats["llama.rope.freq_base"] = 20000;
    EXPECT_NE(digest_of(theta.Write("theta")), digest);
  }
}

TEST(EngineTest, TheLeastBitOfAFloat32WeightIsInTheDigest) {
  TinyFile weights;
  weights.tensors["blk.1.ffn_up.weight"].data[1] ^= 1;
  EXPECT_NE(LoadReference(weights.Write("bit"))->info().model_digest,
            LoadReference()->info().model_digest);
}

TEST(EngineTest, NamesTheModelAfterItsFile) {
  TinyFile tiny;
  tiny.strings["general.name"] = "some training run";
  EXPECT_EQ(LoadReference(tiny.Write("named"))->info().name, "specwire_named");
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
  expect_error([](EngineOptions& o) { o.engine = "fast"; },
               "engine: \"fast\" is unknown; known: int8, reference");
  expect_error([](EngineOptions& o) { o.num_threads = 0; }, "--threads: 0");
  expect_error([](EngineOptions& o) { o.num_threads = 1000; },
               "--threads: 1000");
  expect_error([](EngineOptions& o) { o.kv_cache_mib = 0; }, "kv_cache_mib: 0");
  expect_error([](EngineOptions& o) { o.max_model_len = -1; },
               "max_model_len: -1");
  expect_error([](EngineOptions& o) { o.num_layers = 4; }, "--draft_layers: 4");
  expect_error([](EngineOptions& o) { o.num_layers = -1; },
               "--draft_layers: -1");
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
