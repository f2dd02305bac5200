// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/protocol_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"

namespace specwire::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !defined(NDEBUG)
constexpr int kDefaultSchedules = 30000;
#else
constexpr int kDefaultSchedules = 300000;
#endif

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

Options MakeOptions(int schedule, Broken broken = Broken::kNone) {
  const auto seed = static_cast<uint64_t>(FromEnvironment("SPECWIRE_SEED", 1));
  Options options;
  options.seed = seed * 1000003 + static_cast<uint64_t>(schedule);
  options.broken = broken;
  return options;
}

TEST(ProtocolSimulationTest, EveryScheduleEndsWithTheTextOfPlainDecoding) {
  const int schedules =
      FromEnvironment("SPECWIRE_SCHEDULES", kDefaultSchedules);
  int failures = 0;
  int64_t passes = 0;
  int64_t tokens = 0;
  int64_t accepted = 0;
  int64_t drafters_lost = 0;
  int64_t verifiers_lost = 0;
  int64_t stopped_by_text = 0;
  int64_t hangs = 0;
  int64_t refusals = 0;
  int64_t coordinators_lost = 0;
  for (int i = 0; i < schedules && failures < 5; ++i) {
    const Outcome outcome = Simulate(MakeOptions(i));
    passes += outcome.passes;
    tokens += outcome.completion_tokens;
    accepted += outcome.accepted_tokens;
    drafters_lost += outcome.drafters_lost;
    verifiers_lost += outcome.verifiers_lost;
    stopped_by_text += outcome.stopped_by_text ? 1 : 0;
    hangs += outcome.hangs;
    refusals += outcome.refusals;
    coordinators_lost += outcome.coordinators_lost;
    if (!outcome.failure.empty()) {
      ++failures;
      ADD_FAILURE() << "seed " << MakeOptions(i).seed << ": " << outcome.failure
                    << "\n  " << outcome.settings
                    << "\n  again: add it to kOnceFailed";
    }
  }
  RecordProperty("schedules", schedules);
  RecordProperty(
      "tokens_per_1000_passes",
      static_cast<int>(1000 * tokens / std::max<int64_t>(passes, 1)));
  // The schedules exercise what they are meant to.
  EXPECT_GT(accepted, schedules);
  EXPECT_GT(drafters_lost, schedules / 20);
  EXPECT_GT(verifiers_lost, schedules / 20);
  EXPECT_GT(stopped_by_text, schedules / 20);
  EXPECT_GT(hangs, schedules / 20);
  EXPECT_GT(refusals, schedules / 20);
  EXPECT_GT(coordinators_lost, schedules / 20);
}

// Seeds that once failed, with what was wrong; a new one is added before its
// cause is mended.
constexpr uint64_t kOnceFailed[] = {
    // Messages to a verifier that had refused reached none: the simulation's.
    1000073,
    1000171,
};

TEST(ProtocolSimulationTest, SeedsThatOnceFailedPass) {
  for (const uint64_t seed : kOnceFailed) {
    Options options;
    options.seed = seed;
    const Outcome outcome = Simulate(options);
    EXPECT_EQ(outcome.failure, "") << seed << ": " << outcome.settings;
  }
}

// Leaving a rule out must hang some schedule, and never change the text.
class BrokenProtocolTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenProtocolTest, HangsSomeSchedule) {
  const int schedules = FromEnvironment("SPECWIRE_BROKEN_SCHEDULES", 100000);
  for (int i = 0; i < schedules; ++i) {
    const Outcome outcome = Simulate(MakeOptions(i, GetParam()));
    if (!outcome.failure.empty()) {
      EXPECT_EQ(outcome.failure, "hang") << outcome.settings;
      RecordProperty("first_hang", i);
      return;
    }
  }
  FAIL() << schedules << " schedules ended without the rule";
}

std::string RuleName(const testing::TestParamInfo<Broken>& rule) {
  switch (rule.param) {
    case Broken::kNone:
      return "None";
    case Broken::kFence:
      return "Fence";
    case Broken::kEmpty:
      return "Empty";
    case Broken::kRewind:
      return "Rewind";
    case Broken::kOpen:
      return "Open";
    case Broken::kSource:
      return "Source";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(Rules,
                         BrokenProtocolTest,
                         testing::Values(Broken::kFence,
                                         Broken::kEmpty,
                                         Broken::kRewind,
                                         Broken::kOpen,
                                         Broken::kSource),
                         RuleName);

}  // namespace
}  // namespace specwire::simulation
