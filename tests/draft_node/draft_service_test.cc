// SPDX-License-Identifier: Apache-2.0
#include "draft_node/service.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/drafting/ngram.h"
#include "common/model_drafting/model_drafter.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"

namespace specwire::draft {
namespace {

using ::testing::HasSubstr;

// A call that hangs fails its test long before the test's own limit.
constexpr absl::Duration kTestDeadline = absl::Seconds(30);

bool WaitUntil(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Microseconds(200));
  }
  return true;
}

// Proposes the numbers that follow the path's last token. One of the tokens
// below at the path's end makes it fail.
class CountingDrafter final : public Drafter {
 public:
  static constexpr int32_t kFailing = 1000;
  static constexpr int32_t kThrowing = 1001;
  static constexpr int32_t kTalkative = 1002;

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return print_; }
  const std::string& model_digest() const override { return digest_; }
  int max_model_len() const override { return 40; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& /*params*/) override {
    class Sequence final : public DraftSequence {
      absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                       const DraftLimits& limits) override {
        int max_tokens = limits.max_tokens;
        if (path.back() == kFailing) return absl::InternalError("failed");
        if (path.back() == kThrowing) throw std::runtime_error("thrown");
        if (path.back() == kTalkative) ++max_tokens;
        DraftRun run;
        for (int i = 1; i <= max_tokens; ++i) {
          run.tokens.push_back(path.back() + i);
          run.survival.push_back(std::ldexp(1.0f, -i));
        }
        return run;
      }
    };
    return std::make_unique<Sequence>();
  }

 private:
  const std::string name_ = "counting";
  const std::string print_ = "print";
  const std::string digest_ = "digest";
};

// A draft node on a port of its own.
class DraftHarness {
 public:
  explicit DraftHarness(Drafter* drafter, DrafterThreadOptions options = {})
      : thread_(drafter, options, &registry_),
        service_(*drafter, &thread_, /*draft_token_ns=*/1234) {
    thread_.Start();
    auto server = RpcServer::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // A sanitizer on a busy machine must not look like a lost peer.
    RpcChannelOptions channel;
    channel.keepalive_timeout = kTestDeadline;
    stub_ = v1::DraftService::NewStub(MakeChannel(server_->address(), channel));
  }
  ~DraftHarness() {
    thread_.Stop();
    EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  }

  DrafterThread& thread() { return thread_; }
  v1::DraftService::Stub* stub() { return stub_.get(); }

 private:
  MetricsRegistry registry_;
  DrafterThread thread_;
  DraftServiceImpl service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DraftService::Stub> stub_;
};

v1::DraftRequest OpenRequest(const std::vector<int32_t>& tokens,
                             int run_length,
                             int window) {
  v1::DraftRequest request;
  v1::DraftOpen* const open = request.mutable_open();
  open->mutable_tokens()->Add(tokens.begin(), tokens.end());
  open->set_prompt_length(1);
  open->mutable_sampling()->set_temperature(0);
  open->set_run_length(run_length);
  open->set_window(window);
  return request;
}

v1::DraftRequest CommitRequest(int position,
                               const std::vector<int32_t>& tokens) {
  v1::DraftRequest request;
  request.mutable_commit()->set_position(position);
  request.mutable_commit()->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return request;
}

v1::DraftRequest RewindRequest(int position) {
  v1::DraftRequest request;
  request.mutable_rewind()->set_position(position);
  return request;
}

v1::DraftRequest TuneRequest(std::optional<int> run_length,
                             std::optional<int> window) {
  v1::DraftRequest request;
  v1::DraftTune* const tune = request.mutable_tune();
  if (run_length.has_value()) tune->set_run_length(*run_length);
  if (window.has_value()) tune->set_window(*window);
  return request;
}

