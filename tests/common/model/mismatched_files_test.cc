// SPDX-License-Identifier: Apache-2.0
// Folders whose files are each right, but not for one another: an error that
// names what does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"

namespace specwire {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class MismatchedFilesTest : public ::testing::TestWithParam<const char*> {
 protected:
  MismatchedFilesTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(
        absl::StrCat(SPECWIRE_TEST_DATA "/families/", GetParam()), folder_);
  }
  ~MismatchedFilesTest() override { std::filesystem::remove_all(folder_); }

  json Get(const char* name) const {
    std::ifstream in(folder_ + "/" + name);
    return json::parse(in, nullptr, false);
  }
  // The error once a file is changed, after which it is what it was.
  std::string ErrorWith(const char* name,
                        const std::function<void(json*)>& change) const {
    const json good = Get(name);
    json changed = good;
    change(&changed);
    EXPECT_NE(changed, good);
    std::ofstream(folder_ + "/" + name) << changed;
    const auto engine = LoadEngine(folder_, {});
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(engine.status().message()),
                ::testing::StartsWith(folder_));
    std::ofstream(folder_ + "/" + name) << good;
    return std::string(engine.status().message());
  }
  std::string ErrorOf(const char* key, int factor) const {
    return ErrorWith("config.json", [&](json* config) {
      (*config)[key] = (*config)[key].get<int>() * factor;
    });
  }

  const std::string folder_ = absl::StrCat(
      ::testing::TempDir(), "specwire_mismatched_", GetParam(), "_", getpid());
};

TEST_P(MismatchedFilesTest, OpensAsItIs) {
  const auto engine = LoadEngine(folder_, {});
  EXPECT_TRUE(engine.ok()) << engine.status();
}

TEST_P(MismatchedFilesTest, ShapesAreThoseOfTheConfiguration) {
  EXPECT_THAT(ErrorOf("hidden_size", 2), HasSubstr("model.embed_tokens"));
  EXPECT_THAT(ErrorOf("intermediate_size", 2), HasSubstr(".mlp."));
  EXPECT_THAT(ErrorOf("num_attention_heads", 2), HasSubstr(".self_attn."));
  EXPECT_THAT(ErrorWith("config.json",
                        [](json* config) { (*config)["head_dim"] = 128; }),
              HasSubstr(".self_attn."));
}

TEST_P(MismatchedFilesTest, LayersAreThere) {
  const int layers = Get("config.json")["num_hidden_layers"].get<int>();
  EXPECT_THAT(ErrorWith("config.json",
                        [&](json* config) {
                          (*config)["num_hidden_layers"] = layers + 1;
                          config->erase("layer_types");
                        }),
              HasSubstr(absl::StrCat("model.layers.", layers, ".")));
}

TEST_P(MismatchedFilesTest, TokensHaveRowsOfTheEmbedding) {
  EXPECT_THAT(ErrorWith("tokenizer.json",
                        [](json* tokenizer) {
                          json token = (*tokenizer)["added_tokens"][0];
                          for (int id = 900; id < 1000; ++id) {
                            token["content"] = absl::StrCat("<new", id, ">");
                            token["id"] = id;
                            (*tokenizer)["added_tokens"].push_back(token);
                          }
                        }),
              HasSubstr("model.embed_tokens"));
}

TEST_P(MismatchedFilesTest, TensorsAreThere) {
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() == ".safetensors") {
      std::filesystem::remove(file.path());
    }
  }
  const auto engine = LoadEngine(folder_, {});
  EXPECT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("safetensors"));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    MismatchedFilesTest,
    ::testing::Values("smollm2", "llama3", "qwen2", "qwen3"),
    [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace specwire
