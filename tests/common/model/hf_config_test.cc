// SPDX-License-Identifier: Apache-2.0
#include "common/model/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HfConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "specwire_hf_config";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_ = {{"model_type", "llama"},
               {"hidden_size", 64},
               {"intermediate_size", 128},
               {"num_hidden_layers", 4},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 2},
               {"max_position_embeddings", 2048},
               {"rms_norm_eps", 1e-5},
               {"eos_token_id", 2}};
  }

  void Write(const char* name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  absl::StatusOr<ModelConfig> Read(const nlohmann::json& config,
                                   int num_layers = 0) const {
    Write("config.json", config.dump());
    return ReadHfConfig(folder_, 300, num_layers);
  }
  absl::StatusOr<ModelConfig> Read(int num_layers = 0) const {
    return Read(config_, num_layers);
  }
  std::string Error(const nlohmann::json& config) const {
    const auto read = Read(config);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(read.status().message());
  }
  std::string Error() const { return Error(config_); }
  // With one thing in a good file changed.
  std::string ErrorWith(const char* key, const nlohmann::json& value) const {
    nlohmann::json config = config_;
    config[key] = value;
    return Error(config);
  }

  std::string folder_;
  nlohmann::json config_;
};

TEST_F(HfConfigTest, ReadsLlama) {
  const auto config = Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->num_layers, 4);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->vocab_size, 300);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config->sliding_window, 0);
  EXPECT_FALSE(config->qkv_bias || config->qk_norm || config->post_norms);
  EXPECT_FALSE(config->tied_head);
  EXPECT_FLOAT_EQ(config->attention_scale, 1 / std::sqrt(8.0F));
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
  EXPECT_EQ(Read(3)->num_layers, 3);
  EXPECT_THAT(std::string(Read(5).status().message()),
              HasSubstr("--draft_layers: 5"));
}

// The form of releases before 5, as Llama 3.1's published folders have it, and
// that of release 5.
TEST_F(HfConfigTest, ReadsLlama3ScalingInBothForms) {
  const nlohmann::json scaling = {{"rope_type", "llama3"},
                                  {"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 512}};
  config_["rope_theta"] = 500000.0;
  config_["rope_scaling"] = scaling;
  const auto before = Read();
  ASSERT_TRUE(before.ok()) << before.status();
  config_.erase("rope_theta");
  config_.erase("rope_scaling");
  config_["rope_parameters"] = scaling;
  config_["rope_parameters"]["rope_theta"] = 500000.0;
  const auto after = Read();
  ASSERT_TRUE(after.ok()) << after.status();
  for (const ModelConfig& config : {*before, *after}) {
    EXPECT_EQ(config.rope_theta, 500000);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLlama3);
    const std::vector<float> factors = RopeFactors(config);
    ASSERT_EQ(factors.size(), 4u);
    // Wavelengths 6.3, 167, 4443 and 118140: short, between 512 / 4 and 512 /
    // 1, long, long.
    EXPECT_EQ(factors[0], 1);
    const double smooth = (512 / 167.0778 - 1) / 3;
    EXPECT_NEAR(factors[1], 1 / ((1 - smooth) / 8 + smooth), 1e-4);
    EXPECT_EQ(factors[2], 8);
    EXPECT_EQ(factors[3], 8);
  }
  config_["rope_parameters"]["high_freq_factor"] = 1.0;
  EXPECT_THAT(Error(), HasSubstr("rope_parameters.high_freq_factor"));
}

TEST_F(HfConfigTest, MistralsWindowIsThatOfAllLayers) {
  config_["model_type"] = "mistral";
  config_["sliding_window"] = 4096;
  const auto config = Read();
  ASSERT_TRUE(config.ok()) << config.status();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(config->window(i), 4096);
  EXPECT_EQ(config->local_rope_theta, 0);
  // A key of Qwen's alone.
  config_["use_sliding_window"] = false;
  EXPECT_EQ(Read()->window(0), 4096);
  config_["sliding_window"] = nullptr;
  EXPECT_EQ(Read()->window(0), 0);
}

TEST_F(HfConfigTest, QwensWindowIsOffUnlessAskedFor) {
  config_["model_type"] = "qwen2";
  config_["sliding_window"] = 128;
  config_["max_window_layers"] = 3;
  EXPECT_EQ(Read()->window(3), 0);
  EXPECT_TRUE(Read()->qkv_bias);
  config_["use_sliding_window"] = true;
  EXPECT_EQ(Read()->window(2), 0);
  EXPECT_EQ(Read()->window(3), 128);
  config_["layer_types"] = {"sliding_attention",
                            "full_attention",
                            "full_attention",
                            "full_attention"};
  EXPECT_EQ(Read()->window(0), 128);
  EXPECT_EQ(Read()->window(3), 0);
  config_["layer_types"].erase(0);
  EXPECT_THAT(Error(), HasSubstr("layer_types: 3 elements for 4 layers"));
}

TEST_F(HfConfigTest, Qwen3NormsItsHeads) {
  config_["model_type"] = "qwen3";
  config_["head_dim"] = 32;
  const auto config = Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->q_size(), 256);
}

