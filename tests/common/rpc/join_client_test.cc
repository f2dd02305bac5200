// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/join_client.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "gtest/gtest.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "tests/common/rpc/stream_test_util.h"

namespace specwire {
namespace {

using Sender = std::shared_ptr<ServerSender<v1::JoinResponse>>;

// Serves Join as a coordinator does, and remembers.
class FakeCoordinator {
 public:
  // Port 0 takes a free one.
  explicit FakeCoordinator(const std::string& listen = "127.0.0.1:0",
                           bool accepts = true)
      : service_(this), accepts_(accepts) {
    RpcServerOptions options;
    options.listen = listen;
    auto server = RpcServer::Start(options, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  const std::string& address() const { return server_->address(); }

  bool AwaitRegistrations(size_t count) {
    return monitor_.Await([&] { return registrations_.size() >= count; });
  }
  bool AwaitLoads(size_t count) {
    return monitor_.Await([&] { return loads_.size() >= count; });
  }
  bool AwaitClosed(int count) {
    return monitor_.Await([&] { return num_closed_ >= count; });
  }
  std::vector<v1::NodeRegistration> registrations() {
    std::vector<v1::NodeRegistration> copy;
    monitor_.Update([&] { copy = registrations_; });
    return copy;
  }
  std::vector<v1::NodeLoad> loads() {
    std::vector<v1::NodeLoad> copy;
    monitor_.Update([&] { copy = loads_; });
    return copy;
  }
  void Drain(int64_t grace_ms) {
    v1::JoinResponse response;
    response.mutable_drain()->set_grace_ms(grace_ms);
    sender_->Send(response);
  }
  void EndStream(absl::Status status) { sender_->Finish(std::move(status)); }

 private:
  class Handler final : public StreamHandler<v1::JoinRequest> {
   public:
    Handler(FakeCoordinator* owner, Sender sender)
        : owner_(owner), sender_(std::move(sender)) {}
    void OnMessage(v1::JoinRequest message) override {
      if (message.has_registration() && owner_->accepts_) {
        v1::JoinResponse response;
        response.mutable_accepted()->set_node_id("node-1");
        response.mutable_accepted()->set_report_interval_ms(20);
        sender_->Send(response);
      }
      owner_->monitor_.Update([&] {
        owner_->sender_ = sender_;
        if (message.has_registration()) {
          owner_->registrations_.push_back(message.registration());
        } else {
          owner_->loads_.push_back(message.load());
        }
      });
    }
    void OnClosed(absl::Status) override {
      owner_->monitor_.Update([&] { ++owner_->num_closed_; });
    }

   private:
    FakeCoordinator* const owner_;
    const Sender sender_;
  };

  class Service final : public v1::ClusterService::CallbackService {
   public:
    explicit Service(FakeCoordinator* owner) : owner_(owner) {}
    grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse>* Join(
        grpc::CallbackServerContext* context) override {
      return StartServerStream<v1::JoinRequest, v1::JoinResponse>(
          context, StreamLimits(), [&](Sender sender) {
            return std::make_shared<Handler>(owner_, sender);
          });
    }

   private:
    FakeCoordinator* const owner_;
  };

  Service service_;
  const bool accepts_;
  Monitor monitor_;
  Sender sender_;
  std::vector<v1::NodeRegistration> registrations_;
  std::vector<v1::NodeLoad> loads_;
  int num_closed_ = 0;
  // Last: its calls use all of the above.
  std::unique_ptr<RpcServer> server_;
};

// An address at which nobody listens.
std::string FreeAddress() {
  FakeCoordinator taken;
  return taken.address();
}

JoinClientOptions Options(std::vector<std::string> coordinators) {
  JoinClientOptions options;
  options.coordinators = std::move(coordinators);
  options.registration.set_name("draft-1");
  options.registration.set_role(v1::NODE_ROLE_DRAFT);
  options.registration.set_incarnation_id("abc");
  options.min_backoff = absl::Milliseconds(20);
  options.max_backoff = absl::Milliseconds(100);
  return options;
}

v1::NodeLoad SomeLoad() {
  v1::NodeLoad load;
  load.set_num_sequences(7);
  return load;
}

TEST(JoinClientTest, RegistersOnceAndReportsItsLoad) {
  FakeCoordinator coordinator;
  std::atomic<int64_t> progress = 0;
  JoinClient client(
      Options({coordinator.address()}),
      [&] {
        v1::NodeLoad load = SomeLoad();
        load.set_progress(++progress);
        return load;
      },
      nullptr);
  ASSERT_TRUE(coordinator.AwaitLoads(3));
  EXPECT_EQ(client.num_joined(), 1);
  ASSERT_EQ(coordinator.registrations().size(), 1u);
  EXPECT_EQ(coordinator.registrations()[0].name(), "draft-1");
  EXPECT_EQ(coordinator.registrations()[0].incarnation_id(), "abc");
  EXPECT_EQ(coordinator.loads()[0].num_sequences(), 7);
  EXPECT_EQ(coordinator.loads()[2].progress(), 3);
}

TEST(JoinClientTest, TheCoordinatorMayStartLater) {
  const std::string address = FreeAddress();
  JoinClient client(Options({address}), SomeLoad, nullptr);
  EXPECT_EQ(client.num_joined(), 0);
  absl::SleepFor(absl::Milliseconds(200));
  FakeCoordinator coordinator(address);
  EXPECT_TRUE(coordinator.AwaitLoads(1));
}

TEST(JoinClientTest, RegistersAgainAfterACoordinatorsRestart) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const std::string address = coordinator->address();
  JoinClient client(Options({address}), SomeLoad, nullptr);
  for (int restart = 0; restart < 3; ++restart) {
    ASSERT_TRUE(coordinator->AwaitLoads(1));
    coordinator.reset();
    coordinator = std::make_unique<FakeCoordinator>(address);
  }
  EXPECT_TRUE(coordinator->AwaitRegistrations(1));
}

TEST(JoinClientTest, TriesAgainWhenTheStreamIsEnded) {
  FakeCoordinator coordinator;
  JoinClient client(Options({coordinator.address()}), SomeLoad, nullptr);
  ASSERT_TRUE(coordinator.AwaitLoads(1));
  coordinator.EndStream(absl::OkStatus());
  EXPECT_TRUE(coordinator.AwaitRegistrations(2));
  coordinator.EndStream(absl::AlreadyExistsError("the name is taken"));
  EXPECT_TRUE(coordinator.AwaitRegistrations(3));
}

TEST(JoinClientTest, JoinsEveryCoordinatorThatIsThere) {
  FakeCoordinator first;
  FakeCoordinator second;
  JoinClient client(Options({first.address(), FreeAddress(), second.address()}),
                    SomeLoad,
                    nullptr);
  EXPECT_TRUE(first.AwaitLoads(2));
  EXPECT_TRUE(second.AwaitLoads(2));
  EXPECT_EQ(client.num_joined(), 2);
}

TEST(JoinClientTest, PassesOnADrain) {
  FakeCoordinator coordinator;
  Monitor monitor;
  absl::Duration grace;
  JoinClient client(
      Options({coordinator.address()}), SomeLoad, [&](absl::Duration told) {
        monitor.Update([&] { grace = told; });
      });
  ASSERT_TRUE(coordinator.AwaitLoads(1));
  coordinator.Drain(1500);
  EXPECT_TRUE(monitor.Await([&] { return grace == absl::Milliseconds(1500); }));
}

TEST(JoinClientTest, GivesUpOnACoordinatorThatDoesNotAnswer) {
  FakeCoordinator silent("127.0.0.1:0", /*accepts=*/false);
  JoinClientOptions options = Options({silent.address()});
  options.accept_timeout = absl::Milliseconds(50);
  JoinClient client(options, SomeLoad, nullptr);
  EXPECT_TRUE(silent.AwaitRegistrations(3));
  EXPECT_EQ(client.num_joined(), 0);
  EXPECT_TRUE(silent.loads().empty());
}

TEST(JoinClientTest, StopLeavesAndSilencesAllCallbacks) {
  FakeCoordinator coordinator;
  std::atomic<int> calls = 0;
  JoinClient client(
      Options({coordinator.address(), FreeAddress()}),
      [&] {
        ++calls;
        return SomeLoad();
      },
      nullptr);
  ASSERT_TRUE(coordinator.AwaitLoads(2));
  const absl::Time start = absl::Now();
  client.Stop();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  const int before = calls;
  EXPECT_TRUE(coordinator.AwaitClosed(1));
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_EQ(calls, before);
  EXPECT_EQ(client.num_joined(), 0);
}

}  // namespace
}  // namespace specwire
