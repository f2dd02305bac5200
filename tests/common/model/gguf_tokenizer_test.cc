// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Type = GgufValueType;

constexpr char kModelPath[] =
    SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";

// Parses what `writer` builds and runs `read` on it.
template <typename Read>
auto WithFile(const GgufWriter& writer, Read read) {
  const std::string bytes = writer.Build();
  const auto file = GgufFile::Parse(
      "x.gguf",
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                          bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  return read(**file);
}

absl::StatusOr<TokenizerModel> ReadModel(const GgufWriter& writer) {
  return WithFile(writer, ReadTokenizerModel);
}

absl::StatusOr<std::vector<int32_t>> ReadEos(const GgufWriter& writer) {
  return WithFile(writer,
                  [](const GgufFile& file) { return ReadEosIds(file, 4); });
}

void ExpectError(const GgufWriter& writer, const std::string& message) {
  const auto model = ReadModel(writer);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(std::string(model.status().message()), "x.gguf: " + message);
}

void AddScores(const std::vector<float>& scores, GgufWriter* writer) {
  std::vector<int64_t> bits;
  for (const float score : scores) {
    bits.push_back(std::bit_cast<int32_t>(score));
  }
  writer->AddIntArray("tokenizer.ggml.scores", Type::kFloat32, bits);
}

// What every file has: kind, tokens (4), merges.
GgufWriter Basics(const std::string& kind = "gpt2") {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", kind);
  writer.AddStringArray("tokenizer.ggml.tokens", {"<s>", "a", "b", "ab"});
  writer.AddStringArray("tokenizer.ggml.merges", {"a b"});
  if (kind == "llama") AddScores({0, -1, -2, -3.5f}, &writer);
  return writer;
}

TEST(GgufTokenizerTest, ReadsEveryField) {
  GgufWriter writer = Basics();
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddIntArray("tokenizer.ggml.token_type", Type::kInt32, {3, 1, 1, 4});
  writer.AddInt("tokenizer.ggml.bos_token_id", Type::kUint32, 0);
  writer.AddInt("tokenizer.ggml.eos_token_id", Type::kUint32, 3);
  writer.AddBool("tokenizer.ggml.add_bos_token", true);
  writer.AddString("tokenizer.chat_template", "{{ x }}");
  const auto model = ReadModel(writer);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->kind, "gpt2");
  EXPECT_EQ(model->pre, "smollm");
  EXPECT_THAT(model->tokens, ElementsAre("<s>", "a", "b", "ab"));
  EXPECT_THAT(model->types, ElementsAre(3, 1, 1, 4));
  EXPECT_THAT(model->merges, ElementsAre("a b"));
  EXPECT_EQ(model->bos_id, 0);
  EXPECT_EQ(model->eos_id, 3);
  EXPECT_TRUE(model->add_bos);
  EXPECT_EQ(model->chat_template, "{{ x }}");
}

TEST(GgufTokenizerTest, FillsInWhatAFileMayLeaveOut) {
  const auto model = ReadModel(Basics());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->pre, "");
  EXPECT_THAT(model->types, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(model->bos_id, std::nullopt);
  EXPECT_EQ(model->eos_id, std::nullopt);
  EXPECT_FALSE(model->add_bos);
  EXPECT_EQ(model->chat_template, "");
}

TEST(GgufTokenizerTest, KnowsWhichKindsBeginWithBos) {
  const auto add_bos = [](const std::string& kind, const std::string& pre) {
    GgufWriter writer = Basics(kind);
    writer.AddString("tokenizer.ggml.pre", pre);
    writer.AddInt("tokenizer.ggml.bos_token_id", Type::kUint32, 0);
    const auto model = ReadModel(writer);
    EXPECT_TRUE(model.ok()) << model.status();
    return model->add_bos;
  };
  EXPECT_TRUE(add_bos("gpt2", "llama-bpe"));
  EXPECT_TRUE(add_bos("llama", "default"));
  EXPECT_FALSE(add_bos("gpt2", "smollm"));
  EXPECT_FALSE(add_bos("gpt2", "qwen2"));
}

