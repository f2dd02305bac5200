// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "draft_node/service.h"
#include "gtest/gtest.h"

namespace specwire::draft {

// A call that hangs fails its test long before the test's own limit.
inline constexpr absl::Duration kTestDeadline = absl::Seconds(30);

// A draft node on a port of its own.
class DraftHarness {
 public:
  explicit DraftHarness(Drafter* drafter, DrafterThreadOptions options = {})
      : thread_(drafter, options, &registry_),
        service_(*drafter, &thread_, /*draft_token_ns=*/1234) {
    thread_.Start();
    auto server = RpcServer::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // A sanitizer on a busy machine must not look like a lost peer.
    RpcChannelOptions channel;
    channel.keepalive_timeout = kTestDeadline;
    stub_ = v1::DraftService::NewStub(MakeChannel(server_->address(), channel));
  }
  ~DraftHarness() {
    thread_.Stop();
    EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  }

  DrafterThread& thread() { return thread_; }
  v1::DraftService::Stub* stub() { return stub_.get(); }

 private:
  MetricsRegistry registry_;
  DrafterThread thread_;
  DraftServiceImpl service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DraftService::Stub> stub_;
};

inline v1::DraftRequest OpenRequest(const std::vector<int32_t>& tokens,
                                    int run_length,
                                    int window) {
  v1::DraftRequest request;
  v1::DraftOpen* const open = request.mutable_open();
  open->mutable_tokens()->Add(tokens.begin(), tokens.end());
  open->set_prompt_length(1);
  open->mutable_sampling()->set_temperature(0);
  open->set_run_length(run_length);
  open->set_window(window);
  return request;
}

inline v1::DraftRequest CommitRequest(int position,
                                      const std::vector<int32_t>& tokens) {
  v1::DraftRequest request;
  request.mutable_commit()->set_position(position);
  request.mutable_commit()->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return request;
}

inline v1::DraftRequest RewindRequest(int position) {
  v1::DraftRequest request;
  request.mutable_rewind()->set_position(position);
  return request;
}

inline v1::DraftRequest TuneRequest(std::optional<int> run_length,
                                    std::optional<int> window) {
  v1::DraftRequest request;
  v1::DraftTune* const tune = request.mutable_tune();
  if (run_length.has_value()) tune->set_run_length(*run_length);
  if (window.has_value()) tune->set_window(*window);
  return request;
}

// One Draft stream, written and read by the test's thread.
class DraftClient {
 public:
  explicit DraftClient(v1::DraftService::Stub* stub) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kTestDeadline));
    stream_ = stub->Draft(&context_);
  }
  ~DraftClient() {
    if (finished_) return;
    context_.TryCancel();
    Drain();
  }

  bool Send(const v1::DraftRequest& request) { return stream_->Write(request); }
  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next proposal; position -1 at the stream's end.
  v1::DraftResponse Read() {
    v1::DraftResponse response;
    if (!stream_->Read(&response)) response.set_position(-1);
    return response;
  }
  grpc::Status Drain() {
    while (Read().position() >= 0) ++num_drained_;
    finished_ = true;
    return stream_->Finish();
  }
  int num_drained() const { return num_drained_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DraftRequest, v1::DraftResponse>>
      stream_;
  int num_drained_ = 0;
  bool finished_ = false;
};

inline void ExpectProposal(const v1::DraftResponse& response,
                           int position,
                           int based_on,
                           const std::vector<int32_t>& tokens) {
  EXPECT_EQ(response.position(), position);
  EXPECT_EQ(response.based_on(), based_on);
  EXPECT_EQ(
      std::vector<int32_t>(response.tokens().begin(), response.tokens().end()),
      tokens);
}

}  // namespace specwire::draft
