// SPDX-License-Identifier: Apache-2.0
#include "common/text/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/text/utf8.h"
#include "tests/common/text/small_vocabulary.h"

namespace specwire {
namespace {

using Ids = std::vector<int32_t>;

class DetokenizerTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ =
      Tokenizer::Create(SmallVocabulary()).value();
};

TEST_F(DetokenizerTest, HoldsIncompleteCharactersBack) {
  Detokenizer detokenizer(tokenizer_.get(), false);
  EXPECT_EQ(detokenizer.Push('a'), "a");
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push(0x9F), "");
  EXPECT_TRUE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Push(0x98), "");
  EXPECT_EQ(detokenizer.Push(0x80), "\U0001F600");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(DetokenizerTest, ReleasesWhatCannotBecomeACharacter) {
  Detokenizer detokenizer(tokenizer_.get(), false);
  EXPECT_EQ(detokenizer.Push(0xE2), "");
  EXPECT_EQ(detokenizer.Push('x'), "\uFFFDx");
  EXPECT_EQ(detokenizer.Push(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.Push(0xE2), "");
  EXPECT_EQ(detokenizer.Push(0x82), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(DetokenizerTest, SkipsControlTokensInTheMiddleOfACharacter) {
  const int32_t end = *tokenizer_->model().eos_id;
  Detokenizer skipping(tokenizer_.get(), true);
  EXPECT_EQ(skipping.Push(0xC3), "");
  EXPECT_EQ(skipping.Push(end), "");
  EXPECT_EQ(skipping.Push(0xA9), "\u00E9");
  Detokenizer showing(tokenizer_.get(), false);
  EXPECT_EQ(showing.Push(0xC3), "");
  EXPECT_EQ(showing.Push(end), "\uFFFD<|end|>");
}

TEST_F(DetokenizerTest, AddsUpToDecodeForRandomIds) {
  std::mt19937 random(5);
  const auto size = static_cast<size_t>(tokenizer_->vocab_size());
  for (int round = 0; round < 20'000; ++round) {
    const bool skip = round % 2 == 0;
    Detokenizer detokenizer(tokenizer_.get(), skip);
    Ids ids;
    std::string text;
    for (size_t n = random() % 16; n > 0; --n) {
      // Half of them lead and continuation bytes, so that characters form.
      const size_t id =
          random() % 2 == 0 ? random() % (size + 4) : 0x80 + random() % 0x80;
      ids.push_back(static_cast<int32_t>(id));
      const std::string piece = detokenizer.Push(ids.back());
      ASSERT_TRUE(IsValidUtf8(piece));
      text += piece;
      // What is out is the beginning of every text that may yet follow.
      ASSERT_TRUE(absl::StartsWith(tokenizer_->Decode(ids, skip), text));
    }
    text += detokenizer.Finish();
    ASSERT_EQ(text, tokenizer_->Decode(ids, skip)) << "round " << round;
  }
}

}  // namespace
}  // namespace specwire
