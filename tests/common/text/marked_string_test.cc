// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/marked_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/text/jinja/text_functions.h"

namespace specwire::jinja {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TextSegment Literal(const std::string& text) { return {text, true}; }
TextSegment Data(const std::string& text) { return {text, false}; }

TEST(MarkedStringTest, JoinsNeighboursOfOneMark) {
  MarkedString text = MarkedString::Literal("a");
  text.Append(MarkedString::Literal("b"));
  text.Append(MarkedString::Data("c"));
  text.Append(MarkedString());
  text.Append(MarkedString::Data("d"));
  EXPECT_THAT(text.ToSegments(), ElementsAre(Literal("ab"), Data("cd")));
  EXPECT_THAT(MarkedString().ToSegments(), IsEmpty());
}

// A string with a mark for every byte, the slow and obvious way.
struct Slow {
  std::string bytes;
  std::vector<bool> literal;
};

TEST(MarkedStringTest, SlicesAsByteByByteMarksWould) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    MarkedString text;
    Slow slow;
    for (size_t n = random() % 6; n > 0; --n) {
      const bool literal = random() % 2 == 0;
      const std::string piece(random() % 4, static_cast<char>('a' + n));
      text.Append(piece, literal);
      slow.bytes += piece;
      slow.literal.insert(slow.literal.end(), piece.size(), literal);
    }
    const size_t begin = random() % (text.size() + 1);
    const size_t end = begin + random() % (text.size() - begin + 1);
    size_t at = begin;
    for (const TextSegment& segment : text.Slice(begin, end).ToSegments()) {
      for (const char c : segment.text) {
        ASSERT_EQ(c, slow.bytes[at]);
        ASSERT_EQ(segment.special_allowed, slow.literal[at]);
        ++at;
      }
    }
    ASSERT_EQ(at, end);
  }
}

TEST(MarkedStringTest, KeepsMarksThroughTextFunctions) {
  MarkedString text = MarkedString::Literal("  <|A|>");
  text.Append(MarkedString::Data(" <|b|> "));
  EXPECT_THAT(Strip(text, std::nullopt, true, true).ToSegments(),
              ElementsAre(Literal("<|A|>"), Data(" <|b|>")));
  EXPECT_THAT(ToLower(text).ToSegments(),
              ElementsAre(Literal("  <|a|>"), Data(" <|b|> ")));
}

}  // namespace
}  // namespace specwire::jinja