TEST(GgufTokenizerTest, ReadsWhatSentencePieceHas) {
  GgufWriter writer = Basics("llama");
  writer.AddInt("tokenizer.ggml.unknown_token_id", Type::kUint32, 2);
  auto model = ReadModel(writer);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->scores, ElementsAre(0, -1, -2, -3.5f));
  EXPECT_THAT(model->merges, IsEmpty());
  EXPECT_EQ(model->unk_id, 2);
  EXPECT_EQ(model->leading_space, LeadingSpace::kStretch);
  writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  writer.AddBool("tokenizer.ggml.remove_extra_whitespaces", false);
  model = ReadModel(writer);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->leading_space, LeadingSpace::kNone);
}

TEST(GgufTokenizerTest, RefusesWhatSentencePieceCannotMean) {
  GgufWriter no_scores;
  no_scores.AddString("tokenizer.ggml.model", "llama");
  no_scores.AddStringArray("tokenizer.ggml.tokens", {"a", "b"});
  ExpectError(no_scores, "tokenizer.ggml.scores: is absent");
  GgufWriter too_few = no_scores;
  AddScores({1}, &too_few);
  ExpectError(too_few, "tokenizer.ggml.scores: has 1 elements for 2 tokens");
  GgufWriter integers = no_scores;
  integers.AddIntArray("tokenizer.ggml.scores", Type::kInt32, {1, 2});
  ExpectError(integers,
              "tokenizer.ggml.scores: is an array of I32, not an array of "
              "floats");
  GgufWriter removes = Basics("llama");
  removes.AddBool("tokenizer.ggml.remove_extra_whitespaces", true);
  ExpectError(removes,
              "tokenizer.ggml.remove_extra_whitespaces: the removal is not "
              "supported");
  GgufWriter table = Basics("llama");
  table.AddString("tokenizer.ggml.precompiled_charsmap", "x");
  ExpectError(table,
              "tokenizer.ggml.precompiled_charsmap: a normaliser by table is "
              "not supported");
  GgufWriter no_unknown = Basics("llama");
  no_unknown.AddInt("tokenizer.ggml.unknown_token_id", Type::kUint32, 4);
  ExpectError(no_unknown,
              "tokenizer.ggml.unknown_token_id: 4 is outside [0, 3]");
}

TEST(GgufTokenizerTest, RequiresKindTokensAndMerges) {
  GgufWriter no_kind;
  no_kind.AddStringArray("tokenizer.ggml.tokens", {"a"});
  ExpectError(no_kind, "tokenizer.ggml.model: is absent");
  GgufWriter no_tokens;
  no_tokens.AddString("tokenizer.ggml.model", "gpt2");
  ExpectError(no_tokens, "tokenizer.ggml.tokens: is absent");
  GgufWriter empty = no_tokens;
  empty.AddStringArray("tokenizer.ggml.tokens", {});
  ExpectError(empty, "tokenizer.ggml.tokens: has no elements");
  GgufWriter no_merges = no_tokens;
  no_merges.AddStringArray("tokenizer.ggml.tokens", {"a"});
  ExpectError(no_merges, "tokenizer.ggml.merges: is absent");
}

TEST(GgufTokenizerTest, RefusesTypesThatDoNotMatchTheTokens) {
  GgufWriter too_few = Basics();
  too_few.AddIntArray("tokenizer.ggml.token_type", Type::kInt32, {1, 1, 1});
  ExpectError(too_few,
              "tokenizer.ggml.token_type: has 3 elements for 4 tokens");
  for (const int64_t bad : {0, 7, -1}) {
    GgufWriter unknown = Basics();
    unknown.AddIntArray(
        "tokenizer.ggml.token_type", Type::kInt32, {1, 1, bad, 1});
    ExpectError(unknown,
                "tokenizer.ggml.token_type: element 2: unknown token type " +
                    std::to_string(bad));
  }
  GgufWriter floats = Basics();
  floats.AddIntArray("tokenizer.ggml.token_type", Type::kFloat32, {1, 1, 1, 1});
  ExpectError(floats,
              "tokenizer.ggml.token_type: is an array of F32, not an array of "
              "integers");
}

