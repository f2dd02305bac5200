// SPDX-License-Identifier: Apache-2.0
#include "coordinator/score.h"

#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/draining.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/message_checksum.h"
#include "common/rpc/status.h"
#include "common/sampling/logprobs.h"
#include "coordinator/request_validation.h"
#include "grpcpp/client_context.h"

namespace specwire::coordinator {
namespace {

constexpr int kMaxMoves = 2;
// Whoever has not scored a window by then never will: its answer was lost on a
// connection that lives on.
constexpr absl::Duration kLongestWindow = absl::Minutes(10);

template <class... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

absl::StatusOr<std::vector<int32_t>> ScoreTokens(
    const v1::ScoreRequest& request, const CatalogModel& model) {
  switch (request.input_case()) {
    case v1::ScoreRequest::kText:
      SPECWIRE_RETURN_IF_ERROR(CheckTextSize(request.text(), "input.text"));
      return TokenizeRaw(
          request.text(),
          model,
          {"input.text", "the most that is scored", kMaxScoreTokens});
    case v1::ScoreRequest::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      return std::vector<int32_t>(ids.begin(), ids.end());
    }
    case v1::ScoreRequest::INPUT_NOT_SET:
      break;
  }
  return Invalid("input: missing; set one of text and token_ids");
}

absl::Status CheckSize(int64_t num_tokens, int top) {
  if (num_tokens < 2 || num_tokens > kMaxScoreTokens) {
    return Invalid("input: has ",
                   num_tokens,
                   " tokens; must be 2, of which the second is scored, to ",
                   kMaxScoreTokens);
  }
  if (top < 0 || top > kMaxLogprobs) {
    return Invalid(
        "top: ", top, " is out of range; must be 0 to ", kMaxLogprobs);
  }
  if (const int64_t count = num_tokens * (1 + top); count > kMaxScoreLogprobs) {
    return Invalid("top: ",
                   top,
                   " candidates and the token itself, for each of ",
                   num_tokens,
                   " tokens, are ",
                   count,
                   " numbers; at most ",
                   kMaxScoreLogprobs);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ScoreWindow>> PlanWindows(
    const v1::ScoreRequest& request, int num_tokens, int context) {
  if (request.window() == 0) {
    if (request.stride() != 0) {
      return Invalid("stride: ",
                     request.stride(),
                     " needs a window; set window too, or leave stride out");
    }
    if (num_tokens > context) {
      return Invalid("window: the text has ",
                     num_tokens,
                     " tokens, the model's context is ",
                     context,
                     "; set a window of at most that many");
    }
    return PlanScoreWindows(num_tokens, num_tokens, num_tokens);
  }
  if (request.window() < 2 || request.window() > context) {
    return Invalid("window: ",
                   request.window(),
                   " is out of range; must be 2 to the model's context ",
                   context,
                   ", or 0 for one window over all");
  }
  const int stride =
      request.stride() == 0 ? request.window() / 2 : request.stride();
  if (stride < 1 || stride > request.window()) {
    return Invalid("stride: ",
                   stride,
                   " is out of range; must be 1 to window = ",
                   request.window());
  }
  if (const int64_t work =
          CountWindowTokens(num_tokens, request.window(), stride);
      work > kMaxScoreWork) {
    return Invalid("stride: ",
                   stride,
                   " makes windows of ",
                   work,
                   " tokens together; at most ",
                   kMaxScoreWork,
                   "; choose a larger one");
  }
  return PlanScoreWindows(num_tokens, request.window(), stride);
}

// Takes one message of a window's stream. `next` is the first position of the
// text that has no entry yet.
absl::Status TakeEntries(const v1::ScoreTokensResponse& message,
                         const CheckedScore& score,
                         const ScoreWindow& window,
                         int* next,
                         v1::ScoreResponse* response) {
  if (message.position() != *next - window.begin ||
      message.logprobs_size() > window.end - *next) {
    return absl::InternalError(absl::StrCat("the verifier scored ",
                                            message.logprobs_size(),
                                            " positions from ",
                                            message.position(),
                                            " on where ",
                                            *next - window.begin,
                                            " was due, in a window of ",
                                            window.end - window.begin));
  }
  for (const v1::PositionLogprobs& entry : message.logprobs()) {
    const absl::Status status =
        FromProto(entry,
                  score.tokens[static_cast<size_t>(*next)],
                  score.top,
                  score.model->info.model.vocab_size)
            .status();
    if (!status.ok()) {
      return absl::InternalError(
          absl::StrCat("the verifier sent a bad message: ", status.message()));
    }
    *response->mutable_logprobs((*next)++) = entry;
  }
  return absl::OkStatus();
}

// Scores one window on one verifier.
absl::Status ScoreOn(const NodeLink& link,
                     const NodeInfo& node,
                     const Membership* membership,
                     const CheckedScore& score,
                     const ScoreWindow& window,
                     const grpc::CallbackServerContext& context,
                     v1::ScoreResponse* response) {
  v1::ScoreTokensRequest request;
  request.mutable_tokens()->Assign(score.tokens.begin() + window.begin,
                                   score.tokens.begin() + window.end);
  request.set_top(score.top);
  request.set_num_context(window.first_target - window.begin);
  request.set_user(score.user);
  SetChecksum(0, &request);
  // Ends with the caller's call: its cancellation and its deadline.
  const std::unique_ptr<grpc::ClientContext> call =
      grpc::ClientContext::FromCallbackServerContext(context);
  const std::chrono::system_clock::time_point bound =
      std::chrono::system_clock::now() + absl::ToChronoSeconds(kLongestWindow);
  const bool bounded = bound < context.deadline();
  if (bounded) call->set_deadline(bound);
  // And with its node, should that hang.
  const Membership::CallGuard guard(membership, node.node_id, call.get());
  const auto reader = link.verifier.ScoreTokens(call.get(), request);
  int next = window.first_target;
  absl::Status fault;
  int64_t num_received = 0;
  v1::ScoreTokensResponse message;
  while (reader->Read(&message)) {
    if (!fault.ok()) continue;
    fault = CheckChecksum(num_received++, &message);
    if (fault.ok())
      fault = TakeEntries(message, score, window, &next, response);
    if (!fault.ok()) call->TryCancel();
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  SPECWIRE_RETURN_IF_ERROR(fault);
  if (bounded && absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(
        absl::StrCat("no score within ", absl::FormatDuration(kLongestWindow)));
  }
  SPECWIRE_RETURN_IF_ERROR(status);
  if (next == window.end) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the verifier scored ", next, " of ", window.end, " tokens"));
}

bool MayMove(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsInternal(status) ||
         absl::IsUnknown(status) || absl::IsAborted(status) ||
         absl::IsCancelled(status);
}

// Scores windows on verifiers that it chooses.
class Scorer {
 public:
  Scorer(const CheckedScore& score,
         const SessionEnvironment& environment,
         const grpc::CallbackServerContext& context,
         v1::ScoreResponse* response)
      : score_(score),
        environment_(environment),
        context_(context),
        response_(response) {}

  absl::Status Score(const ScoreWindow& window) {
    for (;;) {
      if (context_.IsCancelled()) {
        return absl::CancelledError("the caller has gone");
      }
      const absl::Status status = Attempt(window);
      if (status.ok() || !MayMove(status) || node_.node_id.empty() ||
          context_.IsCancelled()) {
        return status;
      }
      SPECWIRE_LOG(Warning,
                   "a score lost verifier '",
                   node_.identity.name,
                   "': ",
                   status.ToString());
      lost_.insert(node_.node_id);
      // Who leaves in peace was not killed by this text.
      if (!IsDraining(status)) ++num_lost_;
      if (num_lost_ > kMaxMoves) {
        return absl::UnavailableError(absl::StrCat("the score lost ",
                                                   num_lost_,
                                                   " verifiers; the last: ",
                                                   status.ToString()));
      }
    }
  }

 private:
  absl::Status Attempt(const ScoreWindow& window) {
    node_ = NodeInfo();
    SPECWIRE_ASSIGN_OR_RETURN(node_,
                              environment_.registry->AcquireVerifier(
                                  score_.model->info.model.model_digest,
                                  lost_,
                                  {.num_tokens = window.end - window.begin}));
    const std::shared_ptr<const NodeLink> link =
        environment_.membership->Link(node_.node_id);
    const absl::Status status = link == nullptr
                                    ? absl::UnavailableError("it has left")
                                    : ScoreOn(*link,
                                              node_,
                                              environment_.membership,
                                              score_,
                                              window,
                                              context_,
                                              response_);
    environment_.registry->Release(node_.node_id, window.end - window.begin);
    return status;
  }

  const CheckedScore& score_;
  const SessionEnvironment& environment_;
  const grpc::CallbackServerContext& context_;
  v1::ScoreResponse* const response_;
  // The verifier of the latest attempt; no id: there was none.
  NodeInfo node_;
  std::set<std::string> lost_;
  int num_lost_ = 0;
};

}  // namespace

absl::StatusOr<CheckedScore> BuildScore(
    const v1::ScoreRequest& request,
    std::shared_ptr<const CatalogModel> model) {
  CheckedScore score;
  SPECWIRE_ASSIGN_OR_RETURN(score.tokens, ScoreTokens(request, *model));
  SPECWIRE_RETURN_IF_ERROR(
      CheckSize(static_cast<int64_t>(score.tokens.size()), request.top()));
  SPECWIRE_RETURN_IF_ERROR(CheckTokenIds(
      score.tokens, model->info.model.vocab_size, "input.token_ids"));
  SPECWIRE_ASSIGN_OR_RETURN(score.windows,
                            PlanWindows(request,
                                        static_cast<int>(score.tokens.size()),
                                        model->info.model.max_model_len));
  score.top = request.top();
  score.token_bytes = request.token_bytes();
  if (score.token_bytes) {
    size_t bytes = 0;
    for (const int32_t id : score.tokens) {
      bytes += model->tokenizer->TokenBytes(id).size();
    }
    if (bytes > kMaxScoreTokenBytes) {
      return Invalid("token_bytes: the tokens have ",
                     bytes,
                     " bytes; at most ",
                     kMaxScoreTokenBytes,
                     "; leave it out");
    }
  }
  score.model = std::move(model);
  return score;
}

absl::Status RunScore(const CheckedScore& score,
                      const SessionEnvironment& environment,
                      const grpc::CallbackServerContext& context,
                      v1::ScoreResponse* response) {
  response->mutable_token_ids()->Assign(score.tokens.begin(),
                                        score.tokens.end());
  for (size_t i = 0; i < score.tokens.size(); ++i) response->add_logprobs();
  Scorer scorer(score, environment, context, response);
  for (const ScoreWindow& window : score.windows) {
    SPECWIRE_RETURN_IF_ERROR(scorer.Score(window));
  }
  PerplexityMeter meter;
  for (const v1::PositionLogprobs& entry : response->logprobs()) {
    if (!entry.has_chosen()) continue;
    meter.Add(static_cast<double>(entry.chosen().logprob()));
  }
  response->set_num_scored_tokens(meter.num_scored());
  response->set_perplexity(meter.perplexity());
  if (score.token_bytes) {
    for (const int32_t id : score.tokens) {
      response->add_token_bytes(
          std::string(score.model->tokenizer->TokenBytes(id)));
    }
  }
  return absl::OkStatus();
}

}  // namespace specwire::coordinator
