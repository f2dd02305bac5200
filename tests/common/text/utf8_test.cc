// SPDX-License-Identifier: Apache-2.0
#include "common/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace specwire {
namespace {

std::string Valid(absl::string_view text) {
  std::string out;
  AppendValidUtf8(text, &out);
  return out;
}

TEST(Utf8Test, ReplacesEachMaximalSubpart) {
  // The example of the Unicode standard, table 3-8, and its neighbours.
  EXPECT_EQ(Valid("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  // Overlong forms and surrogates: no byte of them continues the one before.
  EXPECT_EQ(Valid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(Valid("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Valid("\xF4\x91\x92\x93\xFF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(Valid("\xE2\x82"), "\uFFFD");
}

TEST(Utf8Test, KeepsEveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Step step = ReadUtf8(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCharacter) << static_cast<int>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
  }
}

TEST(Utf8Test, TellsIncompleteFromMalformed) {
  using Kind = Utf8Step::Kind;
  EXPECT_EQ(ReadUtf8("\xF0\x9F\x98").kind, Kind::kIncomplete);
  EXPECT_EQ(ReadUtf8("\xF0\x9F\x98").length, 3u);
  EXPECT_EQ(ReadUtf8("\xF0\x8F").kind, Kind::kMalformed);
  EXPECT_EQ(ReadUtf8("\xF0\x8F").length, 1u);
  EXPECT_EQ(ReadUtf8("\x80").kind, Kind::kMalformed);
}

}  // namespace
}  // namespace specwire
