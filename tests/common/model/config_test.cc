// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ModelConfig> Read(const TinyFile& tiny, int num_layers = 0) {
  const std::string bytes = tiny.Build();
  auto file = GgufFile::Parse(
      "x.gguf",
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                          bytes.size()));
  if (!file.ok()) {
    return file.status();
  }
  return ReadGgufConfig(
      **file, static_cast<int>(tiny.tokens.size()), num_layers);
}

std::string Digest(const ModelConfig& config) {
  Sha256 digest;
  config.AddTo(&digest);
  return digest.FinishHex();
}

TEST(ModelConfigTest, ReadsTheFile) {
  const auto config = Read(TinyFile());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->num_layers_in_file, 3);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 128);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-5F);
  EXPECT_EQ(config->rope_theta, 10000.0F);
  EXPECT_EQ(config->max_position_embeddings, 256);
  EXPECT_EQ(config->vocab_size, 320);
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
  EXPECT_EQ(config->kv_values_per_token(), 3 * 2 * 32);
}

TEST(ModelConfigTest, TakesTheFirstLayers) {
  EXPECT_EQ(Read(TinyFile(), 2)->num_layers, 2);
  EXPECT_EQ(Read(TinyFile(), 2)->num_layers_in_file, 3);
  for (const int bad : {-1, 4}) {
    EXPECT_THAT(std::string(Read(TinyFile(), bad).status().message()),
                HasSubstr("--draft_layers: "));
  }
}

TEST(ModelConfigTest, FillsInWhatAFileMayLeaveOut) {
  TinyFile tiny;
  tiny.ints.erase("llama.attention.head_count_kv");
  tiny.ints.erase("llama.rope.dimension_count");
  tiny.floats.erase("llama.rope.freq_base");
  const auto config = Read(tiny);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_theta, 10000.0F);
}

TEST(ModelConfigTest, HeadsMayBeWiderThanTheirShare) {
  TinyFile tiny;
  tiny.ints["llama.attention.key_length"] = 32;
  tiny.ints["llama.attention.value_length"] = 32;
  tiny.ints["llama.rope.dimension_count"] = 32;
  EXPECT_EQ(Read(tiny)->head_dim, 32);
}

TEST(ModelConfigTest, RefusesNumbersOutOfRange) {
  const struct {
    const char* key;
    int64_t value;
  } cases[] = {
      {"llama.block_count", 0},
      {"llama.block_count", 1000},
      {"llama.embedding_length", 0},
      {"llama.embedding_length", 60},
      {"llama.embedding_length", 1 << 20},
      {"llama.feed_forward_length", 4},
      {"llama.feed_forward_length", 129},
      {"llama.context_length", 0},
      {"llama.context_length", 1 << 21},
      {"llama.attention.head_count", 0},
      {"llama.attention.head_count", 5},
      {"llama.attention.head_count_kv", 3},
      {"llama.attention.head_count_kv", 8},
      {"llama.attention.key_length", 15},
      {"llama.attention.value_length", 8},
      {"llama.rope.dimension_count", 8},
      {"llama.expert_count", 8},
      {"llama.attention.sliding_window", -1},
      {"llama.attention.sliding_window", 1 << 21},
  };
  for (const auto& bad : cases) {
    TinyFile tiny;
    tiny.ints[bad.key] = bad.value;
    const auto config = Read(tiny);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument)
        << bad.key << " = " << bad.value;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("x.gguf"));
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.key));
  }
}

TEST(ModelConfigTest, RefusesBadFloats) {
  for (const float bad : {0.0F, -1.0F, 0.5F}) {
    TinyFile tiny;
    tiny.floats["llama.attention.layer_norm_rms_epsilon"] = bad;
    EXPECT_FALSE(Read(tiny).ok()) << bad;
    TinyFile other;
    other.floats["llama.rope.freq_base"] = bad;
    EXPECT_FALSE(Read(other).ok()) << bad;
  }
}

