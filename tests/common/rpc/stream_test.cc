// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/relay.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "tests/common/base/event.h"
#include "tests/common/rpc/stream_test_util.h"

namespace specwire {
namespace {

using Request = v1::DecodeRequest;
using Response = v1::DecodeResponse;
using ServerHandler = RecordingHandler<Request>;
using ClientHandler = RecordingHandler<Response>;
using Sender = std::shared_ptr<ServerSender<Response>>;

// Serves Decode with whatever handler a test makes. Streams that are opened
// without one are echoed.
class StreamService final : public v1::VerifierService::CallbackService {
 public:
  using MakeHandler = std::function<std::shared_ptr<ServerHandler>(Sender)>;

  grpc::ServerBidiReactor<Request, Response>* Decode(
      grpc::CallbackServerContext* context) override {
    return StartServerStream<Request, Response>(
        context, limits, [&](Sender sender) { return make_handler(sender); });
  }

  StreamLimits limits;
  MakeHandler make_handler;
};

Request Tokens(int position, size_t count = 1) {
  Request request;
  request.mutable_proposal()->set_position(position);
  request.mutable_proposal()->mutable_tokens()->Resize(static_cast<int>(count),
                                                       5);
  return request;
}

Response Reply(int position, size_t count = 1) {
  Response response;
  response.set_position(position);
  response.mutable_tokens()->Resize(static_cast<int>(count), 7);
  return response;
}

std::shared_ptr<ServerHandler> EchoHandler(Sender sender) {
  auto handler = std::make_shared<ServerHandler>();
  handler->on_message = [sender](const Request& request) {
    sender->Send(Reply(request.proposal().position()));
  };
  return handler;
}

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    service_.make_handler = [this](Sender sender) {
      std::shared_ptr<ServerHandler> handler = make_handler_(sender);
      monitor_.Update([&] {
        handler_ = handler;
        sender_ = sender;
      });
      return handler;
    };
    StartServer(RpcServerOptions());
  }

  void StartServer(const RpcServerOptions& options) {
    server_.reset();
    auto server = RpcServer::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::VerifierService::NewStub(MakeChannel(server_->address()));
  }

  void TearDown() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->Shutdown(absl::ZeroDuration()).ok());
    }
  }

  std::shared_ptr<ClientSender<Request>> Open(
      std::shared_ptr<StreamHandler<Response>> handler,
      const ClientStreamOptions& options = {}) {
    return StartClientStream<Request, Response>(
        options,
        std::move(handler),
        [this](grpc::ClientContext* context, auto* reactor) {
          stub_->async()->Decode(context, reactor);
        });
  }

  // The server's end of the latest stream.
  ServerHandler* AwaitServerHandler() {
    EXPECT_TRUE(monitor_.Await([&] { return handler_ != nullptr; }));
    return handler_.get();
  }
  Sender AwaitServerSender() {
    AwaitServerHandler();
    return sender_;
  }

  StreamService service_;
  StreamService::MakeHandler make_handler_ = EchoHandler;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::VerifierService::Stub> stub_;
  Monitor monitor_;
  std::shared_ptr<ServerHandler> handler_;
  Sender sender_;
};

TEST_F(StreamTest, EchoesInOrder) {
  constexpr int kMessages = 1000;
  service_.limits.max_queued_messages = kMessages;
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(sender->Send(Tokens(i)));
  sender->WritesDone();
  EXPECT_FALSE(sender->Send(Tokens(0)));
  EXPECT_TRUE(handler->AwaitClosed().ok());
  const std::vector<Response> messages = handler->messages();
  ASSERT_EQ(messages.size(), static_cast<size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(messages[static_cast<size_t>(i)].position(), i);
  }
  EXPECT_EQ(handler->num_written(), kMessages);
  EXPECT_TRUE(AwaitServerHandler()->AwaitClosed().ok());
}

TEST_F(StreamTest, TheClientCanCancel) {
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  sender->Send(Tokens(0));
  ASSERT_TRUE(handler->AwaitMessages(1));
  sender->Cancel();
  EXPECT_EQ(handler->AwaitClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(StreamTest, FinishComesAfterWhatIsQueued) {
  make_handler_ = [](Sender sender) {
    auto made = std::make_shared<ServerHandler>();
    made->on_message = [sender](const Request&) {
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(sender->Send(Reply(i, 1000)));
      sender->Finish(absl::NotFoundError("no more"));
      EXPECT_FALSE(sender->Send(Reply(100)));
      sender->Finish(absl::InternalError("ignored"));
    };
    return made;
  };
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  sender->Send(Tokens(0));
  EXPECT_EQ(handler->AwaitClosed(), absl::NotFoundError("no more"));
  EXPECT_EQ(handler->messages().size(), 100u);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed(),
            absl::NotFoundError("no more"));
}

TEST_F(StreamTest, AHandlerCanRefuseTheCall) {
  make_handler_ = [](Sender sender) {
    sender->Finish(absl::UnavailableError("draining"));
    return std::make_shared<ServerHandler>();
  };
  auto handler = std::make_shared<ClientHandler>();
  Open(handler);
  EXPECT_EQ(handler->AwaitClosed(), absl::UnavailableError("draining"));
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed(),
            absl::UnavailableError("draining"));
}

