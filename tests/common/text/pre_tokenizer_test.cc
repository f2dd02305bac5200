// SPDX-License-Identifier: Apache-2.0
#include "common/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pieces = std::vector<std::string>;

constexpr const char* kNames[] = {
    "smollm", "gpt-2", "llama-bpe", "qwen2", "tekken"};

Pieces Split(absl::string_view name, absl::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(name);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  Pieces pieces;
  const auto status = (*pre_tokenizer)->Split(text, [&](absl::string_view p) {
    pieces.emplace_back(p);
  });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(PreTokenizerTest, CutsAsThePublishedPatternsDo) {
  std::ifstream in(SPECWIRE_TEST_DATA "/text/pre_tokenizer.jsonl");
  int rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    const auto row = nlohmann::json::parse(line);
    const std::string text = row["text"];
    for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "tekken"}) {
      EXPECT_EQ(Split(name, text), row[name].get<Pieces>())
          << name << ", row " << rows + 1;
    }
  }
  EXPECT_EQ(rows, 125);
}

TEST(PreTokenizerTest, SplitsDigitsOffFirst) {
  // White space in front of a digit stays together, as nothing follows it.
  EXPECT_THAT(Split("smollm", "a  1"), ElementsAre("a", "  ", "1"));
  EXPECT_THAT(Split("gpt-2", "a  1"), ElementsAre("a", " ", " 1"));
  EXPECT_THAT(Split("smollm", "x 12\u00BD"),
              ElementsAre("x", " ", "1", "2", "\u00BD"));
}

TEST(PreTokenizerTest, TakesWhiteSpaceFromUnicode) {
  // U+180E is none, though PCRE2 says so; U+0085 is.
  EXPECT_THAT(Split("gpt-2", "a\u180Eb"), ElementsAre("a", "\u180E", "b"));
  EXPECT_THAT(Split("gpt-2", "a \u180E!"), ElementsAre("a", " \u180E!"));
  EXPECT_THAT(Split("gpt-2", "a\u0085 b"), ElementsAre("a", "\u0085", " b"));
}

TEST(PreTokenizerTest, HandsMalformedBytesOn) {
  EXPECT_THAT(Split("smollm", "ab\xFF\xE2\x82 \x80z"),
              ElementsAre("ab", "\xFF\xE2\x82", " \x80", "z"));
  // U+FFFD itself is no longer in the copy than in the text.
  EXPECT_THAT(Split("smollm", "\xFF\uFFFD a\xC0"),
              ElementsAre("\xFF\uFFFD", " a", "\xC0"));
}

TEST(PreTokenizerTest, LosesNothing) {
  std::mt19937 random(11);
  const std::vector<std::string> parts = {" ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "a",
                                          "Zz",
                                          "'s",
                                          "'LL",
                                          "7",
                                          "42",
                                          "\u00E9",
                                          "!",
                                          "/",
                                          "\t",
                                          "\xFF",
                                          "\xE2\x82",
                                          "\u4E2D",
                                          "\U0001F600",
                                          "\u3000"};
  for (const char* name : kNames) {
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (size_t n = random() % 20; n > 0; --n) {
        text += parts[random() % parts.size()];
      }
      ASSERT_EQ(absl::StrJoin(Split(name, text), ""), text);
    }
  }
}

TEST(PreTokenizerTest, IsLinearInItsText) {
  constexpr size_t kSize = 1 << 20;
  const std::vector<std::string> units = {" ",
                                          "7",
                                          "a",
                                          "A",
                                          "\n",
                                          "!",
                                          "\u00E9",
                                          "\u4E2D",
                                          "\xFF",
                                          "'",
                                          " \n",
                                          "\u00BD",
                                          "a ",
                                          "/\n"};
  for (const char* name : kNames) {
    const auto pre_tokenizer = PreTokenizer::Create(name);
    ASSERT_TRUE(pre_tokenizer.ok());
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < kSize) text += unit;
      for (const char* end : {"", "x", "\n", "!"}) {
        size_t size = 0;
        const auto status =
            (*pre_tokenizer)
                ->Split(absl::StrCat(text, end),
                        [&](absl::string_view piece) { size += piece.size(); });
        ASSERT_TRUE(status.ok()) << name << ": " << status;
        ASSERT_EQ(size, text.size() + std::string(end).size());
      }
    }
  }
}

TEST(PreTokenizerTest, SaysSoWhenTheMatchLimitIsReached) {
  const auto pre_tokenizer = PreTokenizer::Create("llama-bpe", 50);
  ASSERT_TRUE(pre_tokenizer.ok());
  const auto status =
      (*pre_tokenizer)
          ->Split(std::string(100'000, ' ') + "x", [](absl::string_view) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(PreTokenizerTest, RefusesUnknownNames) {
  const auto result = PreTokenizer::Create("(a+)+b");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("(a+)+b"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("llama-bpe"));
  EXPECT_FALSE(PreTokenizer::Create("").ok());
}

}  // namespace
}  // namespace specwire