TEST(ModelConfigTest, RefusesWhatTheForwardPassLacks) {
  TinyFile tiny;
  tiny.strings["llama.rope.scaling.type"] = "yarn";
  EXPECT_THAT(std::string(Read(tiny).status().message()),
              HasSubstr("llama.rope.scaling.type: \"yarn\""));
  tiny.strings["llama.rope.scaling.type"] = "none";
  EXPECT_TRUE(Read(tiny).ok());
  for (const char* key : {"llama.attn_logit_softcapping",
                          "llama.attention.clamp_kqv",
                          "llama.attention.max_alibi_bias",
                          "llama.logit_scale",
                          "llama.residual_scale",
                          "llama.embedding_scale",
                          "llama.rope.scaling.attn_factor"}) {
    TinyFile scaled;
    scaled.floats[key] = 3;
    EXPECT_THAT(std::string(Read(scaled).status().message()),
                HasSubstr(absl::StrCat(key, ": 3 is not supported")));
  }
  TinyFile part;
  part.ints["split.count"] = 2;
  EXPECT_THAT(std::string(Read(part).status().message()),
              HasSubstr("split.count: is a part of 2 files"));
  tiny.strings["general.architecture"] = "mamba";
  EXPECT_THAT(std::string(Read(tiny).status().message()),
              HasSubstr("general.architecture: \"mamba\""));
}

TEST(ModelConfigTest, AWindowMakesAllLayersLocalUnlessAPatternSaysWhich) {
  EXPECT_EQ(Read(TinyFile())->window(0), 0);
  TinyFile tiny;
  tiny.ints["llama.attention.sliding_window"] = 40;
  auto config = Read(tiny);
  ASSERT_TRUE(config.ok()) << config.status();
  for (const int layer : {0, 1, 2}) EXPECT_EQ(config->window(layer), 40);
  tiny.ints["llama.attention.sliding_window_pattern"] = 2;
  config = Read(tiny);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->window(0), 40);
  EXPECT_EQ(config->window(1), 0);
  EXPECT_EQ(config->window(2), 40);
  // The rotations are the same unless the family says otherwise.
  EXPECT_EQ(config->local_rope_theta, 0);
}

TEST(ModelConfigTest, LinearScalingDividesAllFrequencies) {
  EXPECT_TRUE(RopeFactors(*Read(TinyFile())).empty());
  TinyFile tiny;
  tiny.strings["llama.rope.scaling.type"] = "linear";
  EXPECT_TRUE(RopeFactors(*Read(tiny)).empty());
  tiny.floats["llama.rope.scaling.factor"] = 4;
  EXPECT_EQ(RopeFactors(*Read(tiny)), std::vector<float>(8, 4.0F));
  // As older files have it.
  tiny.strings.erase("llama.rope.scaling.type");
  EXPECT_EQ(RopeFactors(*Read(tiny)), std::vector<float>(8, 4.0F));
  tiny.floats.erase("llama.rope.scaling.factor");
  tiny.floats["llama.rope.scale_linear"] = 2;
  EXPECT_EQ(RopeFactors(*Read(tiny)), std::vector<float>(8, 2.0F));
  tiny.floats["llama.rope.scale_linear"] = 0.5;
  EXPECT_THAT(std::string(Read(tiny).status().message()),
              HasSubstr("llama.rope.scale_linear: 0.5 is less than 1"));
}

TEST(ModelConfigTest, NamesAMissingKey) {
  for (const char* key : {"llama.block_count",
                          "llama.context_length",
                          "llama.embedding_length",
                          "llama.feed_forward_length",
                          "llama.attention.head_count"}) {
    TinyFile tiny;
    tiny.ints.erase(key);
    EXPECT_THAT(std::string(Read(tiny).status().message()), HasSubstr(key));
  }
}

TEST(ModelConfigTest, EveryNumberReachesTheDigest) {
  const ModelConfig config = *Read(TinyFile());
  const std::string digest = Digest(config);
  EXPECT_EQ(Digest(config), digest);
  const auto expect_changed = [&](auto change) {
    ModelConfig changed = config;
    change(changed);
    EXPECT_NE(Digest(changed), digest);
  };
  expect_changed([](ModelConfig& c) { c.architecture = "qwen2"; });
  expect_changed([](ModelConfig& c) { c.num_layers = 2; });
  expect_changed([](ModelConfig& c) { c.num_kv_heads = 1; });
  expect_changed([](ModelConfig& c) { c.rms_norm_eps = 1e-6F; });
  expect_changed([](ModelConfig& c) { c.rope_theta = 1e6F; });
  expect_changed([](ModelConfig& c) { c.vocab_size = 321; });
  expect_changed([](ModelConfig& c) { c.eos_ids.push_back(5); });
}

}  // namespace
}  // namespace specwire
