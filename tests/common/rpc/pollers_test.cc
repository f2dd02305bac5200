// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/pollers.h"

#include <set>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"
#include "specwire/v1/generation.grpc.pb.h"

namespace specwire {
namespace {

// Remembers on which threads it is called.
class Service final : public v1::GenerationService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Tokenize(
      grpc::CallbackServerContext* context,
      const v1::TokenizeRequest* /*request*/,
      v1::TokenizeResponse* /*response*/) override {
    {
      MutexLock lock(&mutex_);
      threads_.insert(std::this_thread::get_id());
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  size_t num_threads() {
    MutexLock lock(&mutex_);
    return threads_.size();
  }

 private:
  Mutex mutex_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

bool CallOften(const std::string& address) {
  const auto stub = v1::GenerationService::NewStub(MakeChannel(address));
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::TokenizeResponse response;
    if (!stub->Tokenize(&context, {}, &response).ok()) return false;
  }
  return true;
}

TEST(PollersTest, ServesOnAsManyThreadsAsAreLeft) {
  Service service;
  const auto server = RpcServer::Start({}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  {
    const Pollers pollers(1);
    EXPECT_GE(pollers.num_parked(), 1);
    ASSERT_TRUE(CallOften((*server)->address()));
    EXPECT_EQ(service.num_threads(), 1u);
  }
  // All are back, and a second time they are found.
  ASSERT_TRUE(CallOften((*server)->address()));
  const Pollers again(1);
  EXPECT_GE(again.num_parked(), 1);
  ASSERT_TRUE(CallOften((*server)->address()));
}

TEST(PollersTest, LeavesAllIfAllAreWanted) {
  Service service;
  const auto server = RpcServer::Start({}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const Pollers pollers(1000);
  EXPECT_EQ(pollers.num_parked(), 0);
  EXPECT_TRUE(CallOften((*server)->address()));
}

}  // namespace
}  // namespace specwire
