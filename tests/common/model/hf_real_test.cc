// SPDX-License-Identifier: Apache-2.0
// Tokenizers of real size against the original libraries. Their files are made
// by make_real_tokenizers.py, in the folder that SPECWIRE_REAL_TOKENIZERS
// names; without it the test is skipped.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/gguf.h"
#include "common/model/gguf_tokenizer.h"
#include "common/model/hf_tokenizer.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

absl::StatusOr<TokenizerModel> ReadModel(const std::string& folder) {
  const std::string path = folder + "/tokenizer.gguf";
  if (!std::filesystem::exists(path)) return ReadHfTokenizer(folder);
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  return ReadTokenizerModel(**file);
}

void ExpectIds(const Tokenizer& tokenizer,
               SpecialTokens special,
               const std::vector<std::string>& texts,
               const std::string& golden) {
  std::ifstream in(golden);
  if (!in) return;
  const auto rows = json::parse(in).get<std::vector<Ids>>();
  ASSERT_EQ(rows.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer.Encode(texts[i], special);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, rows[i]) << golden << " " << i << ": " << texts[i];
  }
}

TEST(HfRealTest, EncodesEveryText) {
  const char* const root = std::getenv("SPECWIRE_REAL_TOKENIZERS");
  if (root == nullptr) {
    GTEST_SKIP() << "NOT TESTED: SPECWIRE_REAL_TOKENIZERS is not set; "
                    "tests/common/model/make_real_tokenizers.py makes them";
  }
  std::ifstream in(std::string(root) + "/texts.json");
  const auto texts = json::parse(in).get<std::vector<std::string>>();
  int num_tokenizers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().string();
    auto model = ReadModel(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto tokenizer = Tokenizer::Create(*std::move(model));
    ASSERT_TRUE(tokenizer.ok()) << folder << ": " << tokenizer.status();
    ExpectIds(**tokenizer,
              SpecialTokens::kRecognise,
              texts,
              folder + "/recognised.json");
    ExpectIds(
        **tokenizer, SpecialTokens::kAsText, texts, folder + "/as_text.json");
    ++num_tokenizers;
  }
  EXPECT_GE(num_tokenizers, 6);
}

}  // namespace
}  // namespace specwire
