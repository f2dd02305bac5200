// SPDX-License-Identifier: Apache-2.0

// Whom calls count for, over connections and within the process.

#include <chrono>
#include <memory>
#include <string>

#include "common/rpc/server.h"
#include "coordinator/access.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire::coordinator {
namespace {

// Remembers whom its latest call counts for.
class Service final : public v1::ClusterService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStats(
      grpc::CallbackServerContext* context,
      const v1::GetStatsRequest* /*request*/,
      v1::GetStatsResponse* /*response*/) override {
    with_keys = UserOf(*context, /*keys=*/true);
    without_keys = UserOf(*context, /*keys=*/false);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::string with_keys;
  std::string without_keys;
};

class UserOfTest : public testing::Test {
 protected:
  UserOfTest() { server_ = *RpcServer::Start({}, {&service_}); }

  void Call(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& authorization,
            const std::string& for_key) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::minutes(1));
    if (!authorization.empty()) {
      context.AddMetadata("authorization", authorization);
    }
    if (!for_key.empty()) {
      context.AddMetadata(kForKey, for_key);
      context.AddMetadata(kForPeer, "10.1.2.3:4");
    }
    v1::GetStatsResponse response;
    const auto stub = v1::ClusterService::NewStub(channel);
    EXPECT_TRUE(
        stub->GetStats(&context, v1::GetStatsRequest(), &response).ok());
  }
  std::string Address() {
    return "127.0.0.1:" + std::to_string(server_->port());
  }

  Service service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(UserOfTest, IsTheKeyOrElseTheConnection) {
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials());
  Call(channel, "Bearer a", "");
  EXPECT_EQ(service_.with_keys, KeyDigest("Bearer a"));
  EXPECT_EQ(service_.without_keys.substr(0, 15), "ipv4:127.0.0.1:");
  // However it is written.
  Call(channel, "bearer  a ", "");
  EXPECT_EQ(service_.with_keys, KeyDigest("Bearer a"));
  Call(channel, "", "");
  EXPECT_EQ(service_.with_keys, service_.without_keys);
}

TEST_F(UserOfTest, OnlyThisProcessSaysForWhomItCalls) {
  Call(server_->InProcessChannel(), "", "digest");
  EXPECT_EQ(service_.with_keys, "digest");
  EXPECT_EQ(service_.without_keys, "10.1.2.3:4");
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials());
  Call(channel, "Bearer a", "digest");
  EXPECT_EQ(service_.with_keys, KeyDigest("Bearer a"));
  EXPECT_EQ(service_.without_keys.substr(0, 15), "ipv4:127.0.0.1:");
}

}  // namespace
}  // namespace specwire::coordinator
