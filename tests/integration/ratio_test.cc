// SPDX-License-Identifier: Apache-2.0

// The ratio rule over real processes: every drafter serves it, greedy text is
// the same, what it cannot keep is refused, and losses do not stop it.

#include <signal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxTokens = 40;
const char* const kDrafters[] = {
    "ngram", "model", "oracle", "adversarial", "random", "local", "none"};

constexpr SamplingSetting kSettings[] = {
    {"T=0.7", 0.7f},
    {"T=1 top_k=40 top_p=0.95", 1, 40, 0.95f},
    {"T=0.7 top_p=0.95, processors", 0.7f, 0, 0.95f, true},
};

v1::GenerateRequest RatioRequest(const SamplingSetting& setting,
                                 const std::string& drafter,
                                 int max_tokens = kMaxTokens) {
  v1::GenerateRequest request =
      SeededRequest(RepeatingPrompt(), setting, max_tokens);
  request.mutable_speculation()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
  request.mutable_speculation()->set_drafter(drafter);
  return request;
}

class RatioTest : public testing::Test {
 protected:
  void SetUp() override {
    cluster_ = std::make_unique<ProcessCluster>(SPECWIRE_BIN_DIR, "suffix");
    AddVerifier("verifier-0");
  }

  void AddVerifier(const std::string& name) {
    cluster_->AddVerifier(name, SPECWIRE_TINY_MODEL);
    serving_.insert(name);
    ASSERT_TRUE(cluster_->WaitServing(serving_));
  }
  void AddDrafter(const std::string& name,
                  const std::string& drafter,
                  const std::vector<std::string>& flags = {}) {
    cluster_->AddDraftNode(name, drafter, flags);
    serving_.insert(name);
    ASSERT_TRUE(cluster_->WaitServing(serving_));
  }
  void AddAllDrafters() {
    const std::string model =
        absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL);
    AddDrafter("ngram", "ngram");
    AddDrafter("random", "random");
    AddDrafter("model", "model", {model, "--draft_layers=1"});
    AddDrafter("oracle", "oracle", {model});
    AddDrafter("adversarial", "adversarial", {model});
  }

  GenerateResult Check(const v1::GenerateRequest& request) {
    GenerateResult result = cluster_->Generate(request);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(static_cast<int>(result.token_ids.size()),
              request.stop().max_tokens());
    EXPECT_EQ(result.finished.speculation().rule(), v1::ACCEPTANCE_RULE_RATIO);
    return result;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::set<std::string> serving_;
};

TEST_F(RatioTest, EveryDrafterServesIt) {
  AddAllDrafters();
  for (const SamplingSetting& setting : kSettings) {
    for (const char* drafter : kDrafters) {
      SCOPED_TRACE(absl::StrCat(setting.name, ", ", drafter));
      const v1::GenerateRequest request = RatioRequest(setting, drafter);
      const GenerateResult result = Check(request);
      const v1::Speculation& told = result.started.speculation();
      EXPECT_EQ(told.rule(), v1::ACCEPTANCE_RULE_RATIO);
      EXPECT_EQ(told.patience_us(), kLockStep);
      EXPECT_EQ(told.window(), told.max_draft_tokens());
      const v1::SpeculationStats& stats = result.finished.speculation();
      if (std::string(drafter) == "none") {
        EXPECT_EQ(stats.num_drafted_tokens(), 0);
      } else if (std::string(drafter) != "ngram" &&
                 std::string(drafter) != "local") {
        EXPECT_GT(stats.num_draft_tokens(), 0);
      }
      if (std::string(drafter) == "oracle") {
        // q is p.
        EXPECT_EQ(stats.num_accepted_draft_tokens(), stats.num_draft_tokens());
      }
      // One seed, one drafter: one text.
      EXPECT_EQ(Check(request).token_ids, result.token_ids);
    }
  }
}

