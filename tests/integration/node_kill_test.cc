// SPDX-License-Identifier: Apache-2.0

// Nodes that die, join and leave while requests run, in real processes.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::IsEmpty;

constexpr int kKills = 20;
constexpr int kMaxTokens = 200;
constexpr SamplingSetting kSeeded = {"T=0.7", 0.7f, 0, 0.95f};

class NodeKillTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Slow enough that a process can be hit in the middle of a stream.
    model_ = absl::StrCat(testing::TempDir(), "/slow.gguf");
    MakeTinyModel(SPECWIRE_TEST_DATA,
                  model_,
                  {"--layers", "12", "--context_length", "512"});
  }

  void AddVerifier(const std::string& name) {
    cluster_.AddVerifier(name, model_);
    serving_.insert(name);
    ASSERT_TRUE(cluster_.WaitServing(serving_));
  }
  void AddDrafter(const std::string& name) {
    cluster_.AddDraftNode(name, "model", DraftFlags());
    serving_.insert(name);
    ASSERT_TRUE(cluster_.WaitServing(serving_));
  }
  std::vector<std::string> DraftFlags() const {
    return {absl::StrCat("--draft_model=", model_), "--draft_layers=8"};
  }
  // Before that, load of a request that has ended would still steer routing.
  bool WaitIdle() {
    return Eventually(
        [&] {
          const std::vector<v1::Node> nodes = cluster_.Nodes();
          return std::all_of(
              nodes.begin(), nodes.end(), [](const v1::Node& node) {
                return node.state() != v1::NODE_STATE_SERVING ||
                       node.load().num_sequences() == 0;
              });
        },
        absl::Seconds(20));
  }
  // Too short a prompt to be worth a cached prefix: of equal load, the older
  // node gets it. Its drafts are waited for whatever they earn.
  v1::GenerateRequest Request(bool seeded) const {
    std::vector<int32_t> prompt = RepeatingPrompt();
    prompt.resize(std::min(prompt.size(), size_t{16}));
    v1::GenerateRequest request = SeededRequest(
        prompt, seeded ? kSeeded : SamplingSetting{"greedy"}, kMaxTokens);
    request.mutable_speculation()->set_patience_us(20000);
    return request;
  }
  std::vector<int32_t> PlainIds(bool seeded) {
    const GenerateResult plain = cluster_.Generate(Plain(Request(seeded)));
    EXPECT_TRUE(plain.status.ok()) << plain.status;
    EXPECT_EQ(plain.token_ids.size(), size_t{kMaxTokens});
    return plain.token_ids;
  }
  // Kills `victim` when the client has so many tokens. CallGenerate checks that
  // no token is lost or comes twice.
  void CheckKilled(const std::string& victim,
                   int at,
                   bool seeded,
                   const std::vector<int32_t>& expected) {
    SCOPED_TRACE(absl::StrCat(victim, " killed at token ", at));
    bool killed = false;
    const GenerateResult result =
        cluster_.Generate(Request(seeded), [&](const v1::GenerateDelta& delta) {
          if (!killed && delta.first_index() + delta.token_ids_size() >= at) {
            killed = true;
            cluster_.Signal(victim, SIGKILL);
          }
          return true;
        });
    EXPECT_TRUE(killed);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.token_ids, expected);
    serving_.erase(victim);
    // Or else its former self would pass for the next one of its name.
    EXPECT_TRUE(Eventually(
        [&] {
          const std::vector<v1::Node> nodes = cluster_.Nodes();
          return std::none_of(
              nodes.begin(), nodes.end(), [&](const v1::Node& node) {
                return node.registration().name() == victim &&
                       node.state() == v1::NODE_STATE_SERVING;
              });
        },
        absl::Seconds(20)));
  }

  static inline std::string model_;
  ProcessCluster cluster_{SPECWIRE_BIN_DIR};
  std::set<std::string> serving_;
  std::mt19937 random_{12345};
};

TEST_F(NodeKillTest, VerifierKilledAtRandomMoments) {
  AddVerifier("verifier-0");
  AddVerifier("verifier-1");
  AddDrafter("draft-0");
  const std::vector<int32_t> expected[] = {PlainIds(false), PlainIds(true)};
  for (int i = 0; i < kKills; ++i) {
    ASSERT_TRUE(WaitIdle());
    // The older one gets the request: of equal load.
    const std::string victim = absl::StrCat("verifier-", i % 2);
    const int at = std::uniform_int_distribution<int>(1, 190)(random_);
    const bool seeded = i % 4 < 2;
    CheckKilled(victim, at, seeded, expected[seeded ? 1 : 0]);
    AddVerifier(victim);
  }
  // Else it was the wrong one that died. Some die too late: what a client has
  // read is behind what is computed.
  EXPECT_GE(cluster_.Metric(metric::kRequestMigrations), kKills / 2);
}

