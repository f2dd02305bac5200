// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/http/http_message.h"
#include "google/protobuf/message.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace specwire::coordinator {

// A call to a method of this process's own server, with one request and any
// number of responses, for the client of an HTTP request: when that client
// goes, the call is cancelled.
//
// Thread safety: one thread.
// Lifetime: the client outlives it. The destructor cancels what runs.
class RpcCall {
 public:
  // `method` as in "/specwire.v1.GenerationService/Generate". When it returns
  // the request is on its way. `http` is whose turn it takes.
  RpcCall(const std::shared_ptr<grpc::Channel>& channel,
          const std::string& method,
          const google::protobuf::Message& request,
          absl::Duration limit,
          const HttpRequest& http);
  ~RpcCall();
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;

  // Waits for the next response; false if there is none.
  bool Read(google::protobuf::Message* response);
  // How it ended; INTERNAL if a response could not be parsed. REQUIRES: called
  // once, when no more is read.
  absl::Status Finish();

 private:
  // Waits for the operation in flight; whether it went well.
  bool Wait();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool malformed_ = false;
  bool finished_ = false;
  // Goes before the context.
  std::unique_ptr<HttpClient::Watch> watch_;
};

// A call with one response.
absl::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method,
                       const google::protobuf::Message& request,
                       const HttpRequest& http,
                       google::protobuf::Message* response);

// A stream's whole call may take this long, any other this long.
inline constexpr absl::Duration kStreamLimit = absl::Hours(1);
inline constexpr absl::Duration kUnaryLimit = absl::Minutes(2);

}  // namespace specwire::coordinator
