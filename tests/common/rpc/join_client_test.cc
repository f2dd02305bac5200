// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/join_client.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "tests/common/rpc/stream_test_util.h"
#include "tests/testing/eventually.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;

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

  // What it promises, and keeps if `answers`.
  std::atomic<int32_t> max_silence_ms = 0;
  std::atomic<bool> answers = true;

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
  bool AwaitDrainings(size_t count) {
    return monitor_.Await([&] { return drainings_.size() >= count; });
  }
  std::vector<v1::NodeDraining> drainings() {
    std::vector<v1::NodeDraining> copy;
    monitor_.Update([&] { copy = drainings_; });
    return copy;
  }
  std::vector<v1::NodeLoad> loads() {
    std::vector<v1::NodeLoad> copy;
    monitor_.Update([&] { copy = loads_; });
    return copy;
  }
  void Drain(std::optional<int64_t> grace_ms) {
    v1::JoinResponse response;
    v1::DrainCommand* const drain = response.mutable_drain();
    if (grace_ms.has_value()) drain->set_grace_ms(*grace_ms);
    sender_->Send(response);
  }
  void EndStream(absl::Status status) { sender_->Finish(std::move(status)); }
  // Connections over which there were calls.
  size_t num_peers() {
    size_t count = 0;
    monitor_.Update([&] { count = peers_.size(); });
    return count;
  }

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
        response.mutable_accepted()->set_max_silence_ms(owner_->max_silence_ms);
        sender_->Send(response);
      }
      if (message.has_load() && owner_->answers) {
        v1::JoinResponse response;
        response.mutable_alive();
        sender_->Send(response);
      }
      owner_->monitor_.Update([&] {
        owner_->sender_ = sender_;
        if (message.has_registration()) {
          owner_->registrations_.push_back(message.registration());
        } else if (message.has_draining()) {
          owner_->drainings_.push_back(message.draining());
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
      owner_->monitor_.Update([&] { owner_->peers_.insert(context->peer()); });
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
  std::vector<v1::NodeDraining> drainings_;
  std::set<std::string> peers_;
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

// A connection may carry calls and fail them all.
TEST(JoinClientTest, TriesAgainOverAnotherConnection) {
  FakeCoordinator coordinator;
  JoinClient client(Options({coordinator.address()}), SomeLoad, nullptr);
  ASSERT_TRUE(coordinator.AwaitLoads(1));
  coordinator.EndStream(absl::UnknownError("bad header"));
  EXPECT_TRUE(coordinator.AwaitRegistrations(2));
  EXPECT_EQ(coordinator.num_peers(), 2u);
}

TEST(JoinClientTest, JoinsAnewIfItsReportsAreNotAnswered) {
  FakeCoordinator coordinator;
  coordinator.max_silence_ms = 200;
  JoinClient client(Options({coordinator.address()}), SomeLoad, nullptr);
  // Ten times as long as it may be silent.
  ASSERT_TRUE(coordinator.AwaitLoads(100));
  EXPECT_EQ(coordinator.registrations().size(), 1u);
  coordinator.answers = false;
  EXPECT_TRUE(coordinator.AwaitRegistrations(2));
  EXPECT_EQ(coordinator.num_peers(), 2u);
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
  std::vector<std::optional<absl::Duration>> graces;
  JoinClient client(Options({coordinator.address()}),
                    SomeLoad,
                    [&](std::optional<absl::Duration> grace) {
                      monitor.Update([&] { graces.push_back(grace); });
                    });
  ASSERT_TRUE(coordinator.AwaitLoads(1));
  coordinator.Drain(1500);
  coordinator.Drain(std::nullopt);
  coordinator.Drain(-7);
  EXPECT_TRUE(monitor.Await([&] { return graces.size() == 3; }));
  EXPECT_THAT(
      graces,
      ElementsAre(
          absl::Milliseconds(1500), std::nullopt, absl::ZeroDuration()));
}

TEST(JoinClientTest, TellsAllCoordinatorsThatTheNodeDrains) {
  FakeCoordinator first;
  const std::string later_address = FreeAddress();
  JoinClient client(
      Options({first.address(), later_address}), SomeLoad, nullptr);
  ASSERT_TRUE(first.AwaitLoads(1));
  client.TellDraining("a signal", absl::Seconds(30));
  ASSERT_TRUE(first.AwaitDrainings(1));
  EXPECT_EQ(first.drainings()[0].reason(), "a signal");
  EXPECT_GT(first.drainings()[0].grace_ms(), 20'000);
  EXPECT_LE(first.drainings()[0].grace_ms(), 30'000);
  // It is a member all the while.
  const size_t reported = first.loads().size();
  EXPECT_TRUE(first.AwaitLoads(reported + 2));
  FakeCoordinator later(later_address);
  EXPECT_TRUE(later.AwaitDrainings(1));
}

// Names that are in no DNS.
class FakeNames {
 public:
  void Set(absl::StatusOr<std::vector<std::string>> addresses) {
    MutexLock lock(&mutex_);
    addresses_ = std::move(addresses);
  }
  absl::StatusOr<std::vector<std::string>> Resolve(const HostPort& name) {
    EXPECT_EQ(name.ToString(), "coordinators.test:7070");
    MutexLock lock(&mutex_);
    ++num_asked_;
    return addresses_;
  }
  int num_asked() {
    MutexLock lock(&mutex_);
    return num_asked_;
  }

 private:
  Mutex mutex_;
  absl::StatusOr<std::vector<std::string>> addresses_ =
      absl::UnavailableError("not yet");
  int num_asked_ = 0;
};

JoinClientOptions NameOptions(FakeNames* names) {
  JoinClientOptions options = Options({"dns:///coordinators.test:7070"});
  options.names.period = absl::Milliseconds(20);
  options.names.least_pause = absl::Milliseconds(5);
  options.names.keep = absl::ZeroDuration();
  options.names.resolve = [names](const HostPort& name) {
    return names->Resolve(name);
  };
  return options;
}

TEST(JoinClientTest, JoinsAndLeavesTheAddressesThatANameHas) {
  FakeCoordinator first;
  FakeCoordinator second;
  FakeNames names;
  JoinClient client(NameOptions(&names), SomeLoad, nullptr);
  const auto asked_again = [&] {
    const int before = names.num_asked();
    return Eventually([&] { return names.num_asked() >= before + 2; });
  };
  ASSERT_TRUE(asked_again());
  EXPECT_EQ(client.num_joined(), 0);
  names.Set(std::vector<std::string>{first.address()});
  ASSERT_TRUE(first.AwaitLoads(1));
  names.Set(std::vector<std::string>{first.address(), second.address()});
  ASSERT_TRUE(second.AwaitLoads(1));
  EXPECT_EQ(client.num_joined(), 2);
  // A name that cannot be looked up keeps what it had.
  names.Set(absl::UnavailableError("the name server is down"));
  ASSERT_TRUE(asked_again());
  EXPECT_EQ(client.num_joined(), 2);
  names.Set(std::vector<std::string>{second.address()});
  EXPECT_TRUE(first.AwaitClosed(1));
  const size_t reported = second.loads().size();
  EXPECT_TRUE(second.AwaitLoads(reported + 2));
  EXPECT_EQ(client.num_joined(), 1);
  EXPECT_EQ(second.registrations().size(), 1u);
}

TEST(JoinClientTest, LooksANameUpAtOnceWhenACoordinatorIsLost) {
  auto first = std::make_unique<FakeCoordinator>();
  FakeCoordinator second;
  FakeNames names;
  names.Set(std::vector<std::string>{first->address()});
  JoinClientOptions options = NameOptions(&names);
  options.names.period = absl::Hours(1);
  JoinClient client(options, SomeLoad, nullptr);
  ASSERT_TRUE(first->AwaitLoads(1));
  names.Set(std::vector<std::string>{second.address()});
  first.reset();
  EXPECT_TRUE(second.AwaitLoads(1));
}

TEST(JoinClientTest, AnAddressMayBeMissingFromAnAnswerForAWhile) {
  FakeCoordinator first;
  FakeCoordinator second;
  FakeNames names;
  names.Set(std::vector<std::string>{first.address()});
  JoinClientOptions options = NameOptions(&names);
  options.names.keep = absl::Hours(1);
  JoinClient client(options, SomeLoad, nullptr);
  ASSERT_TRUE(first.AwaitLoads(1));
  names.Set(std::vector<std::string>{second.address()});
  ASSERT_TRUE(second.AwaitLoads(1));
  EXPECT_EQ(client.num_joined(), 2);
}

TEST(JoinClientTest, DoesNotWaitForALookUpThatHangs) {
  auto hung = std::make_shared<Monitor>();
  auto released = std::make_shared<bool>(false);
  auto asked = std::make_shared<bool>(false);
  JoinClientOptions options = Options({"dns:///coordinators.test:7070"});
  options.names.resolve = [=](const HostPort&) {
    hung->Update([&] { *asked = true; });
    hung->Await([&] { return *released; });
    return absl::StatusOr<std::vector<std::string>>(
        std::vector<std::string>{"127.0.0.1:1"});
  };
  auto client = std::make_unique<JoinClient>(options, SomeLoad, nullptr);
  ASSERT_TRUE(hung->Await([&] { return *asked; }));
  const absl::Time start = absl::Now();
  client.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  hung->Update([&] { *released = true; });
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
