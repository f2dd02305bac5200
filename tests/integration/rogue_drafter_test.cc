// SPDX-License-Identifier: Apache-2.0

// Drafters that break the rules, in real processes: the text stays, nothing
// hangs, memory stays bounded, and another drafter takes over.

#include <signal.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

// More than the drafter deadline; a hang would take for ever.
constexpr absl::Duration kBound = absl::Seconds(15);
// Long enough for another drafter to take over in time.
constexpr int kMaxTokens = 200;
constexpr double kGrowthMib = 48;

const SamplingSetting kSettings[] = {{"greedy", 0}, {"T=0.7", 0.7f, 0, 0.95f}};

class RogueDrafterTest : public testing::Test {
 protected:
  void SetUp() override {
    cluster_ = std::make_unique<ProcessCluster>(SPECWIRE_BIN_DIR);
    cluster_->AddVerifier("verifier-0", SPECWIRE_TINY_MODEL);
    serving_.insert("verifier-0");
    ASSERT_TRUE(cluster_->WaitServing(serving_));
    for (const SamplingSetting& setting : kSettings) {
      const GenerateResult plain = cluster_->Generate(
          Plain(SeededRequest(RepeatingPrompt(), setting, kMaxTokens)));
      ASSERT_TRUE(plain.status.ok()) << plain.status;
      plain_.push_back(plain.token_ids);
    }
  }

  // Serves as drafter "ngram", so that a request which names one may get it.
  void AddRogue(const std::string& mode) {
    cluster_->AddNode("rogue",
                      {TestProgram("rogue_draft_node"),
                       absl::StrCat("--mode=", mode),
                       "--drafter=ngram"});
    EXPECT_EQ(cluster_->ReadLine("rogue").substr(0, 12), "listening on");
    serving_.insert("rogue");
    ASSERT_TRUE(cluster_->WaitServing(serving_));
  }

  void AddHonest(const std::string& drafter,
                 const std::vector<std::string>& flags = {}) {
    cluster_->AddDraftNode("honest", drafter, flags);
    serving_.insert("honest");
    ASSERT_TRUE(cluster_->WaitServing(serving_));
  }

  // The result of setting `i`, checked.
  GenerateResult Check(size_t i, int64_t patience) {
    SCOPED_TRACE(absl::StrCat(kSettings[i].name, ", patience ", patience));
    v1::GenerateRequest request =
        SeededRequest(RepeatingPrompt(), kSettings[i], kMaxTokens);
    request.mutable_speculation()->set_patience_us(patience);
    const absl::Time start = absl::Now();
    GenerateResult result = cluster_->Generate(request);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_LT(absl::Now() - start, kBound);
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.token_ids, plain_[i]);
    return result;
  }

  // Every setting with every patience; returns accepted draft tokens.
  int64_t CheckAll() {
    int64_t accepted = 0;
    for (size_t i = 0; i < std::size(kSettings); ++i) {
      for (const int64_t patience : {int64_t{0}, int64_t{5000}, kLockStep}) {
        accepted += Check(i, patience)
                        .finished.speculation()
                        .num_accepted_draft_tokens();
      }
    }
    return accepted;
  }

  // The rogue alone, then with an honest drafter that joined later. Sequences
  // go to the rogue first: it is older.
  void CheckMode(const std::string& mode, bool is_dropped) {
    AddRogue(mode);
    // What a first request loads is no growth.
    Check(0, 5000);
    EXPECT_EQ(cluster_->ReadLine("rogue"), "open");
    const double coordinator = cluster_->ResidentMib("coordinator");
    const double verifier = cluster_->ResidentMib("verifier-0");
    CheckAll();
    AddHonest("oracle", {absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL)});
    const int64_t accepted = CheckAll();
    if (is_dropped) {
      EXPECT_GT(accepted, 0);
    }
    EXPECT_LT(cluster_->ResidentMib("coordinator"), coordinator + kGrowthMib);
    EXPECT_LT(cluster_->ResidentMib("verifier-0"), verifier + kGrowthMib);
    EXPECT_TRUE(cluster_->WaitServing(serving_));
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::set<std::string> serving_;
  std::vector<std::vector<int32_t>> plain_;
};

TEST_F(RogueDrafterTest, Poison) { CheckMode("poison", false); }
TEST_F(RogueDrafterTest, Silent) { CheckMode("silent", true); }
TEST_F(RogueDrafterTest, Flood) { CheckMode("flood", true); }
TEST_F(RogueDrafterTest, Repetition) { CheckMode("repeat", false); }
TEST_F(RogueDrafterTest, FarAhead) { CheckMode("far_ahead", true); }
TEST_F(RogueDrafterTest, IdsOutOfRange) { CheckMode("range", true); }
TEST_F(RogueDrafterTest, NegativePositions) { CheckMode("negative", true); }
TEST_F(RogueDrafterTest, LiesAboutCommits) { CheckMode("liar", true); }

// A flood grows nothing however long it lasts.
TEST_F(RogueDrafterTest, FloodsOfManyStreams) {
  AddRogue("repeat");
  Check(0, 5000);
  const double coordinator = cluster_->ResidentMib("coordinator");
  const double verifier = cluster_->ResidentMib("verifier-0");
  InParallel(FullTest() ? 64 : 16, 4, [&](int i) {
    Check(static_cast<size_t>(i % 2), i % 3 == 0 ? kLockStep : 5000);
  });
  EXPECT_LT(cluster_->ResidentMib("coordinator"), coordinator + kGrowthMib);
  EXPECT_LT(cluster_->ResidentMib("verifier-0"), verifier + kGrowthMib);
}

// A drafter that stops in mid-stream, and stays reachable as far as TCP knows.
TEST_F(RogueDrafterTest, StoppedBySigstop) {
  AddHonest("random");
  for (size_t i = 0; i < std::size(kSettings); ++i) {
    for (const int64_t patience : {int64_t{0}, int64_t{5000}, kLockStep}) {
      SCOPED_TRACE(absl::StrCat(kSettings[i].name, ", patience ", patience));
      v1::GenerateRequest request =
          SeededRequest(RepeatingPrompt(), kSettings[i], kMaxTokens);
      request.mutable_speculation()->set_patience_us(patience);
      const absl::Time start = absl::Now();
      bool stopped = false;
      const GenerateResult result =
          cluster_->Generate(request, [&](const v1::GenerateDelta& delta) {
            if (!stopped && delta.first_index() >= 20) {
              cluster_->Signal("honest", SIGSTOP);
              stopped = true;
            }
            return true;
          });
      EXPECT_TRUE(stopped);
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.fault, "");
      EXPECT_EQ(result.token_ids, plain_[i]);
      EXPECT_LT(absl::Now() - start, kBound);
      // It also serves while it is stopped for good.
      Check(i, patience);
      cluster_->Signal("honest", SIGCONT);
      ASSERT_TRUE(cluster_->WaitServing(serving_));
    }
  }
}

}  // namespace
}  // namespace specwire