// One Draft stream, written and read by the test's thread.
class DraftClient {
 public:
  explicit DraftClient(v1::DraftService::Stub* stub) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kTestDeadline));
    stream_ = stub->Draft(&context_);
  }
  ~DraftClient() {
    if (finished_) return;
    context_.TryCancel();
    Drain();
  }

  bool Send(const v1::DraftRequest& request) { return stream_->Write(request); }
  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next proposal; position -1 at the stream's end.
  v1::DraftResponse Read() {
    v1::DraftResponse response;
    if (!stream_->Read(&response)) response.set_position(-1);
    return response;
  }
  grpc::Status Drain() {
    while (Read().position() >= 0) ++num_drained_;
    finished_ = true;
    return stream_->Finish();
  }
  int num_drained() const { return num_drained_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DraftRequest, v1::DraftResponse>>
      stream_;
  int num_drained_ = 0;
  bool finished_ = false;
};

void ExpectProposal(const v1::DraftResponse& response,
                    int position,
                    int based_on,
                    const std::vector<int32_t>& tokens) {
  EXPECT_EQ(response.position(), position);
  EXPECT_EQ(response.based_on(), based_on);
  EXPECT_EQ(
      std::vector<int32_t>(response.tokens().begin(), response.tokens().end()),
      tokens);
}

TEST(DraftServiceTest, TellsItsDrafter) {
  CountingDrafter drafter;
  DraftHarness node(&drafter, {.max_num_sequences = 9});
  grpc::ClientContext context;
  v1::GetDrafterResponse response;
  ASSERT_TRUE(node.stub()->GetDrafter(&context, {}, &response).ok());
  EXPECT_EQ(response.drafter(), "counting");
  EXPECT_EQ(response.vocabulary_fingerprint(), "print");
  EXPECT_EQ(response.model_digest(), "digest");
  EXPECT_EQ(response.max_model_len(), 40);
  EXPECT_EQ(response.max_num_sequences(), 9);
  EXPECT_EQ(response.draft_token_ns(), 1234);
}

TEST(DraftServiceTest, CutsRunsThatSurviveTooSeldom) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  // Each token survives half as likely as the one before.
  v1::DraftRequest open = OpenRequest({5, 6}, 4, 8);
  open.mutable_open()->set_min_survival(0.25);
  client.Send(open);
  const v1::DraftResponse first = client.Read();
  ExpectProposal(first, 2, 2, {7, 8});
  EXPECT_FLOAT_EQ(first.confidence(), 0.25);
  // Nothing more until something happens.
  client.Send(CommitRequest(2, {7, 8, 9}));
  ExpectProposal(client.Read(), 5, 5, {10, 11});
  v1::DraftRequest tune;
  tune.mutable_tune()->set_min_survival(0.6f);
  client.Send(tune);
  client.Send(CommitRequest(5, {10, 11, 12}));
  // Not even one, but an answer.
  ExpectProposal(client.Read(), 8, 8, {});
  tune.mutable_tune()->set_min_survival(0);
  client.Send(tune);
  ExpectProposal(client.Read(), 8, 8, {13, 14, 15, 16});
}

TEST(DraftServiceTest, TellsHowProposalsCameAboutIfAsked) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  for (const bool trace : {false, true}) {
    DraftClient client(node.stub());
    v1::DraftRequest open = OpenRequest({5, 6}, 3, 6);
    open.mutable_open()->set_trace(trace);
    client.Send(open);
    for (const int position : {2, 5}) {
      const v1::DraftResponse response = client.Read();
      ASSERT_EQ(response.position(), position);
      EXPECT_EQ(response.has_trace(), trace);
      if (!trace) continue;
      ASSERT_EQ(response.trace().chances_size(), 3);
      for (const float chance : response.trace().chances()) {
        EXPECT_FLOAT_EQ(chance, 0.5f);
      }
      EXPECT_GE(response.trace().draft_us(), 0);
      EXPECT_GE(response.trace().held_us(), response.trace().draft_us());
    }
  }
}

