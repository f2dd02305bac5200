// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/node_health.h"

#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "specwire/v1/draft.grpc.pb.h"

namespace specwire {
namespace {

constexpr int kServing = 1;
constexpr int kNotServing = 2;

class NodeHealthTest : public ::testing::Test {
 protected:
  NodeHealthTest() {
    auto server = RpcServer::Start(RpcServerOptions(), {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = MakeChannel(server_->address());
    health_ = std::make_unique<NodeHealth>(
        server_.get(),
        v1::DraftService::service_full_name(),
        [this] { return Load(); },
        NodeHealthOptions{.max_stall = absl::Milliseconds(100),
                          .period = absl::Milliseconds(50)});
  }

  v1::NodeLoad Load() {
    MutexLock lock(&mutex_);
    if (advances_) ++progress_;
    v1::NodeLoad load;
    load.set_progress(progress_);
    load.set_working(working_);
    return load;
  }

  void Set(bool working, bool advances) {
    MutexLock lock(&mutex_);
    working_ = working;
    advances_ = advances;
  }

  // What gRPC's health service says of `service`. Its messages have one field
  // each, like these.
  int Check(const std::string& service) {
    grpc::TemplatedGenericStub<google::protobuf::StringValue,
                               google::protobuf::Int32Value>
        stub(channel_);
    grpc::ClientContext context;
    google::protobuf::StringValue request;
    request.set_value(service);
    google::protobuf::Int32Value response;
    absl::Notification done;
    stub.UnaryCall(&context,
                   "/grpc.health.v1.Health/Check",
                   grpc::StubOptions(),
                   &request,
                   &response,
                   [&done](const grpc::Status& status) {
                     EXPECT_TRUE(status.ok()) << status.error_message();
                     done.Notify();
                   });
    done.WaitForNotification();
    return response.value();
  }

  bool Becomes(int status) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (Check("") != status ||
           Check(v1::DraftService::service_full_name()) != status) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  v1::DraftService::CallbackService service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  Mutex mutex_;
  int64_t progress_ ABSL_GUARDED_BY(mutex_) = 0;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  bool advances_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<NodeHealth> health_;
};

TEST_F(NodeHealthTest, AHungEngineIsNotServingUntilItGetsOn) {
  EXPECT_TRUE(Becomes(kServing));
  Set(/*working=*/true, /*advances=*/false);
  EXPECT_TRUE(Becomes(kNotServing));
  EXPECT_FALSE(health_->healthy());
  Set(/*working=*/true, /*advances=*/true);
  EXPECT_TRUE(Becomes(kServing));
  EXPECT_TRUE(health_->healthy());
}

TEST_F(NodeHealthTest, AnIdleOrBusyEngineIsServing) {
  for (const bool working : {false, true}) {
    Set(working, /*advances=*/working);
    const absl::Time end = absl::Now() + absl::Milliseconds(400);
    while (absl::Now() < end) {
      EXPECT_EQ(Check(""), kServing);
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
}

TEST_F(NodeHealthTest, ADrainingNodeStaysNotServing) {
  health_->SetDraining();
  EXPECT_TRUE(health_->draining());
  EXPECT_EQ(Check(""), kNotServing);
  Set(/*working=*/true, /*advances=*/false);
  EXPECT_TRUE(Becomes(kNotServing));
  Set(/*working=*/true, /*advances=*/true);
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(Check(""), kNotServing);
}

}  // namespace
}  // namespace specwire
