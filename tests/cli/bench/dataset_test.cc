// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire::cli::bench {
namespace {

using testing::HasSubstr;

constexpr char kGood[] =
    R"({"question_id": 1, "category": "qa", "turns": ["Why?", "And?"]})";

absl::StatusOr<std::vector<Question>> Read(const std::string& text) {
  std::istringstream input(text);
  return ReadQuestions(&input, "file");
}

TEST(DatasetTest, TakesFirstTurnsInOrder) {
  const auto questions =
      Read(absl::StrCat(kGood,
                        "\n\n",
                        R"({"turns": ["Z\u00fcrich?\n"], "category": "r a g", )"
                        R"("question_id": -2, "reference": ["x"]})",
                        "\r\n"));
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].id, 1);
  EXPECT_EQ((*questions)[0].category, "qa");
  EXPECT_EQ((*questions)[0].text, "Why?");
  EXPECT_EQ((*questions)[1].id, -2);
  EXPECT_EQ((*questions)[1].text, "Z\xc3\xbcrich?\n");
}

TEST(DatasetTest, ALastLineNeedsNoBreak) {
  const auto questions = Read(kGood);
  ASSERT_TRUE(questions.ok()) << questions.status();
  EXPECT_EQ(questions->size(), 1u);
}

TEST(DatasetTest, MalformedLinesAreNamedByNumber) {
  const std::pair<std::string, std::string> cases[] = {
      {"{", "no JSON"},
      {"[1]", "no JSON object"},
      {"7", "no JSON object"},
      {R"({"category": "qa", "turns": ["x"]})", "question_id"},
      {R"({"question_id": "1", "category": "qa", "turns": ["x"]})",
       "question_id"},
      {R"({"question_id": 1.5, "category": "qa", "turns": ["x"]})",
       "question_id"},
      {R"({"question_id": 1, "turns": ["x"]})", "category"},
      {R"({"question_id": 1, "category": 3, "turns": ["x"]})", "category"},
      {R"({"question_id": 1, "category": "", "turns": ["x"]})", "category"},
      {R"({"question_id": 1, "category": "a\u001b[2J", "turns": ["x"]})",
       "control"},
      {R"({"question_id": 1, "category": "qa"})", "turns"},
      {R"({"question_id": 1, "category": "qa", "turns": []})", "turns"},
      {R"({"question_id": 1, "category": "qa", "turns": "x"})", "turns"},
      {R"({"question_id": 1, "category": "qa", "turns": [1]})", "turns[0]"},
      {R"({"question_id": 1, "category": "qa", "turns": [""]})", "turns[0]"},
      {"{\"question_id\": 1, \"category\": \"qa\", \"turns\": [\"\xff\"]}",
       "no JSON"},
  };
  for (const auto& [line, what] : cases) {
    const auto questions = Read(absl::StrCat(kGood, "\n\n", line, "\n"));
    ASSERT_FALSE(questions.ok()) << line;
    EXPECT_TRUE(absl::IsInvalidArgument(questions.status()));
    EXPECT_THAT(std::string(questions.status().message()),
                HasSubstr("file line 3: "))
        << line;
    EXPECT_THAT(std::string(questions.status().message()), HasSubstr(what))
        << line;
  }
}

TEST(DatasetTest, NoQuestionIsAnError) {
  for (const char* text : {"", "\n\n", "  \n"}) {
    const auto questions = Read(text);
    ASSERT_FALSE(questions.ok());
    EXPECT_THAT(std::string(questions.status().message()),
                HasSubstr("no question"));
  }
}

TEST(DatasetTest, TextsBeyondTheLimitAreRefused) {
  const auto line = [](size_t bytes) {
    return absl::StrCat(R"({"question_id": 1, "category": "qa", "turns": [")",
                        std::string(bytes, 'a'),
                        "\"]}\n");
  };
  EXPECT_TRUE(Read(line(size_t{4} << 20)).ok());
  EXPECT_THAT(std::string(Read(line((size_t{4} << 20) + 1)).status().message()),
              HasSubstr("turns[0] is longer than 4194304 bytes"));
  EXPECT_THAT(std::string(Read(line(kMaxLineBytes)).status().message()),
              HasSubstr("line 1: is longer than 8388608 bytes"));
}

TEST(DatasetTest, AFileThatIsNotThereIsNamed) {
  const auto questions = ReadQuestionFile("/nonexistent.jsonl");
  ASSERT_FALSE(questions.ok());
  EXPECT_THAT(std::string(questions.status().message()),
              HasSubstr("/nonexistent.jsonl"));
  EXPECT_THAT(std::string(ReadQuestionFile("/").status().message()),
              HasSubstr("cannot read /"));
}

TEST(DatasetTest, ReadsTheCommittedQuestions) {
  const auto questions =
      ReadQuestionFile(std::string(SPECWIRE_TEST_DATA) + "/questions.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status();
  EXPECT_EQ(questions->size(), 8u);
}

TEST(GroupsTest, GroupsAndTheirCategoriesTakeTurns) {
  std::vector<Question> questions;
  int64_t id = 0;
  for (const char* category : {"writing",
                               "writing",
                               "coding",
                               "coding",
                               "coding",
                               "qa",
                               "qa",
                               "rag"}) {
    questions.push_back({id++, category, "?"});
  }
  std::vector<int64_t> ids;
  for (const Question& question : TakeTurns(questions)) {
    ids.push_back(question.id);
  }
  // Chat is 0 2 1 3 4.
  EXPECT_THAT(ids, testing::ElementsAre(0, 5, 7, 2, 6, 1, 3, 4));
  EXPECT_TRUE(TakeTurns({}).empty());
}

}  // namespace
}  // namespace specwire::cli::bench
