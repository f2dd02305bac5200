// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::cli {
namespace {

using ::testing::HasSubstr;
using Kind = ChatLine::Kind;

TEST(ChatLineTest, WordsBehindASlashAreCommands) {
  EXPECT_EQ(ParseChatLine("/help").kind, Kind::kHelp);
  EXPECT_EQ(ParseChatLine(" /new \r").kind, Kind::kNew);
  EXPECT_EQ(ParseChatLine("/quit").kind, Kind::kQuit);
  EXPECT_EQ(ParseChatLine("/exit").kind, Kind::kQuit);
}

TEST(ChatLineTest, AnythingElseIsAMessage) {
  for (const char* text : {"hello", "a /help b", "help", "\\/help"}) {
    const ChatLine line = ParseChatLine(text);
    EXPECT_EQ(line.kind, Kind::kMessage);
    EXPECT_EQ(line.text, text);
  }
  EXPECT_EQ(ParseChatLine("  hello \n").text, "hello");
  EXPECT_EQ(ParseChatLine("").kind, Kind::kEmpty);
  EXPECT_EQ(ParseChatLine(" \t").kind, Kind::kEmpty);
}

TEST(ChatLineTest, AnUnknownWordIsNamedAndNotSent) {
  for (const char* text : {"/reset", "/helpme", "/help me", "/", "/Quit"}) {
    EXPECT_EQ(ParseChatLine(text).kind, Kind::kUnknown) << text;
  }
  EXPECT_EQ(ParseChatLine("/halp me now").text, "/halp");
}

TEST(ChatLineTest, TwoSlashesSendALineThatBeginsWithOne) {
  const ChatLine line = ParseChatLine("//help me");
  EXPECT_EQ(line.kind, Kind::kMessage);
  EXPECT_EQ(line.text, "/help me");
  EXPECT_EQ(ParseChatLine("//").text, "/");
}

TEST(ChatLineTest, EveryCommandIsTold) {
  for (const char* command : {"/help", "/new", "/quit", "/exit", "//"}) {
    EXPECT_THAT(kChatHelp, HasSubstr(command));
  }
  for (const char* command : {"/help", "/new", "/quit"}) {
    EXPECT_THAT(kChatGreeting, HasSubstr(command));
  }
}

}  // namespace
}  // namespace specwire::cli
