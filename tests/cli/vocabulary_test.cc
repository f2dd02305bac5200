// SPDX-License-Identifier: Apache-2.0
#include "cli/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/common/model/tiny_file.h"

namespace specwire::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;
constexpr int64_t kUnused = 5;

// Why a model that `change` has made of the tiny one cannot draft for it.
template <class Change>
std::string Refusal(const std::string& name, Change change) {
  TinyFile tiny;
  change(&tiny);
  const absl::Status fits =
      CheckPairOfFiles(tiny.Write(name), SPECWIRE_TINY_MODEL);
  if (fits.ok()) return "fits";
  EXPECT_TRUE(absl::IsFailedPrecondition(fits)) << fits;
  return std::string(fits.message());
}

TEST(VocabularyTest, TheSameTokensFit) {
  EXPECT_TRUE(CheckPairOfFiles(SPECWIRE_TINY_MODEL, SPECWIRE_TINY_MODEL).ok());
  EXPECT_TRUE(
      CheckPairOfFiles(SPECWIRE_TINY_DRAFT_MODEL, SPECWIRE_TINY_MODEL).ok());
  const std::string families = SPECWIRE_TEST_DATA "/families/";
  EXPECT_TRUE(CheckPairOfFiles(families + "llama3", families + "qwen2/").ok());
  // Ids that are not in use do not count.
  EXPECT_EQ(Refusal("padded",
                    [](TinyFile* tiny) {
                      tiny->tokens.push_back("[PAD]");
                      tiny->token_types.push_back(kUnused);
                    }),
            "fits");
  // Nor do the template and what ends a text.
  EXPECT_EQ(Refusal("other_end",
                    [](TinyFile* tiny) {
                      tiny->strings["tokenizer.chat_template"] = "{{ 1 }}";
                      tiny->ints["tokenizer.ggml.eos_token_id"] = 0;
                    }),
            "fits");
}

TEST(VocabularyTest, NamesTheFirstTokenThatDiffers) {
  EXPECT_THAT(
      Refusal("another",
              [](TinyFile* tiny) {
                tiny->tokens[1] = "<|other|>";
                tiny->tokens[2] = "<|later|>";
              }),
      AllOf(HasSubstr("another.gguf cannot draft for "),
            HasSubstr("their vocabularies differ, of 320 and 320 tokens; the "
                      "first difference is token 1, which is \"<|other|>\" "
                      "(special) in the draft model's and \"<|im_start|>\" "
                      "(special) in "
                      "the target's")));
  EXPECT_THAT(
      Refusal("more",
              [](TinyFile* tiny) {
                tiny->tokens.push_back("<|more|>");
                tiny->token_types.push_back(kControl);
              }),
      HasSubstr("of 321 and 320 tokens; the first difference is token 320, "
                "which is \"<|more|>\" (special) in the draft model's and no "
                "token in "
                "the target's"));
  EXPECT_THAT(
      Refusal("unused", [](TinyFile* tiny) { tiny->token_types[0] = kUnused; }),
      HasSubstr("token 0, which is no token in the draft model's and "
                "\"<|endoftext|>\" "
                "(special) in the target's"));
  EXPECT_THAT(
      Refusal("plain",
              [](TinyFile* tiny) { tiny->token_types[0] = kUserDefined; }),
      HasSubstr("token 0, which is \"<|endoftext|>\" in the draft model's and "
                "\"<|endoftext|>\" (special) in the target's"));
}

TEST(VocabularyTest, AFolderIsComparedWithAFile) {
  const absl::Status fits = CheckPairOfFiles(
      SPECWIRE_TEST_DATA "/families/llama3", SPECWIRE_TINY_MODEL);
  EXPECT_TRUE(absl::IsFailedPrecondition(fits)) << fits;
  EXPECT_THAT(std::string(fits.message()),
              AllOf(HasSubstr("families/llama3 cannot draft for "),
                    HasSubstr("token 0, which is \"<unk>\" (special) in the "
                              "draft model's and \"<|endoftext|>\"")));
}

TEST(VocabularyTest, ShowsTokensOnOneShortLineAndObeysNone) {
  const std::string refusal = Refusal("hostile", [](TinyFile* tiny) {
    tiny->tokens[1] = "\x1b[2J\n" + std::string(200, 'x');
  });
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("\"\\x1b[2J\\nxxx"),
                    HasSubstr("xxx\"... (special)"),
                    Not(HasSubstr("\x1b")),
                    Not(HasSubstr("\n"))));
  EXPECT_LT(refusal.size(), 600u);
}

TEST(VocabularyTest, ADraftModelFitsOnlyWhatItWasMadeFor) {
  std::ifstream input(SPECWIRE_TINY_DRAFT_MODEL, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(input), {});
  const std::string key = "specwire.draft.vocabulary_fingerprint";
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  // Behind the key come type and length.
  char& digit = bytes.at(at + key.size() + 12);
  digit = digit == '0' ? '1' : '0';
  const std::string other = testing::TempDir() + "vocabulary_other.gguf";
  std::ofstream(other, std::ios::binary) << bytes;
  const absl::Status fits = CheckPairOfFiles(other, SPECWIRE_TINY_MODEL);
  EXPECT_TRUE(absl::IsFailedPrecondition(fits)) << fits;
  EXPECT_THAT(std::string(fits.message()),
              AllOf(HasSubstr("vocabulary_other.gguf cannot draft for "),
                    HasSubstr("it was made for \"tiny\" and a vocabulary of "
                              "320 tokens with the fingerprint "),
                    HasSubstr("and the target's has 320 tokens with the "
                              "fingerprint 59549810b463")));
}

TEST(VocabularyTest, ADraftModelIsNoTarget) {
  for (const char* draft : {SPECWIRE_TINY_MODEL, SPECWIRE_TINY_DRAFT_MODEL}) {
    const absl::Status fits =
        CheckPairOfFiles(draft, SPECWIRE_TINY_DRAFT_MODEL);
    EXPECT_TRUE(absl::IsFailedPrecondition(fits)) << fits;
    EXPECT_THAT(std::string(fits.message()),
                HasSubstr("is a draft model itself"));
  }
}

TEST(VocabularyTest, OtherErrorsAreThoseOfTheFiles) {
  EXPECT_TRUE(absl::IsNotFound(
      CheckPairOfFiles("/nonexistent.gguf", SPECWIRE_TINY_MODEL)));
  EXPECT_TRUE(absl::IsNotFound(
      CheckPairOfFiles(SPECWIRE_TINY_MODEL, "/nonexistent.gguf")));
  TinyFile tiny;
  tiny.strings["tokenizer.ggml.pre"] = "unheard-of";
  const std::string path = tiny.Write("vocabulary_pre");
  const absl::Status fits = CheckPairOfFiles(path, SPECWIRE_TINY_MODEL);
  EXPECT_TRUE(absl::IsInvalidArgument(fits)) << fits;
  EXPECT_THAT(std::string(fits.message()),
              AllOf(HasSubstr(path), HasSubstr("unheard-of")));
}

}  // namespace
}  // namespace specwire::cli
