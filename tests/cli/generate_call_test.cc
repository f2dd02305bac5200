// SPDX-License-Identifier: Apache-2.0
#include "cli/generate_call.h"

#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/interrupt.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire::cli {
namespace {

// Begins a reply and then says nothing, or only that it is alive.
class MuteCoordinator final : public v1::GenerationService::Service {
 public:
  grpc::Status Generate(
      grpc::ServerContext* context,
      const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    asked_ms_ = request->alive_interval_ms();
    v1::GenerateResponse response;
    if (finishes_) {
      response.mutable_finished();
      writer->Write(response);
    }
    response.mutable_started()->set_alive_interval_ms(
        request->alive_interval_ms());
    if (!finishes_) writer->Write(response);
    for (int i = 0; !context->IsCancelled(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      if (i >= num_alive_) continue;
      response.mutable_alive();
      writer->Write(response);
    }
    return grpc::Status::CANCELLED;
  }

  int num_alive_ = 0;
  bool finishes_ = false;
  std::atomic<int> asked_ms_{0};
};

class GenerateCallTest : public testing::Test {
 protected:
  GenerateCallTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    client_ = *Client::ConnectTo(
        absl::StrCat("127.0.0.1:", port), absl::Seconds(10), {});
  }
  ~GenerateCallTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  GenerateOutcome Call(v1::GenerateRequest request) {
    return CallGenerate(
        client_.get(), request, [this](const v1::GenerateResponse& response) {
          EXPECT_FALSE(response.has_alive());
          ++num_responses_;
          return true;
        });
  }

  MuteCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  int num_responses_ = 0;
};

TEST_F(GenerateCallTest, CallThatFallsSilentIsLost) {
  v1::GenerateRequest request;
  request.set_alive_interval_ms(100);
  const GenerateOutcome outcome = Call(request);
  EXPECT_TRUE(outcome.silent);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(num_responses_, 1);
}

TEST_F(GenerateCallTest, SilentCallThatIsAliveIsWaitedFor) {
  coordinator_.num_alive_ = 300;
  v1::GenerateRequest request;
  request.set_alive_interval_ms(100);
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(Call(request).silent);
  // All that it said, and the limit behind it.
  EXPECT_GE(absl::Now() - begin, absl::Seconds(3));
  EXPECT_EQ(num_responses_, 1);
}

TEST_F(GenerateCallTest, EndThatIsLostBehindTheLastMessageCostsNothing) {
  coordinator_.finishes_ = true;
  coordinator_.num_alive_ = 1;
  v1::GenerateRequest request;
  request.set_alive_interval_ms(100);
  const GenerateOutcome outcome = Call(request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
}

TEST(OnInterruptTest, EndsWithoutADescriptorToWakeIt) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  // Its destructor used to wait for ever.
  {
    const OnInterrupt interrupt([] {});
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace specwire::cli
