// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Node* AddNode(Reading* reading,
                  const std::string& name,
                  v1::NodeRole role,
                  v1::NodeState state) {
  v1::Node* const node = reading->nodes.add_nodes();
  node->mutable_registration()->set_name(name);
  node->mutable_registration()->set_role(role);
  node->set_state(state);
  node->mutable_load()->set_num_sequences(7);
  node->mutable_load()->set_num_waiting(2);
  node->mutable_load()->set_kv_blocks_used(25);
  node->mutable_load()->set_kv_blocks_total(100);
  node->mutable_load()->set_kv_blocks_cached(60);
  return node;
}

// A reading after so many seconds, in each of which 100 tokens were generated,
// 60 draft tokens verified and 30 of them accepted.
Reading After(int seconds) {
  Reading reading;
  reading.time = absl::UnixEpoch() + absl::Seconds(seconds);
  AddNode(&reading, "draft-1", v1::NODE_ROLE_DRAFT, v1::NODE_STATE_SERVING)
      ->set_drafter("hybrid");
  AddNode(
      &reading, "verifier-1", v1::NODE_ROLE_VERIFIER, v1::NODE_STATE_SERVING)
      ->mutable_model()
      ->set_name("smol");
  AddNode(&reading, "old\x1b[2J", v1::NODE_ROLE_VERIFIER, v1::NODE_STATE_GONE)
      ->set_reason("left\n");
  v1::GetStatsResponse& stats = reading.stats;
  stats.set_uptime_ms(1000 * seconds);
  stats.set_num_requests_running(3);
  stats.set_num_requests_waiting(1);
  stats.set_num_generation_tokens(100 * seconds);
  stats.set_num_prompt_tokens(10 * seconds);
  v1::NamedCount* done = stats.add_requests();
  done->set_name("stop");
  done->set_count(seconds);
  stats.mutable_total()->set_num_passes(40 * seconds);
  stats.mutable_total()->set_num_draft_tokens(60 * seconds);
  stats.mutable_total()->set_num_accepted_draft_tokens(30 * seconds);
  stats.mutable_total()->set_mean_acceptance_length(2.5);
  v1::PairStats* const pair = stats.add_pairs();
  pair->set_draft_node("draft-1");
  pair->set_verifier_node("verifier-1");
  *pair->mutable_stats() = stats.total();
  pair->mutable_stats()->set_num_drafted_tokens(80 * seconds);
  return reading;
}

std::string Text(const Reading& now, const Reading* before) {
  return absl::StrJoin(FrameLines(now, before), "\n");
}

TEST(TopViewTest, RatesAreThoseBetweenTwoReadings) {
  const Reading before = After(10);
  Reading now = After(14);
  // All lately was accepted.
  now.stats.mutable_pairs(0)->mutable_stats()->set_num_accepted_draft_tokens(
      300 + 240);
  const std::string text = Text(now, &before);
  EXPECT_THAT(
      text,
      HasSubstr("3 running, 1 waiting; 14 done (1.0/s), 0 failed (0.0/s)"));
  EXPECT_THAT(
      text,
      HasSubstr("100.0/s generated, 10.0/s of prompts; 40.0/s verify passes"));
  EXPECT_THAT(text,
              HasSubstr("50.0 % accepted lately, 50.0 % in all; mean length "
                        "2.50"));
  EXPECT_THAT(text,
              HasSubstr("hybrid   draft-1  verifier-1  80.0/s   60.0/s    "
                        "100.0 %  64.3 %  2.50"));
}

TEST(TopViewTest, RequestsThatWereGivenUpHaveNotFailed) {
  const auto add = [](Reading* reading, const std::string& code, int count) {
    v1::NamedCount* const failures = reading->stats.add_failures();
    failures->set_name(code);
    failures->set_count(count);
  };
  Reading before = After(10);
  add(&before, "CANCELLED", 1);
  Reading now = After(14);
  add(&now, "UNAVAILABLE", 1);
  add(&now, "CANCELLED", 3);
  add(&now, "INTERNAL", 3);
  EXPECT_THAT(Text(now, &before),
              HasSubstr(", 4 failed (1.0/s), 3 cancelled (0.5/s)"));
}

TEST(TopViewTest, WithoutAnEarlierReadingThereAreNoRates) {
  const Reading now = After(10);
  for (const Reading* before :
       std::initializer_list<const Reading*>{nullptr, &now}) {
    const std::string text = Text(now, before);
    EXPECT_THAT(text, HasSubstr("- generated"));
    EXPECT_THAT(text, HasSubstr("- accepted lately, 50.0 % in all"));
    EXPECT_THAT(text, Not(HasSubstr("/s")));
  }
}

TEST(TopViewTest, ARestartedCoordinatorCountsAnew) {
  const Reading before = After(100);
  const Reading now = [] {
    Reading reading = After(2);
    reading.time = absl::UnixEpoch() + absl::Seconds(102);
    return reading;
  }();
  EXPECT_TRUE(WasRestarted(before, now));
  EXPECT_FALSE(WasRestarted(now, before));
  EXPECT_THAT(Text(now, &before), Not(HasSubstr("/s")));
}

TEST(TopViewTest, ShowsNodesAndNoLoadOfThoseThatLeft) {
  const std::string text = Text(After(10), nullptr);
  EXPECT_THAT(
      text,
      HasSubstr("verifier-1  verifier  serving  7    2     25.0 %  60.0 %  "
                "smol"));
  EXPECT_THAT(text, HasSubstr("gone     -    -     -       -       "));
  // Whatever is in a name is shown, not done.
  EXPECT_THAT(text, HasSubstr("old\\x1b[2J"));
  EXPECT_THAT(text, HasSubstr("left\\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(TopViewTest, AnEmptyClusterIsSaidToBeEmpty) {
  const std::string text = Text(Reading(), nullptr);
  EXPECT_THAT(text, HasSubstr("NODES: none"));
  EXPECT_THAT(text, HasSubstr("DRAFTS: none"));
  EXPECT_THAT(text, HasSubstr("- accepted lately, - in all"));
}

TEST(TopViewTest, FitsTheScreen) {
  EXPECT_THAT(Fit({"abcdef", "xy"}, 3, 5), ElementsAre("abc", "xy"));
  EXPECT_THAT(Fit({"1", "2", "3", "4"}, 20, 3),
              ElementsAre("1", "2", "... 2 more lines"));
  EXPECT_THAT(Fit({"1", "2", "3", "4"}, 1, 1), ElementsAre("."));
  EXPECT_THAT(Fit({"abcdef"}, 0, 0), ElementsAre("abcdef"));
}

}  // namespace
}  // namespace specwire::cli
