// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/stop_matcher.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const StopTexts> Texts(std::vector<std::string> texts) {
  return std::make_shared<const StopTexts>(std::move(texts));
}

// What one run over pieces gave: the text released by each, and the match.
struct Outcome {
  std::vector<std::string> released;
  std::string rest;
  int match = -1;
  // The piece that completed it.
  size_t piece = 0;
};

// Pieces before `first_judged` cannot stop the text.
Outcome RunPieces(std::shared_ptr<const StopTexts> texts,
                  bool include_stop,
                  const std::vector<std::string>& pieces,
                  size_t first_judged = 0) {
  StopMatcher matcher(std::move(texts), include_stop);
  Outcome run;
  for (size_t i = 0; i < pieces.size(); ++i) {
    run.released.push_back(matcher.Push(pieces[i], i >= first_judged));
    if (matcher.match().has_value()) {
      run.match = *matcher.match();
      run.piece = i;
      break;
    }
  }
  run.rest = matcher.Finish();
  return run;
}

// The definition, byte by byte.
Outcome RunPlainly(const std::vector<std::string>& texts,
                   bool include_stop,
                   const std::vector<std::string>& pieces,
                   size_t first_judged) {
  Outcome run;
  std::string all;
  size_t told = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (const char byte : pieces[i]) {
      all.push_back(byte);
      if (i < first_judged) continue;
      size_t longest = 0;
      for (size_t t = 0; t < texts.size(); ++t) {
        if (absl::EndsWith(all, texts[t]) && texts[t].size() > longest) {
          longest = texts[t].size();
          run.match = static_cast<int>(t);
        }
      }
      if (run.match < 0) continue;
      run.piece = i;
      const size_t end = include_stop ? all.size() : all.size() - longest;
      run.released.push_back(all.substr(told, end - told));
      return run;
    }
    // The longest end that begins a stop text, and is not the whole of it.
    size_t held = 0;
    for (const std::string& text : texts) {
      for (size_t size = 1; size < text.size() && size <= all.size(); ++size) {
        if (absl::EndsWith(all, text.substr(0, size))) {
          held = std::max(held, size);
        }
      }
    }
    const size_t end = include_stop ? all.size() : all.size() - held;
    run.released.push_back(all.substr(told, end - told));
    told = end;
  }
  run.rest = all.substr(told);
  return run;
}

TEST(StopMatcherTest, WithoutTextsEverythingIsReleasedAtOnce) {
  const Outcome run = RunPieces(Texts({}), false, {"a", "", "bc"});
  EXPECT_THAT(run.released, ElementsAre("a", "", "bc"));
  EXPECT_EQ(run.rest, "");
  EXPECT_EQ(run.match, -1);
}

TEST(StopMatcherTest, CutsBeforeTheStopText) {
  const Outcome run = RunPieces(Texts({"END"}), false, {"abENDxyz"});
  EXPECT_THAT(run.released, ElementsAre("ab"));
  EXPECT_EQ(run.match, 0);
  EXPECT_EQ(run.rest, "");
}

TEST(StopMatcherTest, KeepsTheStopTextIfWanted) {
  const Outcome run = RunPieces(Texts({"END"}), true, {"abE", "N", "Dxyz"});
  EXPECT_THAT(run.released, ElementsAre("abE", "N", "D"));
}

TEST(StopMatcherTest, HoldsBackWhatMayBeginAStopText) {
  const Outcome run =
      RunPieces(Texts({"END"}), false, {"aE", "N", "E", "ND", "never"});
  EXPECT_THAT(run.released, ElementsAre("a", "", "EN", ""));
  EXPECT_EQ(run.piece, 3u);
}

TEST(StopMatcherTest, ReleasesWhatCannotBeginOneAnyMore) {
  const Outcome run = RunPieces(Texts({"aab"}), false, {"aa", "a", "c", "a"});
  EXPECT_THAT(run.released, ElementsAre("", "a", "aac", ""));
  EXPECT_EQ(run.rest, "a");
}

TEST(StopMatcherTest, TheTextThatIsCompleteFirstWins) {
  // "bc" is complete before "abcd", wherever the pieces end.
  for (const std::vector<std::string>& pieces :
       {std::vector<std::string>{"abcd"}, {"abc", "d"}, {"a", "b", "c", "d"}}) {
    const Outcome run = RunPieces(Texts({"abcd", "bc"}), false, pieces);
    EXPECT_EQ(run.match, 1);
    std::string text;
    for (const std::string& released : run.released) text += released;
    EXPECT_EQ(text, "a");
  }
}

TEST(StopMatcherTest, TheLongestOfThoseThatEndTogetherWins) {
  EXPECT_EQ(RunPieces(Texts({"c", "abc", "bc"}), false, {"abc"}).match, 1);
  EXPECT_EQ(RunPieces(Texts({"c", "abc", "bc"}), false, {"xbc"}).match, 2);
  // Of equal ones the first.
  EXPECT_EQ(RunPieces(Texts({"x", "x"}), false, {"x"}).match, 0);
}

