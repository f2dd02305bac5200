// SPDX-License-Identifier: Apache-2.0

// Streams a completion from a Specwire cluster, goes on elsewhere when the
// coordinator is lost, and prints the acceptance figures. See README.md.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "specwire/v1/generation.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace v1 = specwire::v1;

// How long to look for a coordinator at the start, and for one that goes on
// after a loss: nodes need a moment to join one that was restarted.
constexpr std::chrono::seconds kStartTime{5};
constexpr std::chrono::seconds kPatience{15};
// How long one address has to answer, and until the user is told of the wait.
constexpr std::chrono::seconds kConnectTime{3};
constexpr std::chrono::seconds kNoticeTime{1};
constexpr std::chrono::milliseconds kPause{150};

grpc::Status Unreachable(const std::string& address) {
  return {grpc::StatusCode::UNAVAILABLE, address + " does not answer"};
}

// One completion, whoever serves it.
class Completion {
 public:
  Completion(std::vector<std::string> addresses, v1::GenerateRequest request)
      : addresses_(std::move(addresses)), request_(std::move(request)) {}

  // Streams to the end.
  grpc::Status Run() {
    Clock::time_point deadline = Clock::now() + kStartTime;
    for (size_t turn = 0;; ++turn) {
      const int known = token_ids_size();
      const grpc::Status status = Stream(addresses_[turn % addresses_.size()]);
      // Only what says that nobody answers is worth another try: an error of a
      // coordinator that lives is the answer.
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
      if (token_ids_size() > known) {
        deadline = Clock::now() + kPatience;
        told_wait_ = false;
      }
      if (Clock::now() > deadline) return status;
      TellWait(status.error_message());
      std::this_thread::sleep_for(kPause);
    }
  }

  const v1::GenerateFinished& finished() const { return *finished_; }
  int num_resumes() const { return num_resumes_; }

 private:
  int token_ids_size() const { return static_cast<int>(token_ids_.size()); }

  // What is asked, or what goes on with it behind the tokens so far.
  v1::GenerateRequest NextRequest() {
    if (!started_.has_value()) return request_;
    ++num_resumes_;
    v1::GenerateRequest request = request_;
    request.set_model(started_->model());
    *request.mutable_token_ids()->mutable_ids() = started_->prompt_token_ids();
    *request.mutable_sampling() = started_->sampling();
    *request.mutable_stop() = started_->stop();
    request.mutable_resume_token_ids()->Assign(token_ids_.begin(),
                                               token_ids_.end());
    return request;
  }

  grpc::Status Stream(const std::string& address) {
    grpc::ChannelArguments arguments;
    // A peer that has vanished without a word is noticed.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    const auto channel = grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
    // No deadline for the call: a long completion is no fault. But a
    // coordinator that is not there must not be waited for.
    if (!Connect(channel.get(), address)) return Unreachable(address);
    const auto stub = v1::GenerationService::NewStub(channel);
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, NextRequest());
    v1::GenerateResponse response;
    grpc::Status fault;
    while (fault.ok() && reader->Read(&response)) fault = Take(response);
    if (!fault.ok()) {
      context.TryCancel();
      while (reader->Read(&response)) {
      }
    }
    const grpc::Status status = reader->Finish();
    if (!fault.ok()) return fault;
    // All has come; a connection that is lost behind it costs nothing.
    if (finished_.has_value()) return grpc::Status::OK;
    return status.ok() ? Unreachable(address) : status;
  }

  bool Connect(grpc::Channel* channel, const std::string& address) {
    const auto start = std::chrono::system_clock::now();
    if (channel->WaitForConnected(start + kNoticeTime)) return true;
    TellWait(address + " does not answer");
    return channel->WaitForConnected(start + kConnectTime);
  }

  // Says once for each loss why nothing happens.
  void TellWait(const std::string& reason) {
    if (told_wait_) return;
    told_wait_ = true;
    // Behind text that has come, on a line of its own.
    std::fprintf(stderr,
                 "%s%s; waiting for a coordinator at",
                 token_ids_.empty() ? "" : "\n",
                 reason.c_str());
    for (size_t i = 0; i < addresses_.size(); ++i) {
      std::fprintf(
          stderr, "%s%s", i == 0 ? " " : " or ", addresses_[i].c_str());
    }
    std::fputc('\n', stderr);
  }

  grpc::Status Take(const v1::GenerateResponse& response) {
    if (response.has_started()) {
      if (!started_.has_value()) {
        started_ = response.started();
      } else if (started_->model_digest() !=
                 response.started().model_digest()) {
        return {grpc::StatusCode::FAILED_PRECONDITION,
                "the other coordinator has another model"};
      }
    } else if (response.has_delta()) {
      const v1::GenerateDelta& delta = response.delta();
      token_ids_.insert(
          token_ids_.end(), delta.token_ids().begin(), delta.token_ids().end());
      Show(delta.text());
    } else if (response.has_finished()) {
      finished_ = response.finished();
      Show(finished_->text());
    }
    return grpc::Status::OK;
  }

  static void Show(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const std::vector<std::string> addresses_;
  const v1::GenerateRequest request_;
  // What any coordinator needs to go on: the first message, and the tokens so
  // far.
  std::optional<v1::GenerateStarted> started_;
  std::vector<int32_t> token_ids_;
  std::optional<v1::GenerateFinished> finished_;
  int num_resumes_ = 0;
  bool told_wait_ = false;
};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

void PrintFigures(const Completion& completion) {
  const v1::SpeculationStats& stats = completion.finished().speculation();
  std::fprintf(stderr,
               "%d tokens, acceptance rate %.1f %% (%lld of %lld), mean "
               "accepted length %.2f, drafter %s",
               completion.finished().usage().completion_tokens(),
               100 * stats.draft_acceptance_rate(),
               static_cast<long long>(stats.num_accepted_draft_tokens()),
               static_cast<long long>(stats.num_draft_tokens()),
               stats.mean_acceptance_length(),
               stats.drafter().empty() ? "none" : stats.drafter().c_str());
  if (completion.num_resumes() > 0) {
    std::fprintf(stderr,
                 "; resumed %d times, the figures are those of the last part",
                 completion.num_resumes());
  }
  std::fputc('\n', stderr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr,
                 "usage: %s HOST:PORT[,HOST:PORT...] PROMPT [MAX_TOKENS]\n",
                 argv[0]);
    return 2;
  }
  const std::vector<std::string> addresses = Split(argv[1]);
  if (addresses.empty()) {
    std::fprintf(stderr, "no coordinator is named\n");
    return 2;
  }
  v1::GenerateRequest request;
  request.set_text(argv[2]);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(argc == 4 ? std::atoi(argv[3]) : 128);

  Completion completion(addresses, request);
  const grpc::Status status = completion.Run();
  std::fputc('\n', stdout);
  if (!status.ok()) {
    std::fprintf(stderr,
                 "error %d: %s\n",
                 static_cast<int>(status.error_code()),
                 status.error_message().c_str());
    return 1;
  }
  PrintFigures(completion);
  return 0;
}
