// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/node_health.h"

#include <functional>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "gtest/gtest.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "tests/testing/health.h"

namespace specwire {
namespace {

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

  int Check(const std::string& service) {
    return CheckHealth(channel_, service);
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
  EXPECT_TRUE(Becomes(kHealthServing));
  Set(/*working=*/true, /*advances=*/false);
  EXPECT_TRUE(Becomes(kHealthNotServing));
  EXPECT_FALSE(health_->healthy());
  Set(/*working=*/true, /*advances=*/true);
  EXPECT_TRUE(Becomes(kHealthServing));
  EXPECT_TRUE(health_->healthy());
}

TEST_F(NodeHealthTest, AnIdleOrBusyEngineIsServing) {
  for (const bool working : {false, true}) {
    Set(working, /*advances=*/working);
    const absl::Time end = absl::Now() + absl::Milliseconds(400);
    while (absl::Now() < end) {
      EXPECT_EQ(Check(""), kHealthServing);
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
}

TEST_F(NodeHealthTest, ADrainingNodeStaysNotServing) {
  health_->SetDraining();
  EXPECT_TRUE(health_->draining());
  EXPECT_EQ(Check(""), kHealthNotServing);
  Set(/*working=*/true, /*advances=*/false);
  EXPECT_TRUE(Becomes(kHealthNotServing));
  Set(/*working=*/true, /*advances=*/true);
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(Check(""), kHealthNotServing);
}

}  // namespace
}  // namespace specwire
