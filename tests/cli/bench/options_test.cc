// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/bench/plan.h"

namespace specwire::cli::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OptionsTest, ModesAreEitherOrBoth) {
  EXPECT_THAT(*ParseModes("plain"), ElementsAre(Mode::kPlain));
  EXPECT_THAT(*ParseModes("speculative,plain"),
              ElementsAre(Mode::kSpeculative, Mode::kPlain));
  for (const char* text : {"", "fast", "plain,", "plain,plain"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModes(text).status())) << text;
  }
}

TEST(OptionsTest, LimitsAreNamed) {
  const auto limits = ParseLimits("e2e_ms:5000,ttft_ms:0.5");
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->ttft_ms, 0.5);
  EXPECT_EQ(limits->e2e_ms, 5000);
  EXPECT_FALSE(limits->itl_ms.has_value());
  for (const char* text : {"",
                           "ttft:5",
                           "ttft_ms",
                           "ttft_ms:",
                           "ttft_ms:x",
                           "ttft_ms:0",
                           "ttft_ms:-1",
                           "ttft_ms:nan",
                           "ttft_ms:1,ttft_ms:2",
                           "ttft_ms:1,"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLimits(text).status())) << text;
  }
}

TEST(OptionsTest, WhatIsOutOfRangeIsNamed) {
  EXPECT_TRUE(CheckOptions(Options()).ok());
  const std::pair<std::string, std::function<void(Options*)>> cases[] = {
      {"--num", [](Options* o) { o->num = 0; }},
      {"--concurrency", [](Options* o) { o->concurrency = 0; }},
      {"--concurrency", [](Options* o) { o->concurrency = 10001; }},
      {"--rate", [](Options* o) { o->rate = 0; }},
      {"--rate", [](Options* o) { o->rate = std::nan(""); }},
      {"--rate", [](Options* o) { o->rate = INFINITY; }},
      {"--rate",
       [](Options* o) {
         o->rate = 1;
         o->concurrency = 1;
       }},
      {"--burstiness", [](Options* o) { o->burstiness = 1; }},
      {"--burstiness",
       [](Options* o) {
         o->rate = 1;
         o->burstiness = -1;
       }},
      {"--max_concurrency", [](Options* o) { o->max_concurrency = 1; }},
      {"--max_concurrency",
       [](Options* o) {
         o->rate = 1;
         o->max_concurrency = 0;
       }},
      {"--max_tokens", [](Options* o) { o->max_tokens = 0; }},
      {"--drafter",
       [](Options* o) {
         o->modes = {Mode::kPlain};
         o->drafter = "ngram";
       }},
      {"--max_draft_tokens",
       [](Options* o) {
         o->modes = {Mode::kPlain};
         o->max_draft_tokens = 4;
       }},
      {"--patience_us",
       [](Options* o) {
         o->modes = {Mode::kPlain};
         o->patience_us = 0;
       }},
      {"--window",
       [](Options* o) {
         o->modes = {Mode::kPlain};
         o->window = 4;
       }},
      {"--temperature", [](Options* o) { o->temperature = -1; }},
      {"--temperature", [](Options* o) { o->temperature = NAN; }},
      {"--warmup", [](Options* o) { o->warmup = -1; }},
      {"--duration", [](Options* o) { o->duration_s = 0; }},
      {"--deadline_ms", [](Options* o) { o->deadline_ms = 0; }},
  };
  for (const auto& [flag, change] : cases) {
    Options options;
    change(&options);
    const absl::Status status = CheckOptions(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr(flag));
  }
}

Options ForPlan(std::optional<int64_t> num, int concurrency) {
  Options options;
  options.num = num;
  options.concurrency = concurrency;
  return options;
}

// Blocks follow each other without gap, sizes differ by one at most.
void ExpectCovers(const Plan& plan, int64_t num) {
  EXPECT_EQ(plan.num_requests(), num);
  int64_t next = 0;
  int64_t least = num;
  int64_t most = 0;
  for (int64_t i = 0; i < plan.num_blocks(); ++i) {
    const Plan::Block block = plan.block(i);
    EXPECT_EQ(block.number, i);
    EXPECT_EQ(block.begin, next);
    next = block.end;
    least = std::min(least, block.end - block.begin);
    most = std::max(most, block.end - block.begin);
  }
  EXPECT_EQ(next, num);
  EXPECT_LE(most - least, 1);
}

TEST(PlanTest, BlocksHaveAtLeastAsManyRequestsAsThereAreWorkers) {
  // {requests, workers, blocks}
  for (const auto& [num, workers, blocks] :
       std::vector<std::tuple<int, int, int>>{{96, 1, 24},
                                              {8, 1, 8},
                                              {7, 1, 7},
                                              {1, 1, 1},
                                              {480, 1, 32},
                                              {96, 4, 8},
                                              {96, 16, 6},
                                              {96, 64, 1},
                                              {640, 64, 8},
                                              {10, 64, 1}}) {
    const Plan plan(ForPlan(num, workers), 96);
    EXPECT_EQ(plan.num_blocks(), blocks) << num << " " << workers;
    ExpectCovers(plan, num);
  }
}

TEST(PlanTest, AsksEachQuestionOnceUnlessToldOtherwise) {
  ExpectCovers(Plan(ForPlan(std::nullopt, 1), 17), 17);
  Options options;
  options.duration_s = 5;
  const Plan plan(options, 17);
  EXPECT_EQ(plan.num_requests(), Plan::kUnlimited);
  EXPECT_EQ(plan.block(0).end, 4);
  EXPECT_EQ(plan.block(1000).begin, 4000);
}

TEST(PlanTest, TheOrderOfModesAlternates) {
  const Plan plan(ForPlan(8, 1), 8);
  EXPECT_THAT(plan.block(0).modes,
              ElementsAre(Mode::kPlain, Mode::kSpeculative));
  EXPECT_THAT(plan.block(1).modes,
              ElementsAre(Mode::kSpeculative, Mode::kPlain));
}

TEST(PlanTest, OneModeIsOneBlock) {
  Options options = ForPlan(100, 1);
  options.modes = {Mode::kSpeculative};
  EXPECT_EQ(Plan(options, 8).num_blocks(), 1);
  options.num.reset();
  options.duration_s = 1;
  EXPECT_EQ(Plan(options, 8).num_blocks(), 1);
  EXPECT_EQ(Plan(options, 8).block(0).end, Plan::kUnlimited);
}

TEST(PlanTest, BlocksOfAnOpenLoopLastSeconds) {
  Options options;
  options.num = 1000;
  options.rate = 20;
  ExpectCovers(Plan(options, 8), 1000);
  EXPECT_EQ(Plan(options, 8).num_blocks(), 8);
  options.num = 250;
  EXPECT_EQ(Plan(options, 8).num_blocks(), 2);
}

}  // namespace
}  // namespace specwire::cli::bench
