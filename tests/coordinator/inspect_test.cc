// SPDX-License-Identifier: Apache-2.0

// InspectService of a coordinator, over verifiers that inspect or do not.

#include <string>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "coordinator/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/inspect.grpc.pb.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

// Answers with the layer that it was asked for; refuses layer 7.
class FakeInspect final : public v1::InspectService::CallbackService {
 public:
  grpc::ServerUnaryReactor* InspectAttention(
      grpc::CallbackServerContext* context,
      const v1::InspectAttentionRequest* request,
      v1::InspectAttentionResponse* response) override {
    response->set_num_layers(request->layer());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(request->layer() == 7
                        ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                       "layer: 7 is not between 0 and 6")
                        : grpc::Status::OK);
    return reactor;
  }
};

class InspectTest : public ::testing::Test {
 protected:
  absl::Status Ask(const std::string& model,
                   int layer,
                   v1::InspectAttentionResponse* response) {
    const auto stub = v1::InspectService::NewStub(
        MakeChannel(cluster_.coordinator()->address(), {}));
    v1::InspectAttentionRequest request;
    request.set_model(model);
    request.set_layer(layer);
    grpc::ClientContext context;
    return FromGrpcStatus(stub->InspectAttention(&context, request, response));
  }
  void Add(const std::string& name, grpc::Service* inspect) {
    FakeVerifierOptions options;
    options.name = name;
    options.another_service = inspect;
    cluster_.AddVerifier(options);
  }

  FakeInspect inspect_;
  InProcessCluster cluster_;
};

TEST_F(InspectTest, FindsTheVerifierThatInspects) {
  Add("plain-1", nullptr);
  Add("inspecting", &inspect_);
  Add("plain-2", nullptr);
  ASSERT_TRUE(cluster_.WaitServing(3, 0));
  // Whichever comes first.
  for (int layer = 1; layer < 7; ++layer) {
    v1::InspectAttentionResponse response;
    const absl::Status status = Ask("", layer, &response);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(response.num_layers(), layer);
  }
}

TEST_F(InspectTest, HandsErrorsOn) {
  Add("inspecting", &inspect_);
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  v1::InspectAttentionResponse response;
  const absl::Status status = Ask("", 7, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer: 7"));
  EXPECT_EQ(Ask("another", 1, &response).code(), absl::StatusCode::kNotFound);
}

TEST_F(InspectTest, SaysWhatToDoWhereNobodyInspects) {
  v1::InspectAttentionResponse response;
  EXPECT_EQ(Ask("", 1, &response).code(), absl::StatusCode::kUnavailable);
  Add("plain", nullptr);
  ASSERT_TRUE(cluster_.WaitServing(1, 0));
  const absl::Status status = Ask("", 1, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--inspect"));
}

}  // namespace
}  // namespace specwire::coordinator
