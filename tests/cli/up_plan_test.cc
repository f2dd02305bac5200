// SPDX-License-Identifier: Apache-2.0
#include "cli/up_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/common/model/tiny_file.h"
#include "tests/testing/certificates.h"

namespace specwire::cli {
namespace {

using testing::AllOf;
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
  EXPECT_EQ(Value(plan->nodes[0], "--engine"), kDefaultEngine);
  EXPECT_EQ(Value(plan->nodes[0], "--threads"), "1");
  EXPECT_EQ(Value(plan->nodes[0], "--metrics"), "absent");
  EXPECT_EQ(plan->nodes[1].program, "/bin/draft_node");
  // There is no draft model for m.gguf.
  EXPECT_EQ(Value(plan->nodes[1], "--drafter"), "suffix");
  EXPECT_EQ(Value(plan->nodes[1], "--draft_model"), "absent");
  EXPECT_EQ(Value(plan->nodes[1], "--engine"), "absent");
  EXPECT_EQ(Value(plan->nodes[1], "--threads"), "absent");
}

TEST(UpPlanTest, HandsOnWhatTheModelIsCalledAndWhatRepliesTell) {
  UpOptions options = Options();
  absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Value(plan->nodes[0], "--served_model_name"), "absent");
  EXPECT_EQ(Value(plan->coordinator, "--per_request_spec_decode_metrics"),
            "absent");
  options.num_verifiers = 2;
  options.served_model_name = "smol";
  options.per_request_spec_decode_metrics = "detailed";
  plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->nodes.size(), 3u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Value(plan->nodes[i], "--served_model_name"), "smol");
  }
  EXPECT_EQ(Value(plan->nodes[2], "--served_model_name"), "absent");
  EXPECT_EQ(Value(plan->coordinator, "--per_request_spec_decode_metrics"),
            "detailed");
}

TEST(UpPlanTest, AllProcessesShareOneCertificate) {
  TestAuthority authority;
  UpOptions options = Options();
  options.tls = authority.Issue(
      "specwire-coordinator,specwire-node,specwire-operator", "all");
  options.api_keys = "keys";
  options.operator_keys = "operators";
  options.http_tls = true;
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tls.cert, options.tls.cert);
  EXPECT_EQ(Value(plan->coordinator, "--api_keys"), "keys");
  EXPECT_EQ(Value(plan->coordinator, "--operator_keys"), "operators");
  EXPECT_THAT(plan->coordinator.arguments, testing::Contains("--http_tls"));
  for (const ChildSpec& spec :
       {plan->coordinator, plan->nodes[0], plan->nodes[1]}) {
    EXPECT_EQ(Value(spec, "--tls_cert"), options.tls.cert);
    EXPECT_EQ(Value(spec, "--tls_key"), options.tls.key);
    EXPECT_EQ(Value(spec, "--tls_ca"), options.tls.ca);
  }
  EXPECT_EQ(Value(plan->nodes[0], "--api_keys"), "absent");

  options.tls = authority.Issue("specwire-coordinator", "one");
  EXPECT_THAT(std::string(MakeUpPlan(options, "/bin").status().message()),
              HasSubstr("specwire-node"));
}

TEST(UpPlanTest, OthersAreLetInOnPurposeOnly) {
  UpOptions options = Options();
  options.listen = "0.0.0.0:0";
  EXPECT_THAT(std::string(MakeUpPlan(options, "/bin").status().message()),
              HasSubstr("--allow_insecure"));
  options.allow_insecure = true;
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->coordinator.arguments,
              testing::Contains("--allow_insecure"));
}

// A cluster without models: Options() but for what synthetic nodes refuse.
UpOptions SyntheticOptions() {
  UpOptions options = Options();
  options.model.clear();
  options.engine = "synthetic";
  options.drafter = "synthetic";
  options.allow_synthetic = true;
  return options;
}

