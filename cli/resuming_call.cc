// SPDX-License-Identifier: Apache-2.0
#include "cli/resuming_call.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/interrupt.h"
#include "common/base/draining.h"
#include "common/rpc/status.h"

namespace specwire::cli {
namespace {

// How long to look for a coordinator that goes on: nodes need a moment to join
// one that was restarted.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPatienceWithOneAddress = absl::Seconds(5);
// Connections lost in a row without a new token, for each address: a request
// that kills its coordinator must not kill them all again and again.
constexpr size_t kMaxLossesPerAddress = 2;
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
// A coordinator that ends fails its calls first and closes connections then.
constexpr absl::Duration kClosingTime = absl::Seconds(1);

// False if the user interrupts meanwhile.
bool Pause(absl::Duration duration) {
  SignalSource signals({SIGINT, SIGTERM});
  pollfd fd = {signals.fd(), POLLIN, 0};
  poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(duration)));
  return !signals.Take().has_value();
}

}  // namespace

v1::GenerateRequest MakeResumeRequest(const v1::GenerateRequest& original,
                                      const v1::GenerateStarted& started,
                                      const std::vector<int32_t>& token_ids) {
  v1::GenerateRequest request = original;
  request.set_model(started.model());
  *request.mutable_token_ids()->mutable_ids() = started.prompt_token_ids();
  *request.mutable_sampling() = started.sampling();
  *request.mutable_stop() = started.stop();
  *request.mutable_speculation() = started.speculation();
  request.set_request_id(started.request_id());
  // What was asked about the prompt came before the first token.
  if (!token_ids.empty()) {
    request.clear_prompt_logprobs();
    request.clear_echo();
  }
  request.mutable_resume_token_ids()->Assign(token_ids.begin(),
                                             token_ids.end());
  return request;
}

ResumingCall::ResumingCall(std::vector<std::string> addresses,
                           std::unique_ptr<Client> client,
                           v1::GenerateRequest request)
    : addresses_(std::move(addresses)),
      channel_options_(client->channel_options()),
      original_(std::move(request)),
      client_(std::move(client)) {
  const auto at =
      std::find(addresses_.begin(), addresses_.end(), client_->address());
  next_ = static_cast<size_t>(at - addresses_.begin()) + 1;
}

GenerateOutcome ResumingCall::Run(const OnResponse& on_response) {
  for (;;) {
    const GenerateOutcome outcome = Attempt(on_response);
    if (!MayGoOn(outcome)) return outcome;
    if (deadline_ == absl::InfiniteFuture()) {
      loss_ = outcome.status;
      deadline_ = absl::Now() +
                  (addresses_.size() > 1 ? kPatience : kPatienceWithOneAddress);
    }
    client_.reset();
    GenerateOutcome ended = GiveUp();
    if (!Reconnect(&ended.interrupted)) return ended;
  }
}

GenerateOutcome ResumingCall::Attempt(const OnResponse& on_response) {
  ++num_attempts_;
  begun_ = false;
  GenerateOutcome outcome = CallGenerate(
      client_.get(),
      started_.has_value() ? MakeResumeRequest(original_, *started_, token_ids_)
                           : original_,
      [&](const v1::GenerateResponse& response) {
        return Take(response, on_response);
      });
  if (!fault_.ok()) {
    outcome.status = fault_;
    outcome.abandoned = false;
  }
  return outcome;
}