TEST(DraftServiceTest, ChecksMinSurvival) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  const auto refused = [&](const v1::DraftRequest& open) {
    DraftClient client(node.stub());
    client.Send(open);
    const grpc::Status status = client.Drain();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  v1::DraftRequest open = OpenRequest({5, 6}, 4, 4);
  open.mutable_open()->set_min_survival(1);
  EXPECT_THAT(refused(open), ::testing::HasSubstr("min_survival must be in"));
  open.mutable_open()->set_min_survival(0.5f);
  open.mutable_open()->set_rule(v1::ACCEPTANCE_RULE_RATIO);
  EXPECT_THAT(refused(open), ::testing::HasSubstr("min_survival must be 0"));
}

TEST(DraftServiceTest, WorksAheadUpToItsWindow) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  client.Send(OpenRequest({5, 6}, 3, 6));
  v1::DraftResponse first = client.Read();
  ExpectProposal(first, 2, 2, {7, 8, 9});
  EXPECT_FLOAT_EQ(first.confidence(), 0.125);
  ExpectProposal(client.Read(), 5, 2, {10, 11, 12});
  // A commit that agrees makes room, and costs nothing.
  client.Send(CommitRequest(2, {7, 8, 9}));
  ExpectProposal(client.Read(), 8, 5, {13, 14, 15});
  // One that differs starts anew.
  client.Send(CommitRequest(5, {10, 77}));
  ExpectProposal(client.Read(), 7, 7, {78, 79, 80});
  ExpectProposal(client.Read(), 10, 7, {81, 82, 83});
}

TEST(DraftServiceTest, ProposesAgainAfterARewind) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  client.Send(OpenRequest({5, 6}, 2, 4));
  ExpectProposal(client.Read(), 2, 2, {7, 8});
  ExpectProposal(client.Read(), 4, 2, {9, 10});
  client.Send(RewindRequest(2));
  ExpectProposal(client.Read(), 2, 2, {7, 8});
  ExpectProposal(client.Read(), 4, 2, {9, 10});
}

TEST(DraftServiceTest, TakesNewSettings) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  client.Send(OpenRequest({5, 6}, 2, 2));
  ExpectProposal(client.Read(), 2, 2, {7, 8});
  client.Send(TuneRequest(4, 8));
  ExpectProposal(client.Read(), 4, 2, {9, 10, 11, 12});
}

TEST(DraftServiceTest, SaysWhenItHasNothingToPropose) {
  const auto drafter = NgramDrafter::Create({});
  ASSERT_TRUE(drafter.ok());
  DraftHarness node(drafter->get());
  DraftClient client(node.stub());
  client.Send(OpenRequest({1, 2, 3, 4, 5}, 2, 2));
  ExpectProposal(client.Read(), 5, 5, {});
  client.Send(CommitRequest(5, {9}));
  ExpectProposal(client.Read(), 6, 6, {});
  // Now there is something that it has seen.
  client.Send(CommitRequest(6, {2, 3}));
  ExpectProposal(client.Read(), 8, 8, {4, 5});
}

TEST(DraftServiceTest, SaysSoBeyondItsContext) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  std::vector<int32_t> tokens(38, 5);
  client.Send(OpenRequest(tokens, 4, 8));
  ExpectProposal(client.Read(), 38, 38, {6, 7});
  client.Send(CommitRequest(38, {6, 7}));
  ExpectProposal(client.Read(), 40, 40, {});
  client.Send(CommitRequest(40, {8, 9, 10}));
  ExpectProposal(client.Read(), 43, 43, {});
}

TEST(DraftServiceTest, AnswersBeforeAHalfClosedStreamEnds) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  client.Send(OpenRequest({5, 6}, 2, 4));
  client.WritesDone();
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.num_drained(), 2);
}

