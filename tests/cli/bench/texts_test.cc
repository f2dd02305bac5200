// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/texts.h"

#include <gtest/gtest.h>

namespace specwire::cli::bench {
namespace {

TEST(GroupOfTest, TopicsOfConversationsAreChat) {
  for (const char* topic : {"writing",
                            "roleplay",
                            "reasoning",
                            "math",
                            "coding",
                            "extraction",
                            "stem",
                            "humanities",
                            "mt_bench"}) {
    EXPECT_EQ(GroupOf(topic), "chat");
  }
  for (const char* other : {"qa", "math_reasoning", "rag", "chat", ""}) {
    EXPECT_EQ(GroupOf(other), other);
  }
}

TEST(RepeatRateTest, CountsRunsThatOccurredBefore) {
  EXPECT_DOUBLE_EQ(RepeatRate({}, {1, 2, 3, 4, 5, 6}), 0);
  // 1111 five times: four of five runs are repeats.
  EXPECT_DOUBLE_EQ(RepeatRate({}, {1, 1, 1, 1, 1, 1, 1, 1}), 0.8);
  // 1231 2312 3123 1231 2312: two of five.
  EXPECT_DOUBLE_EQ(RepeatRate({}, {1, 2, 3, 1, 2, 3, 1, 2}), 0.4);
  EXPECT_DOUBLE_EQ(RepeatRate({}, {1, 1, 1}), 0);
  EXPECT_DOUBLE_EQ(RepeatRate({}, {}), 0);
  EXPECT_DOUBLE_EQ(RepeatRate({}, {1, 2, 1, 2}, 2), 1.0 / 3);
}

TEST(RepeatRateTest, CountsWhatThePromptHad) {
  // 1234 is in the prompt, 2345 is not.
  EXPECT_DOUBLE_EQ(RepeatRate({9, 1, 2, 3, 4}, {1, 2, 3, 4, 5}), 0.5);
  // 4123 begins in the prompt, so it has occurred before its place here.
  EXPECT_DOUBLE_EQ(RepeatRate({1, 2, 3, 4}, {1, 2, 3, 4, 1, 2, 3}), 1);
  // What repeats inside the prompt alone is not the completion's.
  EXPECT_DOUBLE_EQ(RepeatRate({1, 1, 1, 1, 1, 1}, {5, 6, 7, 8}), 0);
}

}  // namespace
}  // namespace specwire::cli::bench
