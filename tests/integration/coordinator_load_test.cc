// SPDX-License-Identifier: Apache-2.0

// Real processes without models: hundreds of requests at once on few threads,
// the drafter's law of acceptance as replies tell of it, and the marks that
// nobody may miss.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/drafting/synthetic.h"
#include "common/metrics/names.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

constexpr char kBin[] = SPECWIRE_BIN_DIR;

// What the language says after a prompt.
std::vector<int32_t> Continue(const v1::TokenIds& prompt, int count) {
  const SyntheticLanguage language(kDefaultSyntheticVocab);
  uint64_t state = language.Begin();
  for (const int32_t token : prompt.ids()) {
    state = language.Extend(state, token);
  }
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(language.Next(state));
    state = language.Extend(state, tokens.back());
  }
  return tokens;
}

v1::GenerateRequest MakeRequest(int number, int max_tokens) {
  v1::GenerateRequest request;
  for (int i = 0; i < 20; ++i) {
    request.mutable_token_ids()->add_ids(1 + (number * 37 + i * 5) % 256);
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(number);
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

void AddNodes(const std::vector<std::string>& verifier_flags,
              const std::vector<std::string>& drafter_flags,
              ProcessCluster* cluster) {
  std::vector<std::string> command = {std::string(kBin) + "/verifier_node",
                                      "--engine=synthetic",
                                      "--allow_synthetic",
                                      "--log_level=warning",
                                      "--max_num_sequences=1024"};
  command.insert(command.end(), verifier_flags.begin(), verifier_flags.end());
  cluster->AddNode("verifier", command);
  std::vector<std::string> flags = {"--allow_synthetic",
                                    "--max_num_sequences=1024"};
  flags.insert(flags.end(), drafter_flags.begin(), drafter_flags.end());
  cluster->AddDraftNode("draft", "synthetic", flags);
  ASSERT_TRUE(cluster->WaitServing({"verifier", "draft"}));
}

// Calls that run side by side without a thread for each.
class Calls {
 public:
  explicit Calls(const std::string& address)
      : stub_(v1::GenerationService::NewStub(MakeChannel(address))) {}

  void Open(const v1::GenerateRequest& request) {
    calls_.push_back(std::make_unique<Call>(this, request));
    calls_.back()->Start(stub_.get());
  }

  void WaitAll() {
    MutexLock lock(&mutex_);
    while (num_ended_ < calls_.size()) changed_.Wait(&mutex_);
  }

  struct Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
    Call(Calls* calls, const v1::GenerateRequest& its_request)
        : owner(calls), request(its_request) {}
    void Start(v1::GenerationService::Stub* stub) {
      stub->async()->Generate(&context, &request, this);
      StartRead(&response);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      if (response.has_started()) synthetic = response.started().synthetic();
      tokens.insert(tokens.end(),
                    response.delta().token_ids().begin(),
                    response.delta().token_ids().end());
      StartRead(&response);
    }
    void OnDone(const grpc::Status& its_status) override {
      MutexLock lock(&owner->mutex_);
      status = its_status;
      ++owner->num_ended_;
      owner->changed_.NotifyAll();
    }

    Calls* const owner;
    const v1::GenerateRequest request;
    grpc::ClientContext context;
    v1::GenerateResponse response;
    bool synthetic = false;
    std::vector<int32_t> tokens;
    grpc::Status status;
  };

  const std::vector<std::unique_ptr<Call>>& all() const { return calls_; }

 private:
  const std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::vector<std::unique_ptr<Call>> calls_;
  Mutex mutex_;
  CondVar changed_;
  size_t num_ended_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(CoordinatorLoadTest, HundredsOfRequestsRunAtOnceOnFewThreads) {
  constexpr int kRequests = 300;
  constexpr int kTokens = 64;
  ProcessCluster cluster(kBin);
  // Slow enough that all are there before the first ends.
  AddNodes({"--synthetic_row_us=200"}, {}, &cluster);
  const int threads_before = cluster.NumThreads("coordinator");
  Calls calls(cluster.address());
  for (int i = 0; i < kRequests; ++i) calls.Open(MakeRequest(i, kTokens));
  EXPECT_TRUE(Eventually(
      [&] { return cluster.Metric(metric::kNumRequestsRunning) == kRequests; },
      absl::Seconds(60)));
  EXPECT_LT(cluster.NumThreads("coordinator"), threads_before + 32);
  calls.WaitAll();
  for (const auto& call : calls.all()) {
    ASSERT_TRUE(call->status.ok()) << call->status.error_message();
    EXPECT_EQ(call->tokens, Continue(call->request.token_ids(), kTokens));
    EXPECT_TRUE(call->synthetic);
  }
  EXPECT_TRUE(Eventually([&] {
    return cluster.Metric(metric::kNumRequestsRunning) == 0 &&
           cluster.Node("verifier").load().num_sequences() == 0 &&
           cluster.Node("draft").load().num_sequences() == 0;
  }));
}

TEST(CoordinatorLoadTest, TwoVerifiersShareSequencesByTheirSpeed) {
  constexpr int kTokens = 100;
  ProcessCluster cluster(kBin);
  // One of them takes twice as long for a pass of as many.
  for (const auto& [name, row_us] :
       {std::pair("slow", "20000"), std::pair("fast", "10000")}) {
    cluster.AddNode(name,
                    {std::string(kBin) + "/verifier_node",
                     "--engine=synthetic",
                     "--allow_synthetic",
                     "--log_level=warning",
                     "--max_num_sequences=8",
                     absl::StrCat("--synthetic_row_us=", row_us)});
  }
  ASSERT_TRUE(cluster.WaitServing({"slow", "fast"}));
  Calls calls(cluster.address());
  for (int i = 0; i < 36; ++i) {
    v1::GenerateRequest request = MakeRequest(i, kTokens);
    // Nothing to read, so that it is the passes that count.
    request.mutable_token_ids()->mutable_ids()->Truncate(1);
    request.mutable_speculation()->set_enabled(false);
    calls.Open(request);
  }
  // All come before any ends, so this is what was chosen for them.
  EXPECT_TRUE(Eventually(
      [&] {
        const int slow = cluster.Node("slow").load().num_sequences();
        const int fast = cluster.Node("fast").load().num_sequences();
        return slow + fast == 36 && slow >= 8 && slow <= 16;
      },
      absl::Seconds(20)))
      << cluster.Node("slow").load().ShortDebugString() << "; "
      << cluster.Node("fast").load().ShortDebugString();
  calls.WaitAll();
  for (const auto& call : calls.all()) {
    ASSERT_TRUE(call->status.ok()) << call->status.error_message();
    EXPECT_EQ(call->tokens, Continue(call->request.token_ids(), kTokens));
  }
  EXPECT_GT(cluster.Node("slow").load().slowdown(), 0);
}

TEST(CoordinatorLoadTest, RepliesTellTheLawOfAcceptance) {
  ProcessCluster cluster(kBin);
  AddNodes({}, {"--synthetic_acceptance=0.9,0.5,0.7"}, &cluster);
  const std::vector<double> law = {0.9, 0.5, 0.7, 0.7};
  std::vector<double> reached(4);
  std::vector<double> right(4);
  for (int i = 0; i < 8; ++i) {
    v1::GenerateRequest request = MakeRequest(i, 1500);
    // Each pass verifies one proposal, whole.
    request.mutable_speculation()->set_max_draft_tokens(4);
    request.mutable_speculation()->set_window(4);
    request.mutable_speculation()->set_patience_us(-1);
    const GenerateResult result = cluster.Generate(request);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.fault, "");
    EXPECT_TRUE(result.started.synthetic());
    EXPECT_EQ(result.token_ids, Continue(request.token_ids(), 1500));
    const auto& histogram =
        result.finished.speculation().acceptance_histogram();
    ASSERT_LE(histogram.size(), 5);
    for (int accepted = 0; accepted < histogram.size(); ++accepted) {
      const auto count = static_cast<double>(histogram[accepted]);
      for (int place = 0; place < 4; ++place) {
        const auto at = static_cast<size_t>(place);
        if (place <= accepted) reached[at] += count;
        if (place < accepted) right[at] += count;
      }
    }
  }
  for (size_t i = 0; i < law.size(); ++i) {
    ASSERT_GT(reached[i], 500) << i;
    const double sigma = std::sqrt(law[i] * (1 - law[i]) / reached[i]);
    // Beside chance: the last pass of a request is cut short by its limit.
    EXPECT_NEAR(right[i] / reached[i], law[i], 4.5 * sigma + 0.01) << i;
  }
}

TEST(CoordinatorLoadTest, ModelsAndNodesAreMarked) {
  ProcessCluster cluster(kBin);
  AddNodes({}, {}, &cluster);
  EXPECT_TRUE(cluster.Node("verifier").model().synthetic());
  EXPECT_EQ(cluster.Node("draft").drafter(), "synthetic");
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(cluster.generation()->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_TRUE(models.models(0).model().synthetic());
  EXPECT_EQ(models.models(0).model().engine(), "synthetic");
  // Plain requests too: their model is made up all the same.
  v1::GenerateRequest request = MakeRequest(1, 4);
  request.mutable_speculation()->set_enabled(false);
  EXPECT_TRUE(cluster.Generate(request).started.synthetic());
}

// Runs a node that must refuse to start; returns what it says.
std::string Refusal(std::vector<std::string> command) {
  command[0] = std::string(kBin) + "/" + command[0];
  command.insert(command.end(),
                 {"--coordinator=127.0.0.1:1", "--listen=127.0.0.1:0"});
  ChildProcess program(command);
  EXPECT_EQ(program.Wait(), 2) << command[1];
  return program.errors();
}

TEST(CoordinatorLoadTest, NodesRefuseWithoutPermission) {
  EXPECT_THAT(Refusal({"verifier_node", "--engine=synthetic"}),
              HasSubstr("needs --allow_synthetic"));
  EXPECT_THAT(Refusal({"draft_node", "--drafter=synthetic"}),
              HasSubstr("needs --allow_synthetic"));
  EXPECT_THAT(Refusal({"verifier_node",
                       "--engine=synthetic",
                       "--allow_synthetic",
                       "--model=m.gguf"}),
              HasSubstr("--model"));
  EXPECT_THAT(Refusal({"draft_node",
                       "--drafter=synthetic",
                       "--allow_synthetic",
                       "--synthetic_acceptance=0.5,2"}),
              HasSubstr("--synthetic_acceptance: 2"));
}

}  // namespace
}  // namespace specwire
