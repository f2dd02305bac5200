// SPDX-License-Identifier: Apache-2.0

// The coordinator's counters under load: what docs/metrics.md says of them
// holds, and they are the sums of what replies reported.

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::IsEmpty;

constexpr int kThreads = 8;

// What replies reported, by the counter that should tell the same.
using Sums = std::map<std::string, double>;

constexpr const char* kReasons[] = {"overlapped", "stale", "trimmed", "unused"};

std::string Unverified(const std::string& reason) {
  return absl::StrCat(metric::kNumUnverifiedTokens, " ", reason);
}

void Add(const v1::GenerateFinished& finished, Sums* sums) {
  const v1::SpeculationStats& stats = finished.speculation();
  const auto add = [&](const std::string& name, int64_t count) {
    (*sums)[name] += static_cast<double>(count);
  };
  add(metric::kNumPasses, stats.num_passes());
  add(metric::kNumDrafts, stats.num_spec_steps());
  add(metric::kNumDraftTokens, stats.num_draft_tokens());
  add(metric::kNumAcceptedTokens, stats.num_accepted_draft_tokens());
  add(Unverified("overlapped"), stats.num_overlapped_tokens());
  add(Unverified("stale"), stats.num_stale_tokens());
  add(Unverified("trimmed"), stats.num_trimmed_tokens());
  add(Unverified("unused"), stats.num_unused_tokens());
  add(metric::kNumAheadCommits,
      stats.num_ahead_hits() + stats.num_ahead_misses());
  add(metric::kGenerationTokens, finished.usage().completion_tokens());
  // Entry j: steps that accepted exactly j.
  for (int j = 1; j < stats.acceptance_histogram_size(); ++j) {
    for (int place = 0; place < j; ++place) {
      add(absl::StrCat("place ", place), stats.acceptance_histogram(j));
    }
  }
}

class MetricsIdentitiesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Slow enough that a process can be hit in the middle of a stream.
    model_ = absl::StrCat(testing::TempDir(), "/identities.gguf");
    MakeTinyModel(SPECWIRE_TEST_DATA,
                  model_,
                  {"--layers", "12", "--context_length", "512"});
  }

  void Start() {
    cluster_.AddVerifier("verifier-0", model_);
    cluster_.AddVerifier("verifier-1", model_);
    for (const char* name : {"draft-0", "draft-1"}) {
      cluster_.AddDraftNode(
          name,
          "model",
          {absl::StrCat("--draft_model=", model_), "--draft_layers=8"});
    }
    cluster_.AddDraftNode("lookup", "ngram");
    ASSERT_TRUE(cluster_.WaitServing(
        {"verifier-0", "verifier-1", "draft-0", "draft-1", "lookup"}));
  }

  // Kills the node of these that has work first.
  void KillBusy(const std::vector<std::string>& names) {
    std::string busy;
    EXPECT_TRUE(Eventually(
        [&] {
          for (const std::string& name : names) {
            if (cluster_.Node(name).load().num_sequences() > 0) busy = name;
          }
          return !busy.empty();
        },
        absl::Seconds(60)));
    if (!busy.empty()) cluster_.Signal(busy, SIGKILL);
  }

  // All kinds: plain, drafted for by each, in lock-step, several choices.
  static v1::GenerateRequest Request(int i) {
    constexpr const char* kDrafters[] = {"", "model", "ngram", "local"};
    v1::GenerateRequest request = SeededRequest(
        RepeatingPrompt(1 + i % 5),
        i % 2 == 0 ? SamplingSetting{"greedy"} : SamplingSetting{"T=0.7", 0.7f},
        20 + 13 * (i % 7));
    request.mutable_sampling()->set_seed(i);
    request.set_n(1 + (i % 3 == 2 ? 2 : 0));
    if (i % 7 == 6) return Plain(std::move(request));
    request.mutable_speculation()->set_drafter(kDrafters[i % 4]);
    request.mutable_speculation()->set_patience_us(i % 5 == 0 ? kLockStep
                                                              : 20'000);
    if (i % 4 == 1) request.mutable_speculation()->set_max_draft_tokens(6);
    return request;
  }

  // Runs so many requests, kThreads at once; their replies go to sums_.
  void Run(int num_requests) {
    InParallel(num_requests, kThreads, [&](int i) {
      const v1::GenerateRequest request = Request(i);
      const std::vector<GenerateResult> results = CallGenerateChoices(
          cluster_.generation(), request, nullptr, absl::Seconds(60));
      MutexLock lock(&mutex_);
      if (!results[0].status.ok()) {
        faults_.push_back(results[0].status.ToString());
        return;
      }
      num_done_ += 1;
      sums_[metric::kPromptTokens] +=
          static_cast<double>(request.token_ids().ids_size());
      for (const GenerateResult& result : results) {
        if (!result.fault.empty()) faults_.push_back(result.fault);
        Add(result.finished, &sums_);
        num_choices_ += 1;
      }
    });
  }

  double Value(const std::string& name, const std::string& label = "") {
    return cluster_.Metric(name, label);
  }

  // The counters now, by the same names as the sums.
  Sums Read() {
    Sums values;
    for (const char* name : {metric::kNumPasses,
                             metric::kNumDrafts,
                             metric::kNumDraftTokens,
                             metric::kNumAcceptedTokens,
                             metric::kNumAheadCommits,
                             metric::kGenerationTokens,
                             metric::kPromptTokens}) {
      values[name] = Value(name);
    }
    for (const char* reason : kReasons) {
      values[Unverified(reason)] = Value(metric::kNumUnverifiedTokens,
                                         absl::StrCat("=\"", reason, "\""));
    }
    for (int place = 0; place < 256; ++place) {
      const double count = Value(metric::kNumAcceptedTokensPerPos,
                                 absl::StrCat("position=\"", place, "\""));
      if (count == 0) break;
      values[absl::StrCat("place ", place)] = count;
    }
    return values;
  }

  bool WaitIdle() {
    return Eventually(
        [&] {
          return Value(metric::kNumRequestsRunning) == 0 &&
                 Value(metric::kNumRequestsWaiting) == 0;
        },
        absl::Seconds(30));
  }

  // What docs/metrics.md says holds of one coordinator's series at all times
  // at which nothing runs.
  void CheckIdentities() {
    const Sums now = Read();
    const auto at = [&](const std::string& name) {
      const auto found = now.find(name);
      return found == now.end() ? 0.0 : found->second;
    };
    EXPECT_LE(at(metric::kNumAcceptedTokens), at(metric::kNumDraftTokens));
    EXPECT_LE(at(metric::kNumDrafts), at(metric::kNumDraftTokens));
    EXPECT_LE(at(metric::kNumDrafts), at(metric::kNumPasses));
    double at_places = 0;
    double before = at(metric::kNumDrafts);
    for (int place = 0; now.contains(absl::StrCat("place ", place)); ++place) {
      const double count = at(absl::StrCat("place ", place));
      EXPECT_LE(count, before) << place;
      before = count;
      at_places += count;
    }
    EXPECT_EQ(at_places, at(metric::kNumAcceptedTokens));
    EXPECT_LE(at(metric::kNumAcceptedTokens), at(metric::kGenerationTokens));
    const auto histogram = [&](const char* name, const char* part) {
      return Value(absl::StrCat(name, "_", part));
    };
    EXPECT_EQ(histogram(metric::kRequestPromptTokens, "sum"),
              at(metric::kPromptTokens));
    EXPECT_EQ(histogram(metric::kRequestGenerationTokens, "sum"),
              at(metric::kGenerationTokens));
    const double succeeded = Value(metric::kRequestSuccess);
    EXPECT_EQ(histogram(metric::kE2eRequestLatency, "count"), succeeded);
    // Requests whose model is known have been taken.
    EXPECT_EQ(histogram(metric::kRequestPromptTokens, "count"),
              succeeded + Value(metric::kRequestFailure, "model_name="));
    EXPECT_EQ(histogram(metric::kRequestDecodeTime, "count"),
              histogram(metric::kTimeToFirstToken, "count"));
    EXPECT_LE(histogram(metric::kTimeToFirstToken, "count") +
                  histogram(metric::kInterTokenLatency, "count"),
              at(metric::kGenerationTokens));
    EXPECT_LE(histogram(metric::kTimeToFirstToken, "count"),
              histogram(metric::kRequestGenerationTokens, "count"));
    const auto steps = [&](const char* stage) {
      return Value(absl::StrCat(metric::kStepDuration, "_count"),
                   absl::StrCat("=\"", stage, "\""));
    };
    EXPECT_EQ(steps("draft"), steps("network"));
    EXPECT_LE(steps("draft"), at(metric::kNumDrafts));
  }

  // Only those that failed or were cancelled are in `before`.
  void ExpectSumsSince(const Sums& before) {
    Sums expected = before;
    for (const auto& [name, value] : sums_) expected[name] += value;
    const Sums now = Read();
    for (const auto& [name, value] : expected) {
      const auto found = now.find(name);
      EXPECT_EQ(found == now.end() ? 0 : found->second, value) << name;
    }
  }

  static std::string model_;
  ProcessCluster cluster_{SPECWIRE_BIN_DIR, "suffix"};
  Mutex mutex_;
  Sums sums_;
  std::vector<std::string> faults_;
  int num_done_ = 0;
  int num_choices_ = 0;
};

