// SPDX-License-Identifier: Apache-2.0
#include "common/text/printable.h"

#include <string>

#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PrintableTest, TextStaysAsItIs) {
  for (const char* text : {"",
                           "plain \"quoted\" \\ back",
                           "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80",
                           "\xc2\xa0\xe2\x80\x8d"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatSteersATerminalIsEscaped) {
  EXPECT_EQ(Printable("a\033[2Jb\033]0;title\a"),
            "a\\x1b[2Jb\\x1b]0;title\\x07");
  EXPECT_EQ(Printable("a\r\n\tb\x7f"), "a\\r\\n\\tb\\x7f");
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
  // CSI and NEL as single characters of C1.
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m\xc2\x85"),
            "\\u009b31m\\u0085");
  // Right-to-left override and isolates, marks, line separators.
  EXPECT_EQ(Printable("\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c"
                      "\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xa8\xe2\x80\xa9"),
            "\\u202e\\u2066\\u2069\\u061c\\u200e\\u200f\\u2028\\u2029");
}

TEST(PrintableTest, BytesThatAreNotUtf8AreEscaped) {
  // A terminal that is not in UTF-8 takes the first for CSI.
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(Printable("a\xe2\x80"), "a\\xe2\\x80");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");
}

TEST(PrintableTest, WhatIsKeptStays) {
  EXPECT_EQ(Printable("a\n\tb\r\033", "\n\t"), "a\n\tb\\r\\x1b");
}

TEST(ErrorLineTest, IsOneLine) {
  EXPECT_EQ(ErrorLine("a\r\nb\nc\rd\033[31m"), "a b c d\\x1b[31m");
}

TEST(ErrorLineTest, KeepsFieldAndLimitOfAnErrorThatIsTooLong) {
  std::string value;
  for (int i = 0; i < 100000; ++i) value += "\xc3\xa9";
  // Whichever byte of a character the cut would fall on.
  for (const char* field : {"--drafter: ", "--drafter:  "}) {
    const std::string line =
        ErrorLine(std::string(field) + value + " is none of a, b");
    EXPECT_LT(line.size(), 2000u);
    EXPECT_THAT(line, StartsWith(field));
    EXPECT_THAT(line, HasSubstr("[...]"));
    EXPECT_THAT(line, EndsWith(" is none of a, b"));
    EXPECT_TRUE(IsValidUtf8(line));
  }
}

}  // namespace
}  // namespace specwire