TEST_F(NodeKillTest, DraftNodeKilledAtRandomMoments) {
  AddVerifier("verifier-0");
  AddDrafter("draft-0");
  AddDrafter("draft-1");
  const std::vector<int32_t> expected[] = {PlainIds(false), PlainIds(true)};
  int num_hit = 0;
  for (int i = 0; i < kKills; ++i) {
    ASSERT_TRUE(WaitIdle());
    const std::string victim = absl::StrCat("draft-", i % 2);
    const int at = std::uniform_int_distribution<int>(1, 190)(random_);
    const bool seeded = i % 4 < 2;
    const auto steps_of_victim = [&] {
      return cluster_.Metric(metric::kNumDrafts,
                             absl::StrCat("=\"", victim, "\""));
    };
    const double before = steps_of_victim();
    CheckKilled(victim, at, seeded, expected[seeded ? 1 : 0]);
    if (steps_of_victim() > before) ++num_hit;
    AddDrafter(victim);
  }
  // Else it was the wrong one that died, or before it had said anything.
  EXPECT_GE(num_hit, kKills / 2);
  EXPECT_EQ(cluster_.Metric(metric::kRequestMigrations), 0);
}

TEST_F(NodeKillTest, NodesJoinAndLeaveUnderLoad) {
  AddVerifier("verifier-0");
  AddVerifier("verifier-1");
  AddDrafter("draft-0");
  const std::vector<int32_t> expected[] = {PlainIds(false), PlainIds(true)};
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0;
  Mutex mutex;
  std::vector<std::string> faults;
  std::thread load([&] {
    InParallel(6, 6, [&](int i) {
      const bool seeded = i % 2 == 1;
      while (!stop) {
        const GenerateResult result = cluster_.Generate(Request(seeded));
        ++done;
        if (result.status.ok() && result.fault.empty() &&
            result.token_ids == expected[seeded ? 1 : 0]) {
          continue;
        }
        MutexLock lock(&mutex);
        faults.push_back(absl::StrCat(result.status.ToString(),
                                      ", ",
                                      result.token_ids.size(),
                                      " tokens, ",
                                      result.fault));
      }
    });
  });
  const auto leave = [&](const std::string& name, int signal) {
    serving_.erase(name);
    cluster_.Signal(name, signal);
    EXPECT_TRUE(cluster_.WaitServing(serving_));
  };
  for (int round = 0; round < (FullTest() ? 10 : 2); ++round) {
    AddVerifier("verifier-2");
    leave("verifier-0", SIGKILL);
    AddDrafter("draft-1");
    leave("draft-0", SIGTERM);
    AddVerifier("verifier-0");
    leave("verifier-2", SIGTERM);
    AddDrafter("draft-0");
    leave("draft-1", SIGKILL);
  }
  stop = true;
  load.join();
  EXPECT_THAT(faults, IsEmpty());
  EXPECT_GE(done, 6);
}

TEST_F(NodeKillTest, WorkGoesToTheLeastLoaded) {
  AddVerifier("verifier-0");
  AddVerifier("verifier-1");
  AddDrafter("draft-0");
  AddDrafter("draft-1");
  constexpr int kRequests = 8;
  v1::GenerateRequest request = Request(true);
  request.mutable_stop()->set_max_tokens(400);
  std::atomic<bool> stop = false;
  std::atomic<int> num_failed = 0;
  std::thread load([&] {
    InParallel(kRequests, kRequests, [&](int) {
      while (!stop) {
        const GenerateResult result = cluster_.Generate(request);
        if (!result.status.ok() || !result.fault.empty()) ++num_failed;
      }
    });
  });
  // One may just have ended on a node when another begins.
  EXPECT_TRUE(Eventually(
      [&] {
        const std::vector<v1::Node> nodes = cluster_.Nodes();
        return std::all_of(
            nodes.begin(), nodes.end(), [](const v1::Node& node) {
              const int num_sequences = node.load().num_sequences();
              return num_sequences >= kRequests / 2 - 1 &&
                     num_sequences <= kRequests / 2 + 1;
            });
      },
      absl::Seconds(20)));
  stop = true;
  load.join();
  EXPECT_EQ(num_failed, 0);
}

}  // namespace
}  // namespace specwire