TEST(UpPlanTest, SyntheticNodesNeedNoModel) {
  UpOptions options = SyntheticOptions();
  options.synthetic_step_us = 500;
  options.synthetic_acceptance = "0.9,0.5";
  options.synthetic_vocab = 300;
  options.max_num_sequences = 1000;
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->nodes.size(), 2u);
  const ChildSpec& verifier = plan->nodes[0];
  EXPECT_EQ(Value(verifier, "--engine"), "synthetic");
  EXPECT_EQ(Value(verifier, "--model"), "absent");
  EXPECT_EQ(Value(verifier, "--synthetic_step_us"), "500");
  EXPECT_EQ(Value(verifier, "--synthetic_row_us"), "absent");
  const ChildSpec& drafter = plan->nodes[1];
  EXPECT_EQ(Value(drafter, "--drafter"), "synthetic");
  EXPECT_EQ(Value(drafter, "--synthetic_acceptance"), "0.9,0.5");
  for (const ChildSpec& node : plan->nodes) {
    EXPECT_EQ(Value(node, "--synthetic_vocab"), "300");
    EXPECT_EQ(Value(node, "--max_num_sequences"), "1000");
    EXPECT_EQ(
        std::count(
            node.arguments.begin(), node.arguments.end(), "--allow_synthetic"),
        1);
  }
}

TEST(UpPlanTest, SyntheticNodesMustBeAllowedAndFit) {
  const auto refused = [](auto change) {
    UpOptions options = SyntheticOptions();
    change(&options);
    return absl::IsInvalidArgument(MakeUpPlan(options, "/bin").status());
  };
  EXPECT_FALSE(refused([](UpOptions*) {}));
  EXPECT_FALSE(refused([](UpOptions* o) { o->drafter = "ngram"; }));
  // Others have no use for its acceptance.
  EXPECT_TRUE(refused([](UpOptions* o) {
    o->drafter = "ngram";
    o->synthetic_acceptance = "0.5";
  }));
  EXPECT_TRUE(refused([](UpOptions* o) { o->allow_synthetic = false; }));
  EXPECT_TRUE(refused([](UpOptions* o) { o->drafter = "oracle"; }));
  EXPECT_TRUE(refused([](UpOptions* o) { o->model = "m.gguf"; }));
  // The drafter alone would draft for nobody.
  EXPECT_TRUE(refused([](UpOptions* o) {
    o->engine = kDefaultEngine;
    o->model = "m.gguf";
  }));
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
  EXPECT_EQ(Value(plan->nodes[0], "--local_drafter"), "none");
}

TEST(UpPlanTest, LeavesTheLocalDrafterToTheVerifiersOtherwise) {
  const absl::StatusOr<UpPlan> plan = MakeUpPlan(Options(), "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const ChildSpec& node : plan->nodes) {
    EXPECT_EQ(Value(node, "--local_drafter"), "absent");
  }
}

TEST(UpPlanTest, LetsOnlyVerifiersInspectAndOnlyIfAsked) {
  const auto inspects = [](const ChildSpec& node) {
    return std::count(
        node.arguments.begin(), node.arguments.end(), "--inspect");
  };
  UpOptions options = Options();
  for (const bool asked : {false, true}) {
    options.inspect = asked;
    const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const ChildSpec& node : plan->nodes) {
      const bool verifier = node.program == "/bin/verifier_node";
      EXPECT_EQ(inspects(node), asked && verifier ? 1 : 0) << node.name;
    }
  }
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

TEST(UpPlanTest, GivesDraftersWithAModelTheEngineAskedFor) {
  for (const char* engine : kEngineNames) {
    UpOptions options = Options();
    options.engine = engine;
    options.drafter = kModelDrafter;
    const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Value(plan->nodes[0], "--engine"), engine);
    EXPECT_EQ(Value(plan->nodes[1], "--engine"), engine);
    EXPECT_EQ(Value(plan->nodes[1], "--draft_layers"), "4");
  }
}