TEST_F(StreamTest, AHandlerCanGoOnAfterThePeerIsDone) {
  make_handler_ = [](Sender) {
    auto made = std::make_shared<ServerHandler>();
    made->finish_when_peer_is_done = false;
    return made;
  };
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  sender->WritesDone();
  ASSERT_TRUE(AwaitServerHandler()->AwaitPeerDone());
  EXPECT_TRUE(AwaitServerSender()->Send(Reply(1)));
  ASSERT_TRUE(handler->AwaitMessages(1));
  EXPECT_FALSE(handler->closed());
  AwaitServerSender()->Finish(absl::OkStatus());
  EXPECT_TRUE(handler->AwaitClosed().ok());
}

TEST_F(StreamTest, AFullQueueEndsTheServersStream) {
  service_.limits.max_queued_messages = 16;
  Event go_on;
  auto handler = std::make_shared<ClientHandler>();
  handler->on_message = [&](const Response&) { go_on.Wait(); };
  Open(handler);
  const Sender sender = AwaitServerSender();
  int sent = 0;
  // The client reads one; flow control takes some more.
  while (sender->Send(Reply(sent, 16384))) ASSERT_LT(++sent, 10000);
  EXPECT_GE(sent, 16);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kResourceExhausted);
  go_on.Notify();
  EXPECT_FALSE(handler->AwaitClosed().ok());
  EXPECT_LT(handler->messages().size(), static_cast<size_t>(sent));
}

TEST_F(StreamTest, AFullQueueEndsTheClientsStream) {
  Event go_on;
  make_handler_ = [&](Sender) {
    auto made = std::make_shared<ServerHandler>();
    made->on_message = [&](const Request&) { go_on.Wait(); };
    return made;
  };
  ClientStreamOptions options;
  options.limits.max_queued_bytes = 100'000;
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler, options);
  AwaitServerHandler();
  int sent = 0;
  while (sender->Send(Tokens(sent, 16384))) ASSERT_LT(++sent, 10000);
  EXPECT_GE(sent, 6);
  EXPECT_EQ(handler->AwaitClosed().code(),
            absl::StatusCode::kResourceExhausted);
  go_on.Notify();
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(StreamTest, AMessageThatNeverFitsIsToldToThePeer) {
  service_.limits.max_queued_bytes = 1000;
  auto handler = std::make_shared<ClientHandler>();
  Open(handler);
  EXPECT_FALSE(AwaitServerSender()->Send(Reply(0, 2000)));
  EXPECT_EQ(handler->AwaitClosed().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StreamTest, CancelDoesNotWaitForASlowReader) {
  Event go_on;
  auto handler = std::make_shared<ClientHandler>();
  handler->on_message = [&](const Response&) { go_on.Wait(); };
  Open(handler);
  const Sender sender = AwaitServerSender();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(sender->Send(Reply(i, 16384)));
  sender->Finish(absl::OkStatus());
  sender->Cancel(absl::UnavailableError("shutting down"));
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed(),
            absl::UnavailableError("shutting down"));
  go_on.Notify();
  EXPECT_FALSE(handler->AwaitClosed().ok());
}

TEST_F(StreamTest, SendersAreHarmlessAfterTheEnd) {
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  AwaitServerSender()->Finish(absl::OkStatus());
  EXPECT_TRUE(handler->AwaitClosed().ok());
  EXPECT_TRUE(AwaitServerHandler()->AwaitClosed().ok());
  EXPECT_FALSE(sender->Send(Tokens(0)));
  sender->WritesDone();
  sender->Cancel();
  EXPECT_FALSE(AwaitServerSender()->Send(Reply(0)));
  AwaitServerSender()->Finish(absl::InternalError("late"));
  AwaitServerSender()->Cancel(absl::InternalError("late"));
  EXPECT_EQ(sender->num_queued(), 0u);
  EXPECT_EQ(AwaitServerSender()->num_queued(), 0u);
}

