// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/rpc_call.h"

#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "coordinator/access.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace specwire::coordinator {

RpcCall::RpcCall(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& method,
                 const google::protobuf::Message& request,
                 absl::Duration limit,
                 const HttpRequest& http) {
  if (const std::string key = KeyDigest(http.Header("authorization"));
      !key.empty()) {
    context_.AddMetadata(kForKey, key);
  }
  context_.AddMetadata(kForPeer, http.client->peer());
  context_.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  grpc::GenericStub stub(channel);
  call_ = stub.PrepareCall(&context_, method, &queue_);
  watch_ = http.client->OnGone([this] { context_.TryCancel(); });
  call_->StartCall(nullptr);
  if (!Wait()) return;
  const grpc::Slice slice(request.SerializeAsString());
  call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  Wait();
}

RpcCall::~RpcCall() {
  watch_.reset();
  if (!finished_) {
    context_.TryCancel();
    Finish().IgnoreError();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool RpcCall::Wait() {
  void* tag = nullptr;
  bool ok = false;
  // The call's deadline bounds it.
  return queue_.Next(&tag, &ok) && ok;
}

bool RpcCall::Read(google::protobuf::Message* response) {
  if (malformed_) return false;
  grpc::ByteBuffer buffer;
  call_->Read(&buffer, nullptr);
  if (!Wait()) return false;
  grpc::ProtoBufferReader reader(&buffer);
  if (response->ParseFromZeroCopyStream(&reader)) return true;
  malformed_ = true;
  context_.TryCancel();
  return false;
}

absl::Status RpcCall::Finish() {
  finished_ = true;
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Wait();
  if (malformed_) return absl::InternalError("a response cannot be parsed");
  return FromGrpcStatus(status);
}

absl::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method,
                       const google::protobuf::Message& request,
                       const HttpRequest& http,
                       google::protobuf::Message* response) {
  RpcCall call(channel, method, request, kUnaryLimit, http);
  call.Read(response);
  return call.Finish();
}

}  // namespace specwire::coordinator