TEST(UpPlanTest, PrefersTheProjectsOwnDraftModelWhereItFits) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "up_plan_draft";
  const fs::path file =
      folder / "draft_node/models/SmolLM2-135M-Instruct-draft.gguf";
  fs::create_directories(file.parent_path());
  fs::copy_file(
      SPECWIRE_TINY_DRAFT_MODEL, file, fs::copy_options::overwrite_existing);
  // What lies where the test was started is found before what belongs to the
  // program.
  fs::current_path(testing::TempDir());
  UpOptions options = Options();
  options.model = SPECWIRE_TINY_MODEL;
  const auto draft_node = [&] {
    const auto plan = MakeUpPlan(options, (folder / "build/bin").string());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->nodes.at(1);
  };
  options.drafter = kModelDrafter;
  EXPECT_EQ(Value(draft_node(), "--draft_model"), file.string());
  EXPECT_EQ(Value(draft_node(), "--draft_layers"), "absent");
  // Layers are the target's, unless a file is named.
  options.draft_layers = 2;
  EXPECT_EQ(Value(draft_node(), "--draft_model"), SPECWIRE_TINY_MODEL);
  EXPECT_EQ(Value(draft_node(), "--draft_layers"), "2");
  options.draft_model = "d.gguf";
  EXPECT_EQ(Value(draft_node(), "--draft_model"), "d.gguf");
  // So has the drafter that is the default.
  options.draft_layers.reset();
  options.draft_model.clear();
  options.drafter = kHybridDrafter;
  EXPECT_EQ(Value(draft_node(), "--drafter"), "hybrid");
  EXPECT_EQ(Value(draft_node(), "--draft_model"), file.string());
  EXPECT_EQ(Value(draft_node(), "--threads"), "1");
  // And so have verifiers then.
  const auto verifier = [&] {
    const auto plan = MakeUpPlan(options, (folder / "build/bin").string());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->nodes.at(0);
  };
  EXPECT_EQ(Value(verifier(), "--local_drafter"), "hybrid");
  EXPECT_EQ(Value(verifier(), "--local_draft_model"), file.string());
  options.draft_layers = 2;
  EXPECT_EQ(Value(verifier(), "--local_drafter"), "absent");
  EXPECT_EQ(Value(draft_node(), "--drafter"), "hybrid");
  EXPECT_EQ(Value(draft_node(), "--draft_model"), SPECWIRE_TINY_MODEL);
  // It is not made for every target, and not for drafters that must be right.
  options.draft_layers.reset();
  options.draft_model.clear();
  options.drafter = kOracleDrafter;
  EXPECT_EQ(Value(draft_node(), "--draft_model"), SPECWIRE_TINY_MODEL);
  options.drafter = kModelDrafter;
  options.model = "m.gguf";
  EXPECT_EQ(Value(draft_node(), "--draft_model"), "m.gguf");
  EXPECT_EQ(Value(draft_node(), "--draft_layers"), "4");
  fs::remove_all(folder);
}

TEST(UpPlanTest, RefusesADraftModelWithAnotherVocabulary) {
  TinyFile tiny;
  tiny.tokens[1] = "<|other|>";
  UpOptions options = Options();
  options.model = SPECWIRE_TINY_MODEL;
  options.draft_model = tiny.Write("up_plan_other");
  for (const char* drafter : {kModelDrafter, kHybridDrafter, kOracleDrafter}) {
    options.drafter = drafter;
    const absl::Status status = MakeUpPlan(options, "/bin").status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--draft_model: "),
                      HasSubstr("cannot draft for"),
                      HasSubstr("<|other|>")));
  }
  // The draft node says that it has no use for one.
  options.drafter = "suffix";
  EXPECT_TRUE(MakeUpPlan(options, "/bin").ok());
}

