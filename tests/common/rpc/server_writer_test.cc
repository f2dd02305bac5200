// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "tests/common/rpc/stream_test_util.h"

namespace specwire {
namespace {

using Response = v1::GetModelResponse;
using Sender = std::shared_ptr<ServerSender<Response>>;
// OnMessage is never called.
using Handler = RecordingHandler<v1::GetModelRequest>;

class WriterService final : public v1::VerifierService::CallbackService {
 public:
  grpc::ServerWriteReactor<Response>* GetModel(
      grpc::CallbackServerContext* context,
      const v1::GetModelRequest*) override {
    return StartServerWriter<Response>(context, limits, [&](Sender sender) {
      handler = std::make_shared<Handler>();
      on_call(sender);
      return handler;
    });
  }

  StreamLimits limits;
  // Set before the first message or the end reaches the client.
  std::shared_ptr<Handler> handler;
  std::function<void(Sender)> on_call;
};

Response Chunk(size_t bytes) {
  Response response;
  response.set_tokenizer_chunk(std::string(bytes, 'x'));
  return response;
}

class ServerWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = RpcServer::Start(RpcServerOptions(), {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::VerifierService::NewStub(MakeChannel(server_->address()));
  }

  WriterService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::VerifierService::Stub> stub_;
  grpc::ClientContext context_;
};

TEST_F(ServerWriterTest, SendsAllThenTheStatus) {
  service_.on_call = [](Sender sender) {
    for (size_t i = 0; i < 50; ++i) EXPECT_TRUE(sender->Send(Chunk(i)));
    sender->Finish(absl::OutOfRangeError("that was all"));
  };
  auto reader = stub_->GetModel(&context_, v1::GetModelRequest());
  Response response;
  size_t count = 0;
  while (reader->Read(&response)) {
    EXPECT_EQ(response.tokenizer_chunk().size(), count++);
  }
  EXPECT_EQ(count, 50u);
  EXPECT_EQ(FromGrpcStatus(reader->Finish()),
            absl::OutOfRangeError("that was all"));
  EXPECT_EQ(service_.handler->AwaitClosed(),
            absl::OutOfRangeError("that was all"));
  EXPECT_EQ(service_.handler->num_written(), 50);
}

TEST_F(ServerWriterTest, ASlowReaderShowsInTheQueue) {
  constexpr int kMessages = 64;
  Sender sender;
  service_.limits.max_queued_bytes = size_t{kMessages} << 15;
  service_.on_call = [&](Sender made) {
    sender = made;
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(made->Send(Chunk(size_t{1} << 14)));
    }
  };
  auto reader = stub_->GetModel(&context_, v1::GetModelRequest());
  Response response;
  ASSERT_TRUE(reader->Read(&response));
  // Flow control has taken a few; the rest waits for the reader.
  EXPECT_GT(sender->num_queued(), 0u);
  EXPECT_LT(service_.handler->num_written(), kMessages);
  for (int i = 1; i < kMessages; ++i) ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(service_.handler->AwaitWritten(kMessages));
  EXPECT_EQ(sender->num_queued(), 0u);
  sender->Finish(absl::OkStatus());
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ServerWriterTest, TheHandlerHearsOfACancel) {
  service_.on_call = [](Sender sender) { sender->Send(Chunk(1)); };
  auto reader = stub_->GetModel(&context_, v1::GetModelRequest());
  Response response;
  ASSERT_TRUE(reader->Read(&response));
  context_.TryCancel();
  EXPECT_EQ(service_.handler->AwaitClosed().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ServerWriterTest, AFullQueueEndsTheStream) {
  service_.limits.max_queued_messages = 4;
  service_.on_call = [](Sender sender) {
    int sent = 0;
    while (sender->Send(Chunk(size_t{1} << 14))) ASSERT_LT(++sent, 1000);
    EXPECT_GE(sent, 4);
  };
  auto reader = stub_->GetModel(&context_, v1::GetModelRequest());
  Response response;
  while (reader->Read(&response)) continue;
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_EQ(service_.handler->AwaitClosed().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerWriterTest, ACallCanBeRefused) {
  service_.on_call = [](Sender sender) {
    sender->Finish(absl::InvalidArgumentError("no"));
  };
  auto reader = stub_->GetModel(&context_, v1::GetModelRequest());
  Response response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(FromGrpcStatus(reader->Finish()), absl::InvalidArgumentError("no"));
}

}  // namespace
}  // namespace specwire