TEST_F(StreamTest, TheStreamLetsGoOfItsHandlers) {
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  AwaitServerHandler();
  sender->Cancel();
  EXPECT_FALSE(handler->AwaitClosed().ok());
  EXPECT_FALSE(handler_->AwaitClosed().ok());
  // The reactors are deleted just after OnClosed.
  const std::weak_ptr<ClientHandler> client_end = handler;
  const std::weak_ptr<ServerHandler> server_end = handler_;
  handler.reset();
  handler_.reset();
  sender_.reset();
  const absl::Time deadline = absl::Now() + kTestTimeout;
  while ((!client_end.expired() || !server_end.expired()) &&
         absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(client_end.expired());
  EXPECT_TRUE(server_end.expired());
}

TEST_F(StreamTest, ADeadlineEndsBothSides) {
  ClientStreamOptions options;
  options.deadline = absl::Now() + absl::Milliseconds(300);
  auto handler = std::make_shared<ClientHandler>();
  Open(handler, options);
  EXPECT_EQ(handler->AwaitClosed().code(), absl::StatusCode::kDeadlineExceeded);
  const absl::StatusCode code = AwaitServerHandler()->AwaitClosed().code();
  EXPECT_TRUE(code == absl::StatusCode::kDeadlineExceeded ||
              code == absl::StatusCode::kCancelled)
      << code;
}

TEST_F(StreamTest, MetadataArrives) {
  class Service final : public v1::VerifierService::CallbackService {
   public:
    grpc::ServerBidiReactor<Request, Response>* Decode(
        grpc::CallbackServerContext* context) override {
      const auto found = context->client_metadata().find("x-key");
      if (found != context->client_metadata().end()) {
        value = std::string(found->second.data(), found->second.size());
      }
      return StartServerStream<Request, Response>(
          context, StreamLimits(), [](Sender sender) {
            sender->Finish(absl::OkStatus());
            return std::make_shared<ServerHandler>();
          });
    }
    std::string value;
  };
  Service service;
  auto server = RpcServer::Start(RpcServerOptions(), {&service});
  ASSERT_TRUE(server.ok());
  stub_ = v1::VerifierService::NewStub(MakeChannel((*server)->address()));
  ClientStreamOptions options;
  options.metadata = {{"x-key", "value"}};
  auto handler = std::make_shared<ClientHandler>();
  Open(handler, options);
  EXPECT_TRUE(handler->AwaitClosed().ok());
  EXPECT_EQ(service.value, "value");
}

// A message whose checksum says that it was another.
Request Altered() {
  Request request = Tokens(0);
  SetChecksum(0, &request);
  request.mutable_proposal()->set_tokens(0, 4);
  return request;
}

TEST_F(StreamTest, AnAlteredRequestEndsTheStreamUnseen) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTestTimeout));
  const auto stream = stub_->Decode(&context);
  EXPECT_TRUE(stream->Write(Altered()));
  Response response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(FromGrpcStatus(stream->Finish()).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(AwaitServerHandler()->messages().size(), 0u);
}

TEST_F(StreamTest, ARequestOutOfItsPlaceEndsTheStreamUnseen) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTestTimeout));
  const auto stream = stub_->Decode(&context);
  Request second = Tokens(1);
  SetChecksum(1, &second);
  EXPECT_TRUE(stream->Write(second));
  EXPECT_EQ(FromGrpcStatus(stream->Finish()).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(AwaitServerHandler()->messages().size(), 0u);
}

// Says what it was made to say, and no more.
class FixedReply final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit FixedReply(Response response) : response_(std::move(response)) {
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const Response response_;
};

class FixedReplyService final : public v1::VerifierService::CallbackService {
 public:
  explicit FixedReplyService(Response response)
      : response_(std::move(response)) {}
  grpc::ServerBidiReactor<Request, Response>* Decode(
      grpc::CallbackServerContext* /*context*/) override {
    return new FixedReply(response_);
  }

 private:
  const Response response_;
};

absl::Status StatusOf(const Response& response, size_t* num_messages) {
  FixedReplyService service(response);
  auto server = RpcServer::Start(RpcServerOptions(), {&service});
  if (!server.ok()) return server.status();
  const auto stub =
      v1::VerifierService::NewStub(MakeChannel((*server)->address()));
  auto handler = std::make_shared<ClientHandler>();
  const auto sender = StartClientStream<Request, Response>(
      {}, handler, [&](grpc::ClientContext* context, auto* reactor) {
        stub->async()->Decode(context, reactor);
      });
  absl::Status status = handler->AwaitClosed();
  *num_messages = handler->messages().size();
  return status;
}

