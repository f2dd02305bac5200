// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <poll.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/draining.h"
#include "common/base/host_port.h"
#include "common/base/retry_delay.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "tests/common/base/event.h"
#include "tests/common/rpc/stream_test_util.h"
#include "tests/testing/loopback_socket.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using Handler = RecordingHandler<v1::DecodeRequest>;

// Decode streams stay open until somebody ends them.
class IdleService final : public v1::VerifierService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
      grpc::CallbackServerContext* context) override {
    return StartServerStream<v1::DecodeRequest, v1::DecodeResponse>(
        context, StreamLimits(), [&](auto sender) {
          sender->Send(v1::DecodeResponse());
          return handler;
        });
  }
  std::shared_ptr<Handler> handler = std::make_shared<Handler>();
};

std::unique_ptr<RpcServer> MustStart(const RpcServerOptions& options,
                                     grpc::Service* service) {
  auto server = RpcServer::Start(options, {service});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

struct RawAnswer {
  grpc::Status status;
  std::string bytes;
};

// Sends one message on a method that is known by name only and reads one.
RawAnswer CallRaw(const std::string& address,
                  const std::string& method,
                  const std::string& request) {
  grpc::GenericStub stub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  auto stream = stub.PrepareCall(&context, method, &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  RawAnswer answer;
  stream->StartCall(nullptr);
  next();
  const grpc::Slice slice(request);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  if (next()) {
    grpc::Slice single;
    EXPECT_TRUE(response.TrySingleSlice(&single).ok());
    answer.bytes.assign(reinterpret_cast<const char*>(single.begin()),
                        single.size());
    stream->Read(&response, nullptr);
    next();
  }
  stream->Finish(&answer.status, nullptr);
  next();
  queue.Shutdown();
  return answer;
}

// Field 1 of HealthCheckRequest is the service's name, field 1 of the response
// its status: 1 serving, 2 not serving.
RawAnswer CheckHealth(const std::string& address, const std::string& service) {
  std::string request;
  if (!service.empty()) {
    request =
        absl::StrCat("\x0a", std::string(1, char(service.size())), service);
  }
  return CallRaw(address, "/grpc.health.v1.Health/Check", request);
}

// An empty field 7 of ServerReflectionRequest asks for the services.
RawAnswer ListServices(const std::string& address) {
  return CallRaw(
      address,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x00", 2));
}

TEST(RpcServerTest, TakesAFreePort) {
  IdleService service;
  const auto server = MustStart(RpcServerOptions(), &service);
  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->address(), absl::StrCat("127.0.0.1:", server->port()));
}

TEST(RpcServerTest, SaysThatThePortIsTaken) {
  IdleService service;
  const auto first = MustStart(RpcServerOptions(), &service);
  RpcServerOptions options;
  options.listen = first->address();
  IdleService other;
  const auto second = RpcServer::Start(options, {&other});
  EXPECT_EQ(
      second.status(),
      absl::UnavailableError(absl::StrCat(
          "cannot listen on ", first->address(), ": address already in use")));
}

TEST(RpcServerTest, RefusesAMalformedAddress) {
  IdleService service;
  RpcServerOptions options;
  options.listen = "7070";
  EXPECT_EQ(RpcServer::Start(options, {&service}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RpcServerTest, ThePortIsFreeAfterTheEnd) {
  IdleService service;
  RpcServerOptions options;
  options.listen = MustStart(options, &service)->address();
  const auto again = MustStart(options, &service);
  EXPECT_EQ(again->address(), options.listen);
}

TEST(RpcServerTest, AnswersForItsHealth) {
  IdleService service;
  const auto server = MustStart(RpcServerOptions(), &service);
  const std::string name = "specwire.v1.VerifierService";
  EXPECT_EQ(CheckHealth(server->address(), "").bytes, "\x08\x01");
  EXPECT_EQ(CheckHealth(server->address(), name).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
  server->SetServing(name, true);
  EXPECT_EQ(CheckHealth(server->address(), name).bytes, "\x08\x01");
  server->SetServing(name, false);
  EXPECT_EQ(CheckHealth(server->address(), name).bytes, "\x08\x02");
}

TEST(RpcServerTest, ReflectsItsServices) {
  IdleService service;
  const auto server = MustStart(RpcServerOptions(), &service);
  const RawAnswer answer = ListServices(server->address());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.bytes, HasSubstr("specwire.v1.VerifierService"));
  EXPECT_THAT(answer.bytes, HasSubstr("grpc.health.v1.Health"));
}

TEST(RpcServerTest, ReflectionCanBeSwitchedOff) {
  IdleService service;
  RpcServerOptions options;
  options.reflection = false;
  const auto server = MustStart(options, &service);
  EXPECT_EQ(ListServices(server->address()).status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST(RpcServerTest, RefusesMessagesAndHeadersBeyondItsLimits) {
  IdleService service;
  RpcServerOptions options;
  options.max_receive_message_bytes = 1000;
  const auto server = MustStart(options, &service);
  // Each on a connection of its own: gRPC may close one that carried headers
  // which are too large.
  const auto end_of_stream = [&](size_t tokens, size_t header) {
    const auto stub =
        v1::VerifierService::NewStub(MakeChannel(server->address()));
    ClientStreamOptions stream;
    stream.metadata = {{"x-large", std::string(header, 'x')}};
    auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
    auto sender = StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
        stream, handler, [&](grpc::ClientContext* context, auto* reactor) {
          stub->async()->Decode(context, reactor);
        });
    v1::DecodeRequest request;
    request.mutable_open()->mutable_tokens()->Resize(static_cast<int>(tokens),
                                                     1);
    sender->Send(request);
    sender->WritesDone();
    return handler->AwaitClosed().code();
  };
  EXPECT_EQ(end_of_stream(2000, 1), absl::StatusCode::kResourceExhausted);
  service.handler = std::make_shared<Handler>();
  EXPECT_EQ(end_of_stream(1, 100'000), absl::StatusCode::kResourceExhausted);
  service.handler = std::make_shared<Handler>();
  EXPECT_EQ(end_of_stream(1, 1), absl::StatusCode::kOk);
}

// Opens a stream and waits until it is served.
std::shared_ptr<ClientSender<v1::DecodeRequest>> OpenIdleStream(
    const std::shared_ptr<grpc::Channel>& channel,
    std::shared_ptr<RecordingHandler<v1::DecodeResponse>> handler) {
  const auto stub = v1::VerifierService::NewStub(channel);
  auto sender = StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
      ClientStreamOptions(),
      handler,
      [&](grpc::ClientContext* context, auto* reactor) {
        stub->async()->Decode(context, reactor);
      });
  EXPECT_TRUE(handler->AwaitMessages(1));
  return sender;
}

std::shared_ptr<ClientSender<v1::DecodeRequest>> OpenIdleStream(
    const std::string& address,
    std::shared_ptr<RecordingHandler<v1::DecodeResponse>> handler) {
  return OpenIdleStream(MakeChannel(address), std::move(handler));
}

// Has a server shut down while a stream is open, which then ends by itself.
void EndStreamWhileShuttingDown() {
  IdleService service;
  const auto server = MustStart(RpcServerOptions(), &service);
  auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
  auto sender = OpenIdleStream(server->address(), handler);
  std::thread client([&] {
    EXPECT_TRUE(handler->AwaitMessages(1));
    sender->WritesDone();
  });
  const absl::Time start = absl::Now();
  EXPECT_TRUE(server->Shutdown(absl::Seconds(25)).ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  client.join();
  EXPECT_TRUE(handler->AwaitClosed().ok());
}

TEST(RpcServerTest, AnOldConnectionKeepsItsStreams) {
  IdleService service;
  RpcServerOptions options;
  options.max_connection_age = absl::Milliseconds(50);
  const auto server = MustStart(options, &service);
  const auto channel = MakeChannel(server->address());
  auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
  auto sender = OpenIdleStream(channel, handler);
  ASSERT_TRUE(handler->AwaitMessages(1));
  // The server has said that it takes no further calls there.
  ASSERT_TRUE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY,
      std::chrono::system_clock::now() + std::chrono::seconds(30)));
  EXPECT_FALSE(handler->closed());
  sender->WritesDone();
  EXPECT_TRUE(handler->AwaitClosed().ok());
}

TEST(RpcServerTest, AConnectionThatSaysNothingIsClosed) {
  IdleService service;
  RpcServerOptions options;
  options.handshake_timeout = absl::Milliseconds(100);
  const auto server = MustStart(options, &service);
  const int fd = DialLoopback(server->port());
  pollfd closed = {fd, POLLRDHUP, 0};
  EXPECT_EQ(poll(&closed, 1, 30'000), 1);
  close(fd);
}

TEST(RpcServerTest, ShutdownCancelsWhatOutlastsTheGrace) {
  IdleService service;
  const auto server = MustStart(RpcServerOptions(), &service);
  auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
  auto sender = OpenIdleStream(server->address(), handler);
  const absl::Time start = absl::Now();
  EXPECT_TRUE(server->Shutdown(absl::Milliseconds(100)).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(90));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_FALSE(handler->AwaitClosed().ok());
  EXPECT_TRUE(service.handler->closed());
  // Again, at once, with the same result; health can still be set.
  EXPECT_TRUE(server->Shutdown(absl::Seconds(100)).ok());
  server->SetServing("x", true);
}

TEST(RpcServerTest, ShutdownIsOverWhenTheLastCallEnds) {
  EndStreamWhileShuttingDown();
}

// gRPC destroys what its callback API runs on with the last server or channel,
// and aborts now and then: within some hundred times.
TEST(RpcServerTest, ServersComeAndGo) {
  for (int i = 0; i < 1000; ++i) EndStreamWhileShuttingDown();
}

TEST(RpcServerTest, ShutdownDoesNotHangOnAStuckHandler) {
  // Never deleted: the server that is left to itself may still look at it.
  static IdleService* const service = new IdleService;
  Event stuck;
  Event go_on;
  service->handler->on_message = [&](const v1::DecodeRequest&) {
    stuck.Notify();
    go_on.Wait();
  };
  RpcServerOptions options;
  options.handler_timeout = absl::Milliseconds(100);
  auto server = MustStart(options, service);
  auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
  auto sender = OpenIdleStream(server->address(), handler);
  sender->Send(v1::DecodeRequest());
  stuck.Wait();
  EXPECT_EQ(server->Shutdown(absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
  server.reset();
  go_on.Notify();
  service->handler->AwaitClosed().IgnoreError();
}

TEST(RpcStatusTest, AllCodesRoundTrip) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpcStatus(status).error_code()), code);
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(RpcStatusTest, UnknownCodesAreUnknown) {
  for (const int code : {-1, 17, 31}) {
    EXPECT_EQ(
        FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(code), "x")),
        absl::UnknownError("x"));
  }
}

TEST(RpcStatusTest, LongMessagesAreCutBetweenCharacters) {
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(std::string(2048, 'a')))
                .error_message()
                .size(),
            2048u);
  std::string text = "a";
  while (text.size() < 3000) text += "\u20ac";
  const std::string cut =
      ToGrpcStatus(absl::InternalError(text)).error_message();
  EXPECT_EQ(cut, text.substr(0, 2047));
}

TEST(RpcStatusTest, CrossesAConnection) {
  class Service final : public v1::VerifierService::CallbackService {
   public:
    grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
        grpc::CallbackServerContext* context) override {
      return StartServerStream<v1::DecodeRequest, v1::DecodeResponse>(
          context, StreamLimits(), [&](auto sender) {
            sender->Finish(status);
            return std::make_shared<Handler>();
          });
    }
    absl::Status status;
  };
  Service service;
  const auto server = MustStart(RpcServerOptions(), &service);
  const auto stub =
      v1::VerifierService::NewStub(MakeChannel(server->address()));
  for (const std::string& message :
       {std::string("plain"),
        std::string("100 %\nsecond line, \u20ac\x01\xff"),
        std::string(100'000, 'x')}) {
    service.status = absl::FailedPreconditionError(message);
    auto handler = std::make_shared<RecordingHandler<v1::DecodeResponse>>();
    StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
        ClientStreamOptions(),
        handler,
        [&](grpc::ClientContext* context, auto* reactor) {
          stub->async()->Decode(context, reactor);
        });
    EXPECT_EQ(handler->AwaitClosed(),
              absl::FailedPreconditionError(message.substr(0, 2048)));
  }
}

TEST(StatusTest, DrainingTravelsAsErrorInfo) {
  const absl::Status status = DrainingError("leaving");
  EXPECT_TRUE(IsDraining(status));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const grpc::Status sent = ToGrpcStatus(status);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(sent.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "DRAINING");
  EXPECT_EQ(FromGrpcStatus(sent), status);
  // Both at once, and nobody drains by another code.
  const absl::Status both = WithRetryDelay(status, absl::Seconds(1));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(both)), both);
  EXPECT_FALSE(IsDraining(absl::UnavailableError("gone")));
  EXPECT_FALSE(IsDraining(FromGrpcStatus(
      grpc::Status(grpc::StatusCode::INTERNAL, "x", sent.error_details()))));
}

TEST(StatusTest, ARetryDelayTravelsAsRetryInfo) {
  const absl::Status status = WithRetryDelay(
      absl::ResourceExhaustedError("full"), absl::Microseconds(1234567));
  EXPECT_EQ(RetryDelay(status), absl::Milliseconds(1235));
  const grpc::Status sent = ToGrpcStatus(status);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(sent.error_details()));
  EXPECT_EQ(details.code(), 8);
  EXPECT_EQ(details.message(), "full");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(),
            "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.retry_delay().seconds(), 1);
  EXPECT_EQ(info.retry_delay().nanos(), 235000000);
  EXPECT_EQ(FromGrpcStatus(sent), status);
  // Without one nothing is added, and garbage adds nothing.
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("x")).error_details(), "");
  for (const std::string& garbage : {std::string("garbage"),
                                     std::string(100000, 'x'),
                                     std::string("\0", 1)}) {
    const absl::Status received =
        FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "x", garbage));
    EXPECT_EQ(received, absl::InternalError("x"));
  }
  EXPECT_EQ(RetryDelay(absl::InternalError("x")), std::nullopt);
  EXPECT_EQ(RetryDelay(WithRetryDelay(absl::InternalError("x"),
                                      absl::InfiniteDuration())),
            absl::Hours(1));
  EXPECT_EQ(
      RetryDelay(WithRetryDelay(absl::InternalError("x"), -absl::Hours(1))),
      absl::Milliseconds(1));
}

}  // namespace
}  // namespace specwire
