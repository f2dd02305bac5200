// SPDX-License-Identifier: Apache-2.0
#include "draft_node/service.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/drafting/ngram.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/draft_node/draft_service_test_util.h"
#include "tests/testing/eventually.h"

namespace specwire::draft {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_TRUE(Eventually([&] { return node.thread().num_sequences() == 1; }));
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

}  // namespace
}  // namespace specwire::draft