TEST_F(RatioTest, GreedyTextIsThatOfPlainDecoding) {
  AddAllDrafters();
  for (const bool processors : {false, true}) {
    const SamplingSetting setting = {"greedy", 0, 0, 1, processors};
    const GenerateResult plain = cluster_->Generate(
        Plain(SeededRequest(RepeatingPrompt(), setting, kMaxTokens)));
    ASSERT_TRUE(plain.status.ok()) << plain.status;
    for (const char* drafter : kDrafters) {
      SCOPED_TRACE(drafter);
      EXPECT_EQ(Check(RatioRequest(setting, drafter)).token_ids,
                plain.token_ids);
    }
  }
}

TEST_F(RatioTest, WhatItCannotKeepIsRefusedByName) {
  v1::GenerateRequest request = RatioRequest(kSettings[0], "");
  request.mutable_speculation()->set_patience_us(5000);
  GenerateResult result = cluster_->Generate(request);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("speculation.patience_us"));
  request = RatioRequest(kSettings[0], "");
  request.mutable_speculation()->set_window(64);
  result = cluster_->Generate(request);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("speculation.window"));
}

// Proposals without q, or with one that cannot be: the drafter is replaced.
TEST_F(RatioTest, ADrafterWithoutDistributionsIsReplaced) {
  for (const char* mode : {"poison", "bad_q"}) {
    SCOPED_TRACE(mode);
    const std::string name = absl::StrCat("rogue-", mode);
    cluster_->AddNode(name,
                      {TestProgram("rogue_draft_node"),
                       absl::StrCat("--mode=", mode),
                       "--drafter=model"});
    EXPECT_EQ(cluster_->ReadLine(name).substr(0, 12), "listening on");
    serving_.insert(name);
    ASSERT_TRUE(cluster_->WaitServing(serving_));
    const GenerateResult result = Check(RatioRequest(kSettings[0], "model"));
    EXPECT_EQ(cluster_->ReadLine(name), "open");
    // Nobody else serves that: plain.
    EXPECT_EQ(result.finished.speculation().num_draft_tokens(), 0);
    EXPECT_GT(result.finished.speculation().num_stale_tokens(), 0);
  }
  AddDrafter("honest",
             "oracle",
             {absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL)});
  EXPECT_GT(Check(RatioRequest(kSettings[0], ""))
                .finished.speculation()
                .num_accepted_draft_tokens(),
            0);
}

// A silent drafter is waited for once, for the deadline, then it goes on plain.
TEST_F(RatioTest, ADrafterThatFallsSilentIsTakenForLost) {
  AddDrafter("model",
             "model",
             {absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL),
              "--draft_layers=1"});
  bool stopped = false;
  const absl::Time start = absl::Now();
  const GenerateResult result = cluster_->Generate(
      RatioRequest(kSettings[0], "", 200), [&](const v1::GenerateDelta& delta) {
        if (!stopped && delta.first_index() >= 20) {
          cluster_->Signal("model", SIGSTOP);
          stopped = true;
        }
        return true;
      });
  cluster_->Signal("model", SIGCONT);
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.token_ids.size(), 200u);
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

// Verifiers and drafters that are killed in mid-text.
TEST_F(RatioTest, LossesDoNotStopIt) {
  AddVerifier("verifier-1");
  const std::string model = absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL);
  AddDrafter("drafter-0", "model", {model, "--draft_layers=1"});
  AddDrafter("drafter-1", "oracle", {model});
  const v1::GenerateRequest request = RatioRequest(kSettings[1], "", 200);
  int kills = 0;
  const GenerateResult result =
      cluster_->Generate(request, [&](const v1::GenerateDelta& delta) {
        if (kills == 0 && delta.first_index() >= 30) {
          cluster_->Signal("drafter-0", SIGKILL);
          ++kills;
        } else if (kills == 1 && delta.first_index() >= 80) {
          cluster_->Signal("verifier-0", SIGKILL);
          ++kills;
        }
        return true;
      });
  EXPECT_EQ(kills, 2);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.token_ids.size(), 200u);
  EXPECT_GT(result.finished.speculation().num_accepted_draft_tokens(), 0);
}

}  // namespace
}  // namespace specwire