TEST(DraftServiceTest, RefusesBadMessagesByNameAndHarmsNobody) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient bystander(node.stub());
  bystander.Send(OpenRequest({5, 6}, 2, 2));
  ExpectProposal(bystander.Read(), 2, 2, {7, 8});

  struct Case {
    std::string field;
    bool after_open;
    v1::DraftRequest request;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  };
  const auto open = [](const std::function<void(v1::DraftOpen*)>& spoil) {
    v1::DraftRequest request = OpenRequest({5, 6}, 2, 4);
    spoil(request.mutable_open());
    return request;
  };
  const std::vector<Case> cases = {
      {"event", false, v1::DraftRequest()},
      {"event", false, RewindRequest(0)},
      {"event", true, v1::DraftRequest()},
      {"event", true, OpenRequest({5, 6}, 2, 4)},
      {"tokens", false, open([](auto* o) { o->clear_tokens(); })},
      {"tokens", false, open([](auto* o) { o->set_tokens(0, -1); })},
      {"tokens", false, open([](auto* o) { o->set_tokens(0, 1 << 20); })},
      {"tokens", false, open([](auto* o) {
         while (o->tokens_size() <= 1 << 20) o->add_tokens(1);
       })},
      {"prompt_length", false, open([](auto* o) { o->set_prompt_length(0); })},
      {"prompt_length", false, open([](auto* o) { o->set_prompt_length(3); })},
      {"run_length", false, open([](auto* o) { o->set_run_length(0); })},
      {"run_length", false, open([](auto* o) { o->set_run_length(33); })},
      {"window", false, open([](auto* o) { o->set_window(1); })},
      {"window", false, open([](auto* o) { o->set_window(257); })},
      {"temperature", false, open([](auto* o) {
         o->mutable_sampling()->set_temperature(-1);
       })},
      {"window", false, open([](auto* o) {
         o->set_rule(v1::ACCEPTANCE_RULE_RATIO);
       })},
      {"rule", false, open([](auto* o) {
         o->set_rule(static_cast<v1::AcceptanceRule>(77));
       })},
      {"choice", false, open([](auto* o) { o->set_choice(-1); })},
      {"min_tokens", false, open([](auto* o) { o->set_min_tokens(-1); })},
      {"end_token_ids", false, open([](auto* o) { o->add_end_token_ids(-1); })},
      {"end_token_ids", false, open([](auto* o) {
         for (int i = 0; i < 129; ++i) o->add_end_token_ids(i);
       })},
      {"tenant_salt", false, open([](auto* o) {
         o->set_tenant_salt(std::string(65, 'x'));
       })},
      {"commit.tokens", true, CommitRequest(2, {})},
      {"commit.tokens", true, CommitRequest(2, {-7})},
      {"commit", true, CommitRequest(3, {7}), grpc::StatusCode::INTERNAL},
      {"commit", true, CommitRequest(1, {7}), grpc::StatusCode::INTERNAL},
      {"commit.position", true, CommitRequest(-1, {7})},
      {"rewind", true, RewindRequest(3)},
      {"rewind", true, RewindRequest(-1)},
      {"run_length", true, TuneRequest(33, std::nullopt)},
      {"window", true, TuneRequest(std::nullopt, 257)},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(i, ": ", cases[i].field));
    DraftClient client(node.stub());
    if (cases[i].after_open) client.Send(OpenRequest({5, 6}, 2, 4));
    client.Send(cases[i].request);
    const grpc::Status status = client.Drain();
    EXPECT_EQ(status.error_code(), cases[i].code);
    EXPECT_THAT(status.error_message(), HasSubstr(cases[i].field));
  }
  EXPECT_TRUE(WaitUntil([&] { return node.thread().num_sequences() == 1; }));
  bystander.Send(CommitRequest(2, {7, 8}));
  ExpectProposal(bystander.Read(), 4, 4, {9, 10});
}

