// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/drafting/suffix.h"
#include "common/metrics/metrics.h"
#include "common/model/engine.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "verifier_node/engine_thread.h"
#include "verifier_node/service.h"
#include "verifier_node/verifier_metrics.h"

namespace specwire::verifier {

// A call that hangs fails its test long before the test's own limit.
inline constexpr absl::Duration kTestDeadline = absl::Seconds(30);

// A verifier on a port of its own, over any engine.
class VerifierHarness {
 public:
  explicit VerifierHarness(
      Engine* engine,
      EngineThreadOptions options = {},
      std::unique_ptr<LocalDrafter> local_drafter = nullptr)
      : metrics_(&registry_),
        thread_(engine, options, &clock_, &metrics_, std::move(local_drafter)) {
    const StepCost costs[] = {{1, 16, absl::Microseconds(10)},
                              {4, 16, absl::Microseconds(20)}};
    auto service = VerifierServiceImpl::Create(*engine, costs, &thread_);
    EXPECT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    thread_.Start();
    auto server = RpcServer::Start({}, {service_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // A sanitizer on a busy machine must not look like a lost peer.
    RpcChannelOptions channel;
    channel.keepalive_timeout = kTestDeadline;
    channel_ = MakeChannel(server_->address(), channel);
    stub_ = v1::VerifierService::NewStub(channel_);
  }

  ~VerifierHarness() {
    thread_.Stop();
    EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  }

  EngineThread& thread() { return thread_; }
  v1::VerifierService::Stub* stub() { return stub_.get(); }
  const std::string& address() const { return server_->address(); }

  // Sum of all series of a metric, whatever their labels; those of histograms
  // only by the full name, "..._count".
  double Metric(const std::string& name, const std::string& label = "") const {
    double sum = 0;
    for (absl::string_view line : absl::StrSplit(registry_.Expose(), '\n')) {
      if (!absl::StartsWith(line, name + "{") &&
          !absl::StartsWith(line, name + " ")) {
        continue;
      }
      double value = 0;
      const std::vector<std::string> parts = absl::StrSplit(line, ' ');
      if (absl::StrContains(line, label) &&
          absl::SimpleAtod(parts.back(), &value)) {
        sum += value;
      }
    }
    return sum;
  }

 private:
  MetricsRegistry registry_;
  const SteadyClock clock_;
  VerifierMetrics metrics_;
  EngineThread thread_;
  std::unique_ptr<VerifierServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::VerifierService::Stub> stub_;
};

// An open message with greedy sampling and no limit of credit.
inline v1::DecodeRequest OpenRequest(const std::vector<int32_t>& prompt,
                                     int max_tokens,
                                     int64_t patience_us) {
  v1::DecodeRequest request;
  v1::DecodeOpen* const open = request.mutable_open();
  open->mutable_tokens()->Add(prompt.begin(), prompt.end());
  open->set_prompt_length(static_cast<int32_t>(prompt.size()));
  open->mutable_sampling()->set_temperature(0);
  open->mutable_sampling()->set_seed(1);
  open->set_max_tokens(max_tokens);
  open->set_source(1);
  open->set_decode_until(1 << 30);
  open->set_patience_us(patience_us);
  return request;
}

inline v1::DecodeRequest ProposalRequest(int position,
                                         int based_on,
                                         const std::vector<int32_t>& tokens) {
  v1::DecodeRequest request;
  v1::Proposal* const proposal = request.mutable_proposal();
  proposal->set_source(1);
  proposal->set_position(position);
  proposal->set_based_on(based_on);
  proposal->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return request;
}

inline v1::DecodeRequest TuneRequest(std::optional<int64_t> patience_us,
                                     std::optional<int> decode_until) {
  v1::DecodeRequest request;
  v1::DecodeTune* const tune = request.mutable_tune();
  if (patience_us.has_value()) tune->set_patience_us(*patience_us);
  if (decode_until.has_value()) tune->set_decode_until(*decode_until);
  return request;
}

// One Decode stream, written and read by the test's thread.
class DecodeClient {
 public:
  explicit DecodeClient(v1::VerifierService::Stub* stub) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kTestDeadline));
    stream_ = stub->Decode(&context_);
  }
  ~DecodeClient() {
    if (finished_) return;
    context_.TryCancel();
    Drain();
  }

  bool Send(const v1::DecodeRequest& request) {
    return stream_->Write(request);
  }
  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next response; nothing at the end.
  std::optional<v1::DecodeResponse> Read() {
    v1::DecodeResponse response;
    if (!stream_->Read(&response)) return std::nullopt;
    tokens_.insert(
        tokens_.end(), response.tokens().begin(), response.tokens().end());
    ++num_responses_;
    last_ = response;
    return response;
  }

  // Reads to the end and returns the stream's status.
  grpc::Status Drain() {
    while (Read().has_value()) {
    }
    finished_ = true;
    return stream_->Finish();
  }

  // All that was committed so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int num_responses() const { return num_responses_; }
  const v1::DecodeResponse& last() const { return last_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::DecodeRequest, v1::DecodeResponse>>
      stream_;
  std::vector<int32_t> tokens_;
  int num_responses_ = 0;
  v1::DecodeResponse last_;
  bool finished_ = false;
};

}  // namespace specwire::verifier