std::string MetricsIdentitiesTest::model_;

TEST_F(MetricsIdentitiesTest, CountersAreTheSumsOfRepliesWhateverIsLost) {
  Start();
  // In the middle of it a draft node dies, then a verifier.
  std::thread killer([&] {
    EXPECT_TRUE(Eventually([&] { return Value(metric::kRequestSuccess) >= 10; },
                           absl::Seconds(60)));
    KillBusy({"draft-0", "draft-1"});
    EXPECT_TRUE(Eventually([&] { return Value(metric::kRequestSuccess) >= 20; },
                           absl::Seconds(60)));
    KillBusy({"verifier-0", "verifier-1"});
  });
  const int num_requests = FullTest() ? 300 : 60;
  Run(num_requests);
  killer.join();
  ASSERT_TRUE(WaitIdle());
  EXPECT_THAT(faults_, IsEmpty());
  EXPECT_EQ(num_done_, num_requests);
  ExpectSumsSince({});
  CheckIdentities();
  EXPECT_EQ(Value(metric::kRequestSuccess), num_done_);
  EXPECT_EQ(Value(absl::StrCat(metric::kRequestGenerationTokens, "_count")),
            num_choices_);
  EXPECT_EQ(Value(absl::StrCat(metric::kTimeToFirstToken, "_count")),
            num_choices_);
  EXPECT_EQ(Value(absl::StrCat(metric::kRequestQueueTime, "_count")),
            num_choices_);
  // Everybody had part in it, or nothing was tested.
  EXPECT_GT(Value(metric::kNumAcceptedTokens, "draft_node=\"local\""), 0);
  EXPECT_GT(Value(metric::kNumDraftTokens, "draft_node=\"draft-"), 0);
  EXPECT_GT(Value(metric::kNumDraftTokens, "draft_node=\"lookup\""), 0);
  EXPECT_GT(Value(metric::kRequestMigrations), 0);
  EXPECT_GT(
      Value(absl::StrCat(metric::kStepDuration, "_count"), "stage=\"network\""),
      0);
}

TEST_F(MetricsIdentitiesTest, IdentitiesHoldWithFailuresAndCancelledRequests) {
  Start();
  constexpr int kRequests = 48;
  InParallel(kRequests, kThreads, [&](int i) {
    v1::GenerateRequest request = Request(i);
    request.mutable_stop()->set_max_tokens(400);
    switch (i % 4) {
      case 0:
        request.set_model("no such model");
        break;
      case 1:
        request.mutable_sampling()->set_temperature(-1);
        break;
      case 2: {
        // It is not waited for.
        CallGenerateChoices(
            cluster_.generation(), request, nullptr, absl::Milliseconds(60));
        return;
      }
      default: {
        int seen = 0;
        CallGenerateChoices(cluster_.generation(),
                            request,
                            [&](const v1::GenerateDelta& delta) {
                              seen += delta.token_ids_size();
                              return seen < 30;
                            });
        return;
      }
    }
    EXPECT_FALSE(
        CallGenerateChoices(cluster_.generation(), request)[0].status.ok());
  });
  ASSERT_TRUE(WaitIdle());
  CheckIdentities();
  EXPECT_EQ(Value(metric::kRequestFailure, "NOT_FOUND"), kRequests / 4);
  EXPECT_EQ(Value(metric::kRequestFailure, "INVALID_ARGUMENT"), kRequests / 4);
  // Of calls with too little time, some may not have come through.
  const double ended = Value(metric::kRequestFailure, "CANCELLED") +
                       Value(metric::kRequestFailure, "DEADLINE_EXCEEDED") +
                       Value(metric::kRequestSuccess);
  EXPECT_GE(ended, kRequests / 4);
  EXPECT_LE(ended, kRequests / 2);
  // Those that come after are counted as exactly as if nothing had been.
  const Sums before = Read();
  EXPECT_GT(before.at(metric::kGenerationTokens), 0);
  Run(16);
  ASSERT_TRUE(WaitIdle());
  EXPECT_THAT(faults_, IsEmpty());
  ExpectSumsSince(before);
  CheckIdentities();
}

}  // namespace
}  // namespace specwire