TEST(DraftServiceTest, ADrafterThatFailsEndsThatStreamOnly) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient bystander(node.stub());
  bystander.Send(OpenRequest({5, 6}, 2, 2));
  ExpectProposal(bystander.Read(), 2, 2, {7, 8});
  const std::pair<int32_t, std::string> failures[] = {
      {CountingDrafter::kFailing, "failed"},
      {CountingDrafter::kThrowing, "thrown"},
      {CountingDrafter::kTalkative, "at most 2"},
  };
  for (const auto& [token, message] : failures) {
    DraftClient client(node.stub());
    client.Send(OpenRequest({5, token}, 2, 2));
    const grpc::Status status = client.Drain();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
  bystander.Send(CommitRequest(2, {7, 8}));
  ExpectProposal(bystander.Read(), 4, 4, {9, 10});
}

TEST(DraftServiceTest, RefusesMoreSequencesThanItMayHold) {
  CountingDrafter drafter;
  DraftHarness node(&drafter, {.max_num_sequences = 1});
  DraftClient first(node.stub());
  first.Send(OpenRequest({5, 6}, 2, 2));
  ExpectProposal(first.Read(), 2, 2, {7, 8});
  DraftClient second(node.stub());
  second.Send(OpenRequest({5, 6}, 2, 2));
  const grpc::Status status = second.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max_num_sequences: 1"));
}