TEST(StopMatcherTest, APieceThatCannotStopMayBeginAStopText) {
  const auto texts = Texts({"ab"});
  EXPECT_EQ(RunPieces(texts, false, {"ab", "a", "b"}, 1).piece, 2u);
  const Outcome run = RunPieces(texts, false, {"a", "b"}, 1);
  EXPECT_EQ(run.match, 0);
  EXPECT_THAT(run.released, ElementsAre("", ""));
}

TEST(StopMatcherTest, NulAndAnyByteAreBytesLikeOthers) {
  const std::string nul("a\0b", 3);
  const Outcome run =
      RunPieces(Texts({nul}), false, {std::string("xa\0", 3), "b"});
  EXPECT_EQ(run.match, 0);
  EXPECT_THAT(run.released, ElementsAre("x", ""));
  EXPECT_EQ(RunPieces(Texts({"\xff"}), false, {"a\xff"}).match, 0);
}

// All texts of up to eight bytes over two letters, cut in every way, against
// sets of stop texts that overlap in nasty ways.
TEST(StopMatcherTest, EveryShortTextAndEveryCutFollowTheDefinition) {
  const std::vector<std::vector<std::string>> sets = {
      {"a"},
      {"ab"},
      {"aab"},
      {"aba"},
      {"abab", "ba"},
      {"aa", "aaa"},
      {"abb", "bb", "b"},
      {"bab", "abaa"},
      {"aabaab", "abaaba", "baa"}};
  int64_t matches = 0;
  for (const std::vector<std::string>& set : sets) {
    const auto texts = Texts(set);
    for (size_t size = 1; size <= 8; ++size) {
      for (unsigned letters = 0; letters < 1u << size; ++letters) {
        std::string text;
        for (size_t i = 0; i < size; ++i) {
          text.push_back((letters >> i & 1) != 0 ? 'b' : 'a');
        }
        for (unsigned cuts = 0; cuts < 1u << (size - 1); ++cuts) {
          std::vector<std::string> pieces(1);
          for (size_t i = 0; i < size; ++i) {
            pieces.back().push_back(text[i]);
            if (i + 1 < size && (cuts >> i & 1) != 0) pieces.emplace_back();
          }
          const size_t first_judged = (letters + cuts) % 3;
          const bool include = (letters ^ cuts) % 2 != 0;
          const Outcome run = RunPieces(texts, include, pieces, first_judged);
          const Outcome plain = RunPlainly(set, include, pieces, first_judged);
          ASSERT_EQ(run.released, plain.released) << text << " " << cuts;
          ASSERT_EQ(run.rest, plain.rest) << text << " " << cuts;
          ASSERT_EQ(run.match, plain.match) << text << " " << cuts;
          ASSERT_EQ(run.piece, plain.piece) << text << " " << cuts;
          matches += run.match >= 0 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(matches, 100000);
}

TEST(StopMatcherTest, RandomTextsFollowTheDefinition) {
  std::mt19937 random(1);
  const auto below = [&random](size_t n) { return random() % n; };
  int matches = 0;
  for (int round = 0; round < 20000; ++round) {
    const size_t letters = 1 + below(4);
    const auto word = [&](size_t most) {
      std::string text;
      for (size_t i = 1 + below(most); i > 0; --i) {
        text.push_back(static_cast<char>('a' + below(letters)));
      }
      return text;
    };
    std::vector<std::string> set;
    for (size_t i = 1 + below(5); i > 0; --i) set.push_back(word(9));
    std::vector<std::string> pieces;
    for (size_t i = 1 + below(12); i > 0; --i) {
      pieces.push_back(below(5) == 0 ? "" : word(6));
    }
    const size_t first_judged = below(4) == 0 ? below(pieces.size()) : 0;
    const bool include = below(3) == 0;
    const Outcome run = RunPieces(Texts(set), include, pieces, first_judged);
    const Outcome plain = RunPlainly(set, include, pieces, first_judged);
    ASSERT_EQ(run.released, plain.released) << "round " << round;
    ASSERT_EQ(run.rest, plain.rest) << "round " << round;
    ASSERT_EQ(run.piece, plain.piece) << "round " << round;
    // Of equal texts either index would do.
    ASSERT_EQ(run.match < 0, plain.match < 0) << "round " << round;
    if (run.match >= 0) {
      ASSERT_EQ(set[static_cast<size_t>(run.match)],
                set[static_cast<size_t>(plain.match)]);
      ++matches;
    }
  }
  EXPECT_GT(matches, 5000);
  EXPECT_LT(matches, 19000);
}

// A search that went back for each byte would take minutes here.
TEST(StopMatcherTest, TheTimeIsLinearInTheText) {
  std::vector<std::string> set;
  for (char last = 'b'; last < 'r'; ++last) {
    set.push_back(std::string(255, 'a') + last);
  }
  StopMatcher matcher(Texts(set), false);
  size_t released = 0;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 20000; ++i) released += matcher.Push(piece).size();
  EXPECT_EQ(released, 20000u * 1000 - 255);
  EXPECT_EQ(matcher.Finish().size(), 255u);
}

}  // namespace
}  // namespace specwire