bool ResumingCall::Take(const v1::GenerateResponse& response,
                        const OnResponse& on_response) {
  if (original_.n() > 1) return on_response(response);
  if (response.has_started()) {
    begun_ = true;
    if (num_attempts_ > 1) ++num_resumes_;
    const v1::GenerateStarted& started = response.started();
    if (!started_.has_value()) {
      started_ = started;
      return on_response(response);
    }
    if (started.model_digest() != started_->model_digest()) {
      fault_ = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                            absl::StrCat("the text cannot go on at ",
                                         client_->address(),
                                         ": its model has the digest ",
                                         started.model_digest(),
                                         ", the text was begun by ",
                                         started_->model_digest()));
      return false;
    }
    return true;
  }
  if (response.has_prompt()) return TakePrompt(response, on_response);
  if (response.has_delta()) {
    const v1::GenerateDelta& delta = response.delta();
    if (delta.first_index() != static_cast<int64_t>(token_ids_.size())) {
      fault_ = grpc::Status(grpc::StatusCode::INTERNAL,
                            absl::StrCat("the coordinator at ",
                                         client_->address(),
                                         " sent token ",
                                         delta.first_index(),
                                         " where token ",
                                         token_ids_.size(),
                                         " was due"));
      return false;
    }
    token_ids_.insert(
        token_ids_.end(), delta.token_ids().begin(), delta.token_ids().end());
    num_losses_ = 0;
    num_pauses_ = 0;
    deadline_ = absl::InfiniteFuture();
  }
  return on_response(response);
}

bool ResumingCall::TakePrompt(v1::GenerateResponse response,
                              const OnResponse& on_response) {
  v1::GeneratePrompt& prompt = *response.mutable_prompt();
  if (std::exchange(echoed_, echoed_ || !prompt.text().empty())) {
    prompt.clear_text();
  }
  if (prompt.has_logprobs()) {
    v1::PromptLogprobs& logprobs = *prompt.mutable_logprobs();
    const int known = std::clamp(num_prompt_logprobs_ - logprobs.position(),
                                 0,
                                 logprobs.logprobs_size());
    logprobs.mutable_logprobs()->DeleteSubrange(0, known);
    logprobs.set_position(logprobs.position() + known);
    num_prompt_logprobs_ += logprobs.logprobs_size();
  }
  return on_response(response);
}

bool ResumingCall::MayGoOn(const GenerateOutcome& outcome) {
  if (outcome.status.ok() || outcome.interrupted || outcome.abandoned ||
      !fault_.ok() || original_.n() > 1) {
    return false;
  }
  const grpc::StatusCode code = outcome.status.error_code();
  // One that came up a moment ago may not have its nodes yet.
  if (num_attempts_ > 1 && !begun_ &&
      (code == grpc::StatusCode::UNAVAILABLE ||
       code == grpc::StatusCode::NOT_FOUND ||
       code == grpc::StatusCode::RESOURCE_EXHAUSTED)) {
    return true;
  }
  // Nothing is lost where a coordinator drains: another is there, or comes.
  if (IsDraining(FromGrpcStatus(outcome.status))) return true;
  // Nothing has begun: whoever else is there may have the nodes that this one
  // has not, or not yet.
  if (!begun_ && code == grpc::StatusCode::UNAVAILABLE &&
      addresses_.size() > 1) {
    return static_cast<size_t>(++num_losses_) <=
           kMaxLossesPerAddress * addresses_.size();
  }
  if (code != grpc::StatusCode::UNAVAILABLE &&
      code != grpc::StatusCode::UNKNOWN &&
      code != grpc::StatusCode::CANCELLED &&
      code != grpc::StatusCode::INTERNAL) {
    return false;
  }
  ++num_losses_;
  return (outcome.silent || client_->WaitLost(kClosingTime)) &&
         static_cast<size_t>(num_losses_) <=
             kMaxLossesPerAddress * addresses_.size();
}

bool ResumingCall::Reconnect(bool* interrupted) {
  for (;;) {
    // Refusals cost no time: a pause before each further round.
    if (next_ >= addresses_.size()) {
      next_ = 0;
      const absl::Duration pause = std::min(
          kLongestPause, kFirstPause * (1 << std::min(num_pauses_, 8)));
      ++num_pauses_;
      if (!Pause(pause)) {
        *interrupted = true;
        return false;
      }
    }
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::ConnectTo(
        addresses_[next_++], std::min(left, kConnectTimeout), channel_options_);
    if (client.ok()) {
      client_ = *std::move(client);
      return true;
    }
  }
}

GenerateOutcome ResumingCall::GiveUp() const {
  GenerateOutcome outcome;
  outcome.status = grpc::Status(
      loss_.error_code(),
      absl::StrCat("lost the coordinator (",
                   loss_.error_message(),
                   ") and found none in time that goes on with the text"));
  return outcome;
}

}  // namespace specwire::cli