TEST(DraftServiceTest, EndsStreamsWhenItShutsDown) {
  CountingDrafter drafter;
  DraftHarness node(&drafter);
  DraftClient client(node.stub());
  client.Send(OpenRequest({5, 6}, 2, 2));
  ExpectProposal(client.Read(), 2, 2, {7, 8});
  node.thread().Stop();
  EXPECT_EQ(client.Drain().error_code(), grpc::StatusCode::UNAVAILABLE);
  DraftClient late(node.stub());
  late.Send(OpenRequest({5, 6}, 2, 2));
  EXPECT_EQ(late.Drain().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// An oracle over a fake engine that the test can watch.
class OracleServiceTest : public testing::Test {
 protected:
  void Start(FakeEngineOptions options, DrafterThreadOptions thread = {}) {
    auto engine = std::make_unique<FakeEngine>(options);
    engine_ = engine.get();
    auto drafter = ModelDrafter::Create(std::move(engine), {.name = "oracle"});
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    drafter_ = *std::move(drafter);
    node_ = std::make_unique<DraftHarness>(drafter_.get(), thread);
  }

  FakeEngine* engine_ = nullptr;
  std::unique_ptr<ModelDrafter> drafter_;
  std::unique_ptr<DraftHarness> node_;
};

TEST_F(OracleServiceTest, ProposesTheTargetsText) {
  Start({});
  const std::vector<int32_t> prompt = {10, 20, 30, 40};
  const std::vector<int32_t> text = engine_->Continue(prompt, 24);
  DraftClient client(node_->stub());
  client.Send(OpenRequest(prompt, 8, 8));
  for (int step = 0; step < 3; ++step) {
    const auto begin = text.begin() + step * 8;
    const std::vector<int32_t> run(begin, begin + 8);
    ExpectProposal(client.Read(), 4 + step * 8, 4 + step * 8, run);
    client.Send(CommitRequest(4 + step * 8, run));
  }
}

// What the cache has in common with the path is not computed again.
TEST_F(OracleServiceTest, RollsItsCacheBack) {
  Start({});
  std::vector<int32_t> path = {10, 20, 30, 40};
  DraftClient client(node_->stub());
  client.Send(OpenRequest(path, 4, 4));
  ExpectProposal(client.Read(), 4, 4, engine_->Continue(path, 4));
  EXPECT_EQ(engine_->num_rows(), 4 + 3);
  path.push_back(engine_->Continue(path, 1)[0]);
  path.push_back(6);
  client.Send(CommitRequest(4, {path[4], path[5]}));
  ExpectProposal(client.Read(), 6, 6, engine_->Continue(path, 4));
  // Position 5 is new, and then three of the run.
  EXPECT_EQ(engine_->num_rows(), 4 + 3 + 1 + 3);
}

TEST_F(OracleServiceTest, ProposesLessWhereTheCacheIsFull) {
  Start({.block_size = 4, .num_blocks = 2});
  const std::vector<int32_t> prompt = {10, 20, 30, 40, 50, 60};
  DraftClient client(node_->stub());
  client.Send(OpenRequest(prompt, 8, 8));
  // Positions 0 to 7 are cached, and the token behind them is proposed.
  ExpectProposal(client.Read(), 6, 6, engine_->Continue(prompt, 3));
  client.Send(CommitRequest(6, engine_->Continue(prompt, 3)));
  ExpectProposal(client.Read(), 9, 9, {});
  // Others need not suffer from that.
  DraftClient second(node_->stub());
  second.Send(OpenRequest({7, 8}, 4, 4));
  ExpectProposal(second.Read(), 2, 2, engine_->Continue({7, 8}, 4));
}

TEST_F(OracleServiceTest, FreesWhatCancelledStreamsHold) {
  Start({.pass_delay = absl::Microseconds(50)});
  constexpr unsigned kSeed = 20240608;
  std::mt19937 random(kSeed);
  const std::vector<int32_t> prompt(300, 9);
  for (int i = 0; i < 100; ++i) {
    DraftClient client(node_->stub());
    client.Send(OpenRequest(prompt, 8, 64));
    absl::SleepFor(absl::Microseconds(random() % 2000));
    client.Cancel();
    EXPECT_EQ(client.Drain().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(WaitUntil([&] {
    return engine_->kv_blocks_used() == 0 &&
           node_->thread().num_sequences() == 0;
  }));
}

TEST_F(OracleServiceTest, EndsAStreamThatFloods) {
  Start({}, {.max_events = 100});
  DraftClient bystander(node_->stub());
  engine_->Pause();
  bystander.Send(OpenRequest({10, 20}, 2, 2));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  DraftClient flooder(node_->stub());
  flooder.Send(OpenRequest({10, 20}, 2, 2));
  for (int i = 0; i < 10'000; ++i) {
    if (!flooder.Send(RewindRequest(2))) break;
  }
  EXPECT_EQ(flooder.Drain().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine_->Resume();
  ExpectProposal(bystander.Read(), 2, 2, engine_->Continue({10, 20}, 2));
}

// Commits are taken in between two passes: what is known to be wrong is not
// drafted on, nor sent.
TEST_F(OracleServiceTest, TakesInCommitsBeforeItDraftsOn) {
  Start({});
  engine_->Pause();
  DraftClient client(node_->stub());
  client.Send(OpenRequest({10, 20}, 2, 64));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  client.Send(CommitRequest(2, {6}));
  ASSERT_TRUE(
      WaitUntil([&] { return node_->thread().worker()->num_queued() == 1; }));
  engine_->Resume();
  ExpectProposal(client.Read(), 3, 3, engine_->Continue({10, 20, 6}, 2));
}

TEST_F(OracleServiceTest, BatchesThePassesOfItsStreams) {
  Start({});
  engine_->Pause();
  DraftClient first(node_->stub());
  first.Send(OpenRequest({10, 20}, 4, 64));
  ASSERT_TRUE(engine_->WaitUntilPaused());
  DraftClient second(node_->stub());
  second.Send(OpenRequest({11, 21}, 4, 64));
  ASSERT_TRUE(WaitUntil([&] { return node_->thread().num_sequences() == 2; }));
  engine_->Resume();
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(first.Read().tokens_size(), 4);
    EXPECT_EQ(second.Read().tokens_size(), 4);
  }
  // The first pass is the first one's alone, and the last the second one's.
  EXPECT_EQ(engine_->num_passes(), 65);
  const std::vector<std::pair<int, int>> runs = engine_->runs();
  ASSERT_EQ(runs.size(), 128u);
  EXPECT_EQ(runs.front().first, 0);
  EXPECT_EQ(runs.back().first, 1);
  for (size_t i = 1; i < 127; ++i) {
    EXPECT_EQ(runs[i].first, static_cast<int>((i - 1) % 2)) << i;
  }
}

}  // namespace
}  // namespace specwire::draft
