// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/synthetic.h"

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

// The language's own continuation of `tokens`.
std::vector<int32_t> Continue(const SyntheticLanguage& language,
                              const std::vector<int32_t>& tokens,
                              int count) {
  uint64_t state = language.Begin();
  for (const int32_t token : tokens) state = language.Extend(state, token);
  std::vector<int32_t> added;
  for (int i = 0; i < count; ++i) {
    added.push_back(language.Next(state));
    state = language.Extend(state, added.back());
  }
  return added;
}

DraftSequenceParams Params(int64_t seed) {
  DraftSequenceParams params;
  params.sampling.seed = seed;
  return params;
}

TEST(SyntheticLanguageTest, NextTokenDependsOnAllTokensBefore) {
  const SyntheticLanguage language(kDefaultSyntheticVocab);
  const std::vector<int32_t> text = {70, 80, 90, 100, 110, 120};
  const std::vector<int32_t> expected = Continue(language, text, 8);
  EXPECT_EQ(Continue(language, text, 8), expected);
  for (size_t i = 0; i < text.size(); ++i) {
    std::vector<int32_t> other = text;
    ++other[i];
    EXPECT_NE(Continue(language, other, 8), expected) << i;
  }
}

TEST(SyntheticLanguageTest, TokenizerTakesAnyBytesAndGivesPrintableText) {
  for (const int vocab : {kMinSyntheticVocab, 300, kDefaultSyntheticVocab}) {
    const SyntheticLanguage language(vocab);
    const auto tokenizer = Tokenizer::Create(language.Tokenizer());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ASSERT_EQ((*tokenizer)->vocab_size(), vocab);
    std::string bytes = "any text, \xc3\xa9, \xf0\x9f\x98\x80, ";
    bytes.push_back('\0');
    const auto ids = (*tokenizer)->Encode(bytes, SpecialTokens::kAsText);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ((*tokenizer)->Decode(*ids, false), bytes);
    const std::vector<int32_t> added = Continue(language, *ids, 500);
    for (const char letter : (*tokenizer)->Decode(added, false)) {
      ASSERT_TRUE(absl::ascii_isprint(static_cast<unsigned char>(letter)));
    }
    EXPECT_GT(std::set<int32_t>(added.begin(), added.end()).size(),
              vocab == 300 ? 20u : 50u);
  }
}

TEST(SyntheticLanguageTest, DigestSaysWhatDecidesTheTokens) {
  EXPECT_EQ(SyntheticLanguage(300).Digest(), SyntheticLanguage(300).Digest());
  EXPECT_NE(SyntheticLanguage(300).Digest(), SyntheticLanguage(301).Digest());
}

TEST(SyntheticLanguageTest, OtherIsAnotherTokenThatCouldBeGenerated) {
  for (const int vocab : {kMinSyntheticVocab, kMinSyntheticVocab + 1, 300}) {
    const SyntheticLanguage language(vocab);
    for (const int32_t token : Continue(language, {65}, 50)) {
      const int32_t other = language.Other(token);
      EXPECT_NE(other, token);
      EXPECT_GE(other, 0);
      EXPECT_LT(other, vocab);
    }
  }
}

