// SPDX-License-Identifier: Apache-2.0
// Gemma 3's tokenizer from a GGUF file, against a slow and independent reading
// of SentencePiece's rules (tests/common/model/make_gemma_reference.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/model/gguf.h"
#include "common/model/gguf_tokenizer.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

json ReadJson(const std::string& name) {
  std::ifstream in(SPECWIRE_TEST_DATA "/" + name);
  return json::parse(in);
}

// Skipped, with a line that says so, where the model file is absent.
class GemmaReferenceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = SPECWIRE_MODEL_DIR "/gemma-3-270m-q4_k_m.gguf";
    if (!std::filesystem::exists(path)) return;
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    auto model = ReadTokenizerModel(**file);
    ASSERT_TRUE(model.ok()) << model.status();
    auto tokenizer = Tokenizer::Create(*std::move(model));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = tokenizer->release();
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  void SetUp() override {
    if (tokenizer_ == nullptr) {
      GTEST_SKIP() << "NOT TESTED: models/gemma-3-270m-q4_k_m.gguf is absent";
    }
  }

  static Ids Encode(const std::string& text, SpecialTokens special) {
    const auto ids = tokenizer_->Encode(text, special);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }

  static const Tokenizer* tokenizer_;
};

const Tokenizer* GemmaReferenceTest::tokenizer_ = nullptr;

TEST_F(GemmaReferenceTest, EncodesEveryText) {
  const auto texts =
      ReadJson("hf_tokenizers/strings.json").get<std::vector<std::string>>();
  const json golden = ReadJson("reference/gemma3_tokenizer.json");
  ASSERT_EQ(golden.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(Encode(texts[i], SpecialTokens::kRecognise), golden[i].get<Ids>())
        << i << ": " << texts[i];
  }
}

TEST_F(GemmaReferenceTest, ReadsTheModelsSpecialTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 262144);
  EXPECT_EQ(tokenizer_->bos_id(), 2);
  EXPECT_EQ(tokenizer_->eos_ids(), Ids{1});
  EXPECT_TRUE(tokenizer_->add_bos());
  EXPECT_EQ(tokenizer_->model().unk_id, 3);
  EXPECT_EQ(tokenizer_->TokenBytes(107), "\n");
  EXPECT_TRUE(tokenizer_->IsSpecial(106));
  EXPECT_FALSE(tokenizer_->IsSpecial(107));
}

TEST_F(GemmaReferenceTest, KeepsEveryByte) {
  std::mt19937 random(17);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t n = random() % 30; n > 0; --n) {
      text += static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
    }
    std::string bytes;
    for (const int32_t id : Encode(text, SpecialTokens::kAsText)) {
      bytes += std::string(tokenizer_->TokenBytes(id));
    }
    ASSERT_EQ(bytes, text);
  }
}

TEST_F(GemmaReferenceTest, IsLinearInItsText) {
  for (const char* unit :
       {" ", "a", "7", "\n", "word ", "\u4E2D", "<end_of_turn>", "=", "\t "}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    const Ids ids = Encode(text, SpecialTokens::kRecognise);
    EXPECT_EQ(tokenizer_->Decode(ids, /*skip_special=*/false), text);
  }
}

}  // namespace
}  // namespace specwire