TEST(UpPlanTest, AnyModelOfTheSameVocabularyMayDraft) {
  TinyFile tiny;
  tiny.strings["tokenizer.chat_template"] = "{{ 1 }}";
  UpOptions options = Options();
  options.model = SPECWIRE_TINY_MODEL;
  options.draft_model = tiny.Write("up_plan_small");
  for (const char* drafter : {kModelDrafter, kHybridDrafter}) {
    options.drafter = drafter;
    const auto plan = MakeUpPlan(options, "/bin");
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Value(plan->nodes.at(1), "--drafter"), drafter);
    EXPECT_EQ(Value(plan->nodes.at(1), "--draft_model"), options.draft_model);
    EXPECT_EQ(Value(plan->nodes.at(1), "--draft_layers"), "absent");
  }
}

struct Division {
  int processors;
  int verifiers;
  const char* drafter;
  int draft_nodes;
  int verifier_threads;
  int draft_threads;
  const char* text;
};

class UpPlanThreadsTest : public testing::TestWithParam<Division> {};

TEST_P(UpPlanThreadsTest, DividesTheProcessors) {
  const Division& division = GetParam();
  UpOptions options = Options();
  options.num_processors = division.processors;
  options.num_verifiers = division.verifiers;
  options.drafter = division.drafter;
  options.num_draft_nodes = division.draft_nodes;
  const ThreadShares shares = ShareThreads(options);
  EXPECT_EQ(shares.verifier, division.verifier_threads);
  EXPECT_EQ(shares.draft_node, division.draft_threads);
  absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->threads, division.text);
  for (const ChildSpec& node : plan->nodes) {
    const bool verifies = node.program == "/bin/verifier_node";
    const int threads = verifies ? shares.verifier : shares.draft_node;
    EXPECT_EQ(Value(node, "--threads"),
              threads == 0 ? "absent" : std::to_string(threads));
  }
  // What was asked for holds for verifiers alone.
  options.num_threads = 7;
  EXPECT_EQ(ShareThreads(options).verifier, 7);
  EXPECT_EQ(ShareThreads(options).draft_node, division.draft_threads);
}

INSTANTIATE_TEST_SUITE_P(
    Machines,
    UpPlanThreadsTest,
    testing::Values(
        Division{2,
                 1,
                 "ngram",
                 1,
                 2,
                 0,
                 "threads: verifier 2 of 2 processors; the drafter ngram needs "
                 "none"},
        Division{2,
                 1,
                 "model",
                 1,
                 2,
                 1,
                 "threads: verifier 2, draft node 1 of 2 processors"},
        Division{2, 1, "none", 1, 2, 0, "threads: verifier 2 of 2 processors"},
        Division{
            2, 1, "oracle", 0, 2, 1, "threads: verifier 2 of 2 processors"},
        Division{1,
                 1,
                 "model",
                 1,
                 1,
                 1,
                 "threads: verifier 1, draft node 1 of 1 processor"},
        Division{8,
                 2,
                 "adversarial",
                 3,
                 4,
                 1,
                 "threads: 2 verifiers 4 each, 3 draft nodes 1 each of 8 "
                 "processors"},
        Division{1000,
                 1,
                 "none",
                 1,
                 256,
                 0,
                 "threads: verifier 256 of 1000 "
                 "processors"}));

TEST(UpPlanTest, AllProcessesRepeatMetricsForVllmWhenAsked) {
  UpOptions options = Options();
  for (const bool asked : {false, true}) {
    options.metrics_vllm_aliases = asked;
    const absl::StatusOr<UpPlan> plan = MakeUpPlan(options, "/bin");
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<ChildSpec> specs = plan->nodes;
    specs.push_back(plan->coordinator);
    for (const ChildSpec& spec : specs) {
      EXPECT_EQ(std::count(spec.arguments.begin(),
                           spec.arguments.end(),
                           "--metrics_vllm_aliases"),
                asked ? 1 : 0)
          << spec.name;
    }
  }
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
