// SPDX-License-Identifier: Apache-2.0

// The nodes' services give the same texts over gRPC as the parts that the
// statistics of this folder are made with, token for token: what these say of
// the parts, they say of the services.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/server.h"
#include "draft_node/drafter_thread.h"
#include "draft_node/service.h"
#include "gtest/gtest.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "tests/exactness/toy_drafters.h"
#include "tests/exactness/toy_engine.h"
#include "tests/exactness/toy_serving.h"
#include "tests/verifier_node/verifier_harness.h"

namespace specwire {
namespace {

constexpr int kVocab = 8;
constexpr int kTexts = 250;

// A verifier and a draft node over gRPC, and between them what a coordinator
// does while all goes well.
class Services {
 public:
  Services(ToyEngine* target, Drafter* drafter)
      : verifier_(target),
        thread_(drafter, {}, &registry_),
        service_(*drafter, &thread_) {
    thread_.Start();
    auto server = RpcServer::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::DraftService::NewStub(MakeChannel(server_->address(), {}));
  }
  ~Services() {
    thread_.Stop();
    EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  }

  std::vector<int32_t> Generate(const ServingOptions& options, int64_t seed) {
    SamplingParams sampling = options.sampling;
    sampling.seed = seed;
    v1::DecodeRequest open = verifier::OpenRequest(
        options.prompt, options.num_tokens, /*patience_us=*/-1);
    *open.mutable_open()->mutable_sampling() = ToProto(sampling);
    open.mutable_open()->set_rule(ToProto(options.rule));
    open.mutable_open()->set_ignore_eos(true);
    verifier::DecodeClient decode(verifier_.stub());
    EXPECT_TRUE(decode.Send(open));

    grpc::ClientContext context;
    context.set_deadline(
        absl::ToChronoTime(absl::Now() + verifier::kTestDeadline));
    const auto draft = stub_->Draft(&context);
    v1::DraftRequest request;
    v1::DraftOpen* const start = request.mutable_open();
    start->mutable_tokens()->Assign(options.prompt.begin(),
                                    options.prompt.end());
    start->set_prompt_length(static_cast<int32_t>(options.prompt.size()));
    *start->mutable_sampling() = ToProto(sampling);
    start->set_rule(ToProto(options.rule));
    start->set_run_length(options.run_length);
    start->set_window(options.run_length);
    start->set_vocab_size(kVocab);
    EXPECT_TRUE(draft->Write(request));

    v1::DraftResponse proposed;
    while (draft->Read(&proposed)) {
      v1::DecodeRequest relay;
      v1::Proposal* const proposal = relay.mutable_proposal();
      proposal->set_source(1);
      proposal->set_position(proposed.position());
      proposal->set_based_on(proposed.based_on());
      *proposal->mutable_tokens() = proposed.tokens();
      *proposal->mutable_q() = proposed.q();
      // The last token has no proposal to wait for: it may have ended.
      decode.Send(relay);
      const auto commit = decode.Read();
      if (!commit.has_value() || commit->has_finish()) break;
      request.mutable_commit()->set_position(commit->position());
      *request.mutable_commit()->mutable_tokens() = commit->tokens();
      draft->Write(request);
    }
    context.TryCancel();
    const grpc::Status status = decode.Drain();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return decode.tokens();
  }

 private:
  verifier::VerifierHarness verifier_;
  MetricsRegistry registry_;
  draft::DrafterThread thread_;
  draft::DraftServiceImpl service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DraftService::Stub> stub_;
};

TEST(ExactServiceTest, ServicesGiveTheTextsThatTheStatisticsAreMadeOf) {
  const ToyEngine target(kVocab, 1.2f, 90);
  for (const auto rule : {AcceptanceRule::kCoupled, AcceptanceRule::kRatio}) {
    for (const char* kind : {"good", "adversarial", "ngram"}) {
      SCOPED_TRACE(kind);
      ServingOptions options;
      options.rule = rule;
      options.num_tokens = 12;
      options.run_length = 3;
      options.window = 3;
      options.sampling.top_p = 0.95f;
      options.sampling.presence_penalty = 0.5f;
      ToyEngine engine(target, 0.0f, 0);
      const auto drafter = MakeToyDrafter(kind, target);
      ToyServing parts(&engine, {drafter.get()}, options);
      ToyEngine served(target, 0.0f, 0);
      const auto serving_drafter = MakeToyDrafter(kind, target);
      Services services(&served, serving_drafter.get());
      for (int64_t seed = 0; seed < kTexts; ++seed) {
        const auto expected = parts.Generate(static_cast<uint64_t>(seed));
        ASSERT_TRUE(expected.ok()) << expected.status();
        ASSERT_EQ(services.Generate(options, seed), expected->tokens) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace specwire
