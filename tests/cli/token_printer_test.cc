// SPDX-License-Identifier: Apache-2.0
#include "cli/token_printer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace specwire::cli {
namespace {

// A file that is read back.
class TokenPrinterTest : public testing::Test {
 protected:
  TokenPrinterTest() : file_(std::tmpfile()) {}
  ~TokenPrinterTest() override { std::fclose(file_); }

  std::string Written() {
    std::rewind(file_);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

  // A delta of pieces; those that begin with '+' are accepted draft tokens.
  static v1::GenerateDelta Delta(const std::vector<std::string>& pieces) {
    v1::GenerateDelta delta;
    for (const std::string& piece : pieces) {
      const bool accepted = piece.starts_with("+");
      delta.mutable_text()->append(piece.substr(accepted ? 1 : 0));
      delta.add_text_ends(static_cast<int32_t>(delta.text().size()));
      delta.add_origins(accepted ? v1::TOKEN_ORIGIN_DRAFT
                                 : v1::TOKEN_ORIGIN_TARGET);
    }
    return delta;
  }

  std::FILE* const file_;
};

TEST_F(TokenPrinterTest, BracketsRunsOfAcceptedTokens) {
  TokenPrinter printer(file_, Marks::kBrackets, false);
  EXPECT_TRUE(printer.Print(Delta({"a", "+b", "+c", "d"})));
  EXPECT_TRUE(printer.Print(Delta({"+e"})));
  EXPECT_TRUE(printer.Print(Delta({"+f", "g"})));
  EXPECT_TRUE(printer.Finish("!"));
  EXPECT_EQ(Written(), "a[bc]d[ef]g!\n");
}

TEST_F(TokenPrinterTest, ClosesTheLastMark) {
  TokenPrinter printer(file_, Marks::kColor, false);
  EXPECT_TRUE(printer.Print(Delta({"+b"})));
  EXPECT_TRUE(printer.Finish(""));
  EXPECT_EQ(Written(), "\033[4;32mb\033[0m\n");
}

TEST_F(TokenPrinterTest, WritesPlainTextWithoutMarks) {
  TokenPrinter printer(file_, Marks::kNone, false);
  EXPECT_TRUE(printer.Print(Delta({"a", "+b\n"})));
  EXPECT_TRUE(printer.Finish(""));
  EXPECT_EQ(Written(), "ab\n");
}

TEST_F(TokenPrinterTest, WritesTextThatNoTokenReleased) {
  TokenPrinter printer(file_, Marks::kBrackets, false);
  v1::GenerateDelta delta = Delta({"+a"});
  delta.mutable_text()->append("rest");
  delta.add_text_ends(-5);
  delta.add_origins(v1::TOKEN_ORIGIN_DRAFT);
  EXPECT_TRUE(printer.Print(delta));
  EXPECT_TRUE(printer.Finish(""));
  EXPECT_EQ(Written(), "[a]rest\n");
}

TEST_F(TokenPrinterTest, KeepsControlCharactersFromTheTerminal) {
  TokenPrinter printer(file_, Marks::kNone, true);
  EXPECT_TRUE(printer.Print(Delta({"a\033[2J\tb\r\n\x7f"})));
  EXPECT_TRUE(printer.Finish(""));
  EXPECT_EQ(Written(), "a\\x1b[2J\tb\\r\n\\x7f\n");
}

TEST_F(TokenPrinterTest, KeepsControlsOfSeveralBytesFromTheTerminalToo) {
  TokenPrinter printer(file_, Marks::kBrackets, true);
  v1::GenerateDelta delta = Delta({"a",
                                   "+\xc2\x9b"
                                   "31m",
                                   "\xe2\x80\xae\xc3\xa9"});
  // Whatever is said of where tokens end, no character is torn apart.
  delta.set_text_ends(0, 2);
  EXPECT_TRUE(printer.Print(delta));
  EXPECT_TRUE(printer.PrintPlain("\033]0;title\a"));
  EXPECT_TRUE(printer.Finish("\xe2\x80\xa8"));
  EXPECT_EQ(Written(),
            "a\\u009b[31m]\\u202e\xc3\xa9\\x1b]0;title\\x07\\u2028\n");
}

TEST_F(TokenPrinterTest, BytesAreUnchangedWhereThereIsNoTerminal) {
  TokenPrinter printer(file_, Marks::kNone, false);
  EXPECT_TRUE(
      printer.Print(Delta({"a\033[2J\r\x7f", "+\xc2\x9b\xe2\x80\xae"})));
  EXPECT_TRUE(printer.Finish(""));
  EXPECT_EQ(Written(), "a\033[2J\r\x7f\xc2\x9b\xe2\x80\xae\n");
}

TEST_F(TokenPrinterTest, TellsThatTheOutputIsGone) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  TokenPrinter printer(full, Marks::kNone, false);
  EXPECT_FALSE(printer.Print(Delta({"a"})));
  std::fclose(full);
}

TEST(MarksTest, AutoIsColorOnATerminalOnly) {
  EXPECT_EQ(MarksFromName("auto", true), Marks::kColor);
  EXPECT_EQ(MarksFromName("auto", false), Marks::kNone);
  EXPECT_EQ(MarksFromName("color", false), Marks::kColor);
  EXPECT_EQ(MarksFromName("brackets", true), Marks::kBrackets);
  EXPECT_EQ(MarksFromName("none", true), Marks::kNone);
}

}  // namespace
}  // namespace specwire::cli
