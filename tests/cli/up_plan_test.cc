// SPDX-License-Identifier: Apache-2.0
#include "cli/up_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace specwire::cli {
namespace {

using testing::HasSubstr;

UpOptions Options() {
  UpOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.model = "m.gguf";
  return options;
}

// The value behind a flag, or "absent".
std::string Value(const ChildSpec& spec, const std::string& flag) {
  const std::vector<std::string>& arguments = spec.arguments;
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  return found == arguments.end() || found + 1 == arguments.end()
             ? "absent"
             : *(found + 1);
}

TEST(UpPlanTest, StartsOneOfEachByDefault) {
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(Options(), "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->coordinator.program, "/bin/coordinator");
  EXPECT_EQ(Value(plan->coordinator, "--listen"), "127.0.0.1:0");
  EXPECT_EQ(Value(plan->coordinator, "--http"), "127.0.0.1:0");
  EXPECT_TRUE(plan->has_http);
  ASSERT_EQ(plan->nodes.size(), 2u);
  EXPECT_EQ(plan->nodes[0].program, "/bin/verifier_node");
  EXPECT_EQ(Value(plan->nodes[0], "--model"), "m.gguf");
  EXPECT_EQ(Value(plan->nodes[0], "--engine"), "reference");
  EXPECT_EQ(Value(plan->nodes[0], "--threads"), "1");
  EXPECT_EQ(Value(plan->nodes[0], "--metrics"), "absent");
  EXPECT_EQ(plan->nodes[1].program, "/bin/draft_node");
  EXPECT_EQ(Value(plan->nodes[1], "--drafter"), "ngram");
  EXPECT_EQ(Value(plan->nodes[1], "--draft_model"), "absent");
}

TEST(UpPlanTest, NamesNodesApart) {
  UpOptions options = Options();
  options.num_verifiers = 2;
  options.num_draft_nodes = 2;
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> names;
  for (const ChildSpec& node : plan->nodes) {
    names.push_back(node.name);
    EXPECT_EQ(Value(node, "--name"), node.name);
  }
  EXPECT_THAT(
      names,
      testing::ElementsAre("verifier-0", "verifier-1", "draft-0", "draft-1"));
}

TEST(UpPlanTest, StartsNoDraftNodeForNone) {
  UpOptions options = Options();
  options.drafter = "none";
  options.http = "none";
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->nodes.size(), 1u);
  EXPECT_FALSE(plan->has_http);
  EXPECT_EQ(Value(plan->coordinator, "--http"), "absent");
}

TEST(UpPlanTest, GivesTheOracleTheTargetsFile) {
  UpOptions options = Options();
  options.drafter = "oracle";
  options.kv_cache_mib = 32;
  options.max_model_len = 100;
  absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Value(plan->nodes[1], "--draft_model"), "m.gguf");
  EXPECT_EQ(Value(plan->nodes[0], "--kv_cache_mib"), "32");
  EXPECT_EQ(Value(plan->nodes[1], "--kv_cache_mib"), "32");
  EXPECT_EQ(Value(plan->nodes[0], "--max_model_len"), "100");
  options.draft_model = "d.gguf";
  plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Value(plan->nodes[1], "--draft_model"), "d.gguf");
}

TEST(UpPlanTest, LetsEachNodeChooseAMetricsPort) {
  UpOptions options = Options();
  options.metrics = "127.0.0.1:0";
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Value(plan->nodes[0], "--metrics"), "127.0.0.1:0");
  EXPECT_EQ(Value(plan->nodes[1], "--metrics"), "127.0.0.1:0");
  options.metrics = "127.0.0.1:65535";
  EXPECT_THAT(std::string(MakeUpPlan(options, "/bin").status().message()),
              HasSubstr("--metrics"));
}

TEST(UpPlanTest, RefusesMalformedAddresses) {
  UpOptions options = Options();
  options.listen = "nonsense";
  absl::Status status = MakeUpPlan(options, "/bin").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--listen"));
  options = Options();
  options.http = "127.0.0.1:70000";
  status = MakeUpPlan(options, "/bin").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--http"));
}

TEST(UpPlanTest, SaysWhereToGetAModel) {
  const absl::Status status = FindDefaultModel("/nonexistent").status();
  // The test may run in a folder that has the model.
  if (!status.ok()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("scripts/setup.sh"));
  }
}

TEST(UpPlanTest, ReadsWhatTheCoordinatorTells) {
  CoordinatorAddresses told = ParseCoordinatorOutput(
      "listening on 127.0.0.1:7070\nhttp on 127.0.0.1:8");
  EXPECT_EQ(told.rpc, "127.0.0.1:7070");
  EXPECT_EQ(told.http, "");
  told = ParseCoordinatorOutput("listening on [::1]:7\nhttp on h:80\n");
  EXPECT_EQ(told.rpc, "[::1]:7");
  EXPECT_EQ(told.http, "h:80");
  EXPECT_EQ(ParseCoordinatorOutput("").rpc, "");
}

TEST(UpPlanTest, DialsTheLoopbackForAWildcard) {
  EXPECT_EQ(DialAddress("0.0.0.0:70"), "127.0.0.1:70");
  EXPECT_EQ(DialAddress("[::]:70"), "[::1]:70");
  EXPECT_EQ(DialAddress("10.0.0.1:70"), "10.0.0.1:70");
}

}  // namespace
}  // namespace specwire::cli