// Verifies runs one after the other, as a verifier in lock-step does, and
// compares how often each place of a run was reached and right with the law.
TEST(SyntheticDrafterTest, ObservedAcceptanceFollowsTheLaw) {
  // Many short sequences: draws are independent where seeds or positions
  // differ.
  constexpr int64_t kSequences = 1000;
  constexpr int kRuns = 20;
  SyntheticDrafterOptions options;
  options.acceptance = {0.9, 0.6, 0.3};
  SyntheticDrafter drafter(options);
  const SyntheticLanguage language(options.vocab_size);
  std::array<double, 4> reached = {};
  std::array<double, 4> right = {};
  for (int64_t seed = 0; seed < kSequences; ++seed) {
    const auto sequence = drafter.NewSequence(Params(seed));
    std::vector<int32_t> path = {66, 67, 68};
    for (int run = 0; run < kRuns; ++run) {
      const auto draft = sequence->Propose(path, {4});
      ASSERT_TRUE(draft.ok());
      ASSERT_EQ(draft->tokens.size(), 4u);
      const std::vector<int32_t> target = Continue(language, path, 5);
      size_t accepted = 0;
      while (accepted < 4 && draft->tokens[accepted] == target[accepted]) {
        ++accepted;
      }
      for (size_t i = 0; i <= accepted && i < 4; ++i) ++reached[i];
      for (size_t i = 0; i < accepted; ++i) ++right[i];
      path.insert(path.end(),
                  target.begin(),
                  target.begin() + static_cast<std::ptrdiff_t>(accepted) + 1);
    }
  }
  // The last probability holds for all later places.
  const std::array<double, 4> law = {0.9, 0.6, 0.3, 0.3};
  for (size_t i = 0; i < law.size(); ++i) {
    const double sigma = std::sqrt(law[i] * (1 - law[i]) / reached[i]);
    EXPECT_NEAR(right[i] / reached[i], law[i], 4.5 * sigma) << i;
  }
}

TEST(SyntheticDrafterTest, SamePathAndSeedGiveTheSameRun) {
  SyntheticDrafterOptions options;
  options.acceptance = {0.5};
  SyntheticDrafter drafter(options);
  const std::vector<int32_t> path(40, 70);
  const auto first = drafter.NewSequence(Params(1))->Propose(path, {8});
  const auto sequence = drafter.NewSequence(Params(1));
  // What was asked before makes no difference.
  ASSERT_TRUE(sequence->Propose({5, 6}, {3}).ok());
  const auto second = sequence->Propose(path, {8});
  const auto other = drafter.NewSequence(Params(2))->Propose(path, {8});
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(first->tokens, second->tokens);
  EXPECT_NE(first->tokens, other->tokens);
  EXPECT_TRUE(drafter.synthetic());
}

TEST(SyntheticDrafterTest, WaitsAsLongAsItIsTold) {
  SyntheticDrafterOptions options;
  options.delay = absl::Milliseconds(20);
  SyntheticDrafter drafter(options);
  const auto sequence = drafter.NewSequence(Params(1));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(sequence->Propose({70}, {4}).ok());
  // No less; how much more is the machine's affair.
  EXPECT_GE(std::chrono::steady_clock::now() - start,
            std::chrono::milliseconds(20));
}

TEST(SyntheticDrafterTest, BadOptionsAreNamed) {
  const auto message = [](auto change) {
    SyntheticDrafterOptions options;
    change(&options);
    return std::string(CheckSyntheticDrafterOptions(options).message());
  };
  EXPECT_EQ(message([](auto*) {}), "");
  EXPECT_THAT(message([](auto* o) {
                o->acceptance = {0.5, 1.5};
              }),
              HasSubstr("--synthetic_acceptance: 1.5"));
  EXPECT_THAT(message([](auto* o) { o->acceptance = {std::nan("")}; }),
              HasSubstr("--synthetic_acceptance"));
  EXPECT_THAT(message([](auto* o) { o->acceptance.clear(); }),
              HasSubstr("--synthetic_acceptance: is empty"));
  EXPECT_THAT(message([](auto* o) { o->vocab_size = 256; }),
              HasSubstr("--synthetic_vocab: 256"));
  EXPECT_THAT(message([](auto* o) { o->delay = absl::Seconds(11); }),
              HasSubstr("--synthetic_delay_us"));
}

TEST(SyntheticTest, MustBeAllowed) {
  EXPECT_TRUE(CheckSyntheticAllowed(true, "--engine synthetic").ok());
  EXPECT_THAT(
      std::string(CheckSyntheticAllowed(false, "--engine synthetic").message()),
      HasSubstr("--allow_synthetic"));
}

}  // namespace
}  // namespace specwire