// As Gemma 3's published folders have it.
TEST_F(HfConfigTest, ReadsGemma3) {
  config_["model_type"] = "gemma3_text";
  config_["num_hidden_layers"] = 7;
  config_["hidden_activation"] = "gelu_pytorch_tanh";
  config_["sliding_window"] = 512;
  config_["query_pre_attn_scalar"] = 256;
  config_["rope_theta"] = 1e6;
  config_["rope_local_base_freq"] = 10000.0;
  config_["attn_logit_softcapping"] = nullptr;
  const auto config = Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "gemma3");
  EXPECT_TRUE(config->qk_norm && config->post_norms && config->tied_head);
  EXPECT_EQ(config->activation, Activation::kGeluTanh);
  EXPECT_EQ(config->embedding_scale, 8);
  EXPECT_EQ(config->attention_scale, 1.0F / 16);
  EXPECT_EQ(config->rope_theta, 1e6F);
  EXPECT_EQ(config->local_rope_theta, 10000);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(config->window(i), i == 5 ? 0 : 512) << i;
  }
  EXPECT_THAT(ErrorWith("attn_logit_softcapping", 50.0),
              HasSubstr("attn_logit_softcapping: is not supported"));
}

TEST_F(HfConfigTest, EndTokensAreThoseOfBothFiles) {
  config_["eos_token_id"] = nlohmann::json::array({7, 5});
  Write("generation_config.json", R"({"eos_token_id": [5, 9, 299, 300]})");
  // 300 is beyond the tokenizer's vocabulary.
  EXPECT_THAT(Read()->eos_ids, ElementsAre(5, 7, 9, 299));
  EXPECT_THAT(ErrorWith("eos_token_id", 300),
              HasSubstr("eos_token_id: names no token of the 300"));
  config_.erase("eos_token_id");
  Write("generation_config.json", "{}");
  EXPECT_THAT(Read()->eos_ids, IsEmpty());
  Write("generation_config.json", "[1]");
  EXPECT_THAT(Error(), HasSubstr("generation_config.json"));
}

TEST_F(HfConfigTest, RefusesWhatTheForwardPassLacks) {
  EXPECT_THAT(ErrorWith("model_type", "mamba"),
              HasSubstr("model_type: \"mamba\" is not supported; supported: "
                        "llama, mistral, qwen2, qwen3, gemma3_text"));
  EXPECT_THAT(ErrorWith("attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_THAT(ErrorWith("mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(ErrorWith("hidden_act", "gelu"),
              HasSubstr("hidden_act: \"gelu\" is not supported"));
  EXPECT_THAT(ErrorWith("quantization_config", {{"bits", 4}}),
              HasSubstr("quantization_config"));
  EXPECT_THAT(ErrorWith("partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(ErrorWith("rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}),
              HasSubstr("rope_scaling.type: \"yarn\" is not supported"));
}

TEST_F(HfConfigTest, RefusesNumbersOutOfRange) {
  const std::pair<const char*, nlohmann::json> cases[] = {
      {"hidden_size", 0},
      {"hidden_size", 1 << 20},
      {"hidden_size", 64.5},
      {"hidden_size", "64"},
      {"hidden_size", uint64_t{1} << 63},
      {"intermediate_size", 100},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", 513},
      {"num_attention_heads", 7},
      {"num_key_value_heads", 3},
      {"num_key_value_heads", 16},
      {"head_dim", 3},
      {"head_dim", 514},
      {"max_position_embeddings", -1},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", 1e300},
      {"rope_theta", 0.5},
      {"eos_token_id", "2"},
      {"tie_word_embeddings", 1}};
  for (const auto& [key, value] : cases) {
    EXPECT_THAT(ErrorWith(key, value), HasSubstr(key)) << value;
  }
  for (const char* key : {"model_type",
                          "hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "max_position_embeddings"}) {
    nlohmann::json config = config_;
    config.erase(key);
    EXPECT_THAT(Error(config), HasSubstr(key));
  }
}

TEST_F(HfConfigTest, RefusesBrokenFiles) {
  const std::string good = config_.dump();
  for (size_t size = 1; size < good.size(); ++size) {
    Write("config.json", good.substr(0, size));
    EXPECT_FALSE(ReadHfConfig(folder_, 300, 0).ok()) << size;
  }
  for (const std::string& bad :
       {std::string("[1]"),
        std::string(100000, '['),
        "{\"hidden_size\":" + std::string(100000, '[') + "}",
        std::string("{\"model_type\": \"\xff\"}"),
        good + std::string(1, '\0') + "[[[",
        std::string(2 << 20, ' ')}) {
    Write("config.json", bad);
    EXPECT_FALSE(ReadHfConfig(folder_, 300, 0).ok());
  }
  const auto problem = [&](const std::string& text) {
    Write("config.json", text);
    return std::string(ReadHfConfig(folder_, 300, 0).status().message());
  };
  EXPECT_THAT(problem(R"({"x":{"a":1,"a":2}})"),
              HasSubstr("/config.json: x/a: is there twice"));
  EXPECT_THAT(problem("{\"x\":" + std::string(40, '[')),
              HasSubstr("/config.json: x: more than 32 levels deep"));
  EXPECT_THAT(problem("{\"x\":1"),
              HasSubstr("/config.json: malformed JSON at byte 7"));
  EXPECT_THAT(problem("[1]"), HasSubstr("/config.json: is not a JSON object"));
  std::filesystem::remove(folder_ + "/config.json");
  EXPECT_EQ(ReadHfConfig(folder_, 300, 0).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace specwire