TEST(StreamChecksumTest, AnAlteredResponseIsNotHeard) {
  Response response = Reply(0, 2);
  SetChecksum(0, &response);
  size_t num_messages = 0;
  EXPECT_TRUE(StatusOf(response, &num_messages).ok());
  EXPECT_EQ(num_messages, 1u);
  response.set_tokens(1, 6);
  EXPECT_EQ(StatusOf(response, &num_messages).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(num_messages, 0u);
}

TEST_F(StreamTest, NobodyThereIsUnavailable) {
  const std::string address = server_->address();
  server_.reset();
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  EXPECT_EQ(handler->AwaitClosed().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StreamTest, TheServersEndEndsTheClientsStreams) {
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  AwaitServerHandler();
  EXPECT_TRUE(server_->Shutdown(absl::ZeroDuration()).ok());
  EXPECT_FALSE(handler->AwaitClosed().ok());
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(StreamTest, BothSidesNoticeThatThePeerHasVanished) {
  RpcServerOptions options;
  options.keepalive_time = absl::Milliseconds(200);
  options.keepalive_timeout = absl::Milliseconds(500);
  options.min_ping_interval = absl::Milliseconds(50);
  StartServer(options);
  RelayOptions relay_options;
  relay_options.target = server_->address();
  const auto relay = Relay::Start(relay_options);
  ASSERT_TRUE(relay.ok()) << relay.status();
  RpcChannelOptions channel;
  channel.keepalive_time = absl::Milliseconds(200);
  channel.keepalive_timeout = absl::Milliseconds(500);
  stub_ =
      v1::VerifierService::NewStub(MakeChannel((*relay)->address(), channel));
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  sender->Send(Tokens(0));
  ASSERT_TRUE(handler->AwaitMessages(1));
  // The connection stays open, but nothing passes any more.
  ASSERT_TRUE(
      (*relay)->SetConditions({.stalled = true}, {.stalled = true}).ok());
  sender->Send(Tokens(1));
  EXPECT_EQ(handler->AwaitClosed().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AwaitServerHandler()->AwaitClosed().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(StreamTest, IdleStreamsAreNotCutForTheirPings) {
  RpcServerOptions options;
  options.min_ping_interval = absl::Milliseconds(50);
  StartServer(options);
  RpcChannelOptions channel;
  channel.keepalive_time = absl::Milliseconds(100);
  stub_ =
      v1::VerifierService::NewStub(MakeChannel(server_->address(), channel));
  auto handler = std::make_shared<ClientHandler>();
  auto sender = Open(handler);
  sender->Send(Tokens(0));
  ASSERT_TRUE(handler->AwaitMessages(1));
  absl::SleepFor(absl::Seconds(1));
  EXPECT_FALSE(handler->closed());
  sender->Send(Tokens(1));
  EXPECT_TRUE(handler->AwaitMessages(2));
  sender->Cancel();
  EXPECT_EQ(handler->AwaitClosed().code(), absl::StatusCode::kCancelled);
}

// One client thread's share of the streams of the storm below.
void OpenAndEndStreams(
    unsigned seed,
    int count,
    const std::function<std::shared_ptr<ClientSender<Request>>(
        std::shared_ptr<ClientHandler>)>& open) {
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    auto handler = std::make_shared<ClientHandler>();
    auto sender = open(handler);
    const int messages = static_cast<int>(random() % 4);
    for (int m = 0; m < messages; ++m) sender->Send(Tokens(m));
    switch (random() % 4) {
      case 0:
        sender->Cancel();
        break;
      case 1:
        sender->WritesDone();
        break;
      case 2: {
        std::thread other([sender] { sender->Cancel(); });
        sender->Send(Tokens(9));
        sender->WritesDone();
        other.join();
        break;
      }
      default:
        handler->AwaitMessages(static_cast<size_t>(messages));
        sender->Cancel();
    }
    handler->AwaitClosed().IgnoreError();
  }
}

TEST_F(StreamTest, AThousandStreamsStartAndEndAtRandom) {
  constexpr int kThreads = 8;
  constexpr int kStreams = 125;
  std::atomic<int> opened = 0;
  std::atomic<int> closed = 0;
  make_handler_ = [&](Sender sender) {
    const int number = ++opened;
    auto made = EchoHandler(sender);
    if (number % 3 == 0) {
      // Ends from another thread, at any time.
      std::thread([sender, number] {
        if (number % 2 == 0) {
          sender->Finish(absl::AbortedError("enough"));
        } else {
          sender->Cancel(absl::AbortedError("enough"));
        }
      }).detach();
    }
    made->on_closed = [&](const absl::Status&) { ++closed; };
    return made;
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      OpenAndEndStreams(
          t, kStreams, [this](std::shared_ptr<ClientHandler> handler) {
            return Open(std::move(handler));
          });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  EXPECT_EQ(closed.load(), opened.load());
  EXPECT_GT(opened.load(), kThreads * kStreams / 4);
}

}  // namespace
}  // namespace specwire