TEST(GgufTokenizerTest, RefusesIdsOutsideTheVocabulary) {
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    for (const auto& [type, id, text] :
         {std::tuple{Type::kUint32, int64_t{4}, "4"},
          std::tuple{Type::kInt32, int64_t{-1}, "-1"},
          std::tuple{Type::kUint64, int64_t{-1}, "18446744073709551615"}}) {
      GgufWriter writer = Basics();
      writer.AddInt(key, type, id);
      ExpectError(writer,
                  std::string(key) + ": " + text + " is outside [0, 3]");
    }
  }
}

TEST(GgufTokenizerTest, RefusesToAddABosThatIsAbsent) {
  GgufWriter writer = Basics();
  writer.AddBool("tokenizer.ggml.add_bos_token", true);
  ExpectError(writer,
              "tokenizer.ggml.add_bos_token: is true, but "
              "tokenizer.ggml.bos_token_id is absent");
}

TEST(GgufTokenizerTest, RefusesToEndAPromptWithEos) {
  GgufWriter writer = Basics();
  writer.AddBool("tokenizer.ggml.add_eos_token", true);
  ExpectError(writer, "tokenizer.ggml.add_eos_token: true is not supported");
}

TEST(GgufTokenizerTest, GathersTheIdsThatEndASequence) {
  GgufWriter writer;
  EXPECT_THAT(*ReadEos(writer), IsEmpty());
  writer.AddInt("tokenizer.ggml.eos_token_id", Type::kUint32, 3);
  writer.AddInt("tokenizer.ggml.eot_token_id", Type::kUint32, 1);
  writer.AddInt("tokenizer.ggml.eom_token_id", Type::kUint32, 3);
  EXPECT_THAT(*ReadEos(writer), ElementsAre(1, 3));
  GgufWriter outside;
  outside.AddInt("tokenizer.ggml.eot_token_id", Type::kUint32, 4);
  EXPECT_THAT(std::string(ReadEos(outside).status().message()),
              HasSubstr("tokenizer.ggml.eot_token_id: 4 is outside [0, 3]"));
}

TEST(GgufTokenizerTest, ReadsTheTinyModel) {
  const auto file = GgufFile::Open(SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = ReadTokenizerModel(**file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->pre, "smollm");
  EXPECT_EQ(model->tokens.size(), 320u);
  EXPECT_EQ(model->merges.size(), 61u);
  EXPECT_EQ(model->tokens[0], "<|endoftext|>");
  EXPECT_EQ(model->types[0], static_cast<int32_t>(TokenType::kControl));
  EXPECT_EQ(model->tokens.back(), "\xc4\xa0it");
  EXPECT_EQ(model->eos_id, 2);
  EXPECT_THAT(model->chat_template, HasSubstr("add_generation_prompt"));
}

TEST(GgufTokenizerTest, ReadsTheDefaultModel) {
  if (!std::filesystem::exists(kModelPath)) GTEST_SKIP() << "no " << kModelPath;
  const auto file = GgufFile::Open(kModelPath);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = ReadTokenizerModel(**file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->kind, "gpt2");
  EXPECT_EQ(model->pre, "smollm");
  EXPECT_EQ(model->tokens.size(), 49152u);
  EXPECT_EQ(model->merges.size(), 48900u);
  EXPECT_EQ(model->merges[0], "\xc4\xa0 t");
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_EQ(model->eos_id, 2);
  EXPECT_FALSE(model->add_bos);
  EXPECT_THAT(model->chat_template, HasSubstr("<|im_start|>assistant"));
  EXPECT_THAT(*ReadEosIds(**file, 49152), ElementsAre(2));
}

}  // namespace
}  // namespace specwire
