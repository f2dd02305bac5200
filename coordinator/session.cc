// SPDX-License-Identifier: Apache-2.0
#include "coordinator/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/rpc/convert.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

FinishReason ReasonOf(const v1::GenerateResponse& last) {
  return FromProto(last.finished().finish_reason())
      .value_or(FinishReason::kNone);
}

}  // namespace

// Told about the client's stream.
class Session::ClientHandler final : public WriterHandler {
 public:
  explicit ClientHandler(std::shared_ptr<Session> session)
      : session_(std::move(session)) {}

  void OnWritten(size_t /*num_queued*/) override {
    session_->Post([session = session_.get()] { session->OnClientTook(); });
  }
  void OnClosed(absl::Status status) override {
    session_->gone_ = true;
    session_->Post([session = session_.get(), status = std::move(status)] {
      session->OnClientClosed(status);
    });
  }

 private:
  const std::shared_ptr<Session> session_;
};

Session::Session(const SessionEnvironment& environment, Call call)
    : environment_(environment),
      arrival_(call.arrival),
      deadline_(call.deadline),
      sender_(std::move(call.sender)),
      on_end_(std::move(call.on_end)) {
  environment_.metrics->waiting->Add(1);
}

Session::~Session() { End(absl::CancelledError("the session was dropped")); }

std::shared_ptr<WriterHandler> Session::MakeClientHandler() {
  return std::make_shared<ClientHandler>(
      std::static_pointer_cast<Session>(shared_from_this()));
}

void Session::Post(absl::AnyInvocable<void()> task) {
  strand_.Post([self = shared_from_this(), task = std::move(task)]() mutable {
    task();
  });
}

void Session::Begin(absl::StatusOr<CheckedRequest> request) {
  Post([this, request = std::move(request)]() mutable {
    Start(std::move(request));
  });
}

void Session::Fail(const absl::Status& status) {
  Post([this, status] { End(status); });
}

void Session::OnDrafterAvailable() {
  Post([this] {
    for (const auto& choice : choices_) choice->OnDrafterAvailable();
  });
}

void Session::OnNodeSuspect(const std::string& node_id,
                            const absl::Status& why) {
  Post([this, node_id, why] {
    for (const auto& choice : choices_) choice->OnNodeSuspect(node_id, why);
  });
}

void Session::Start(absl::StatusOr<CheckedRequest> request) {
  // The client may have gone while the prompt was tokenized.
  if (ended_) return;
  if (!request.ok()) {
    End(request.status());
    return;
  }
  request_ = *std::move(request);
  model_metrics_ =
      environment_.metrics->ForModel(request_->model->info.model.name);
  environment_.metrics->waiting->Add(-1);
  model_metrics_->running->Add(1);
  const auto prompt_tokens =
      static_cast<double>(request_->params.prompt.size());
  model_metrics_->prompt_tokens->Increment(prompt_tokens);
  model_metrics_->request_prompt_tokens->Observe(prompt_tokens);
  NoteUntaken({});
  v1::GenerateResponse started = MakeStarted(*request_);
  started.mutable_started()->set_synthetic(IsSynthetic());
  sender_->Send(std::move(started));
  if (std::optional<v1::GenerateResponse> prompt = MakePrompt(*request_)) {
    OnPrompt(*std::move(prompt));
  }
  for (int i = 0; i < request_->num_choices; ++i) {
    choices_.push_back(
        std::make_unique<Choice>(Choice::Context{.host = this,
                                                 .environment = &environment_,
                                                 .request = &*request_,
                                                 .metrics = model_metrics_,
                                                 .arrival = arrival_,
                                                 .deadline = deadline_},
                                 i));
  }
  for (const auto& choice : choices_) {
    // One that fails at once ends the others too.
    if (!ended_) choice->Start();
  }
  ScheduleAlive();
}

void Session::ScheduleAlive() {
  if (ended_ || request_->alive_interval == absl::ZeroDuration()) return;
  alive_id_ = environment_.timer->ScheduleAfter(
      request_->alive_interval, [weak = weak_from_this(), this] {
        const std::shared_ptr<ChoiceHost> self = weak.lock();
        if (self != nullptr) Post([this] { OnAliveDue(); });
      });
}

void Session::OnAliveDue() {
  if (ended_) return;
  // What it has not taken yet will tell it.
  if (!std::exchange(told_, false) && untaken_.empty()) {
    v1::GenerateResponse message;
    message.mutable_alive();
    NoteUntaken({});
    sender_->Send(std::move(message));
  }
  ScheduleAlive();
}

bool Session::IsSynthetic() const {
  const VerifierInfo& model = request_->model->info;
  return model.model.synthetic ||
         (request_->params.speculation.enabled &&
          environment_.registry->HasSyntheticDrafter(
              model.vocabulary_fingerprint, request_->drafter));
}

void Session::OnDelta(int choice, int num_tokens, v1::GenerateResponse delta) {
  if (ended_) return;
  NoteUntaken({choice, num_tokens});
  sender_->Send(std::move(delta));
}

void Session::OnPrompt(v1::GenerateResponse prompt) {
  if (ended_) return;
  NoteUntaken({});
  sender_->Send(std::move(prompt));
}

void Session::OnEnded(int choice,
                      const absl::Status& status,
                      std::optional<v1::GenerateResponse> finished) {
  if (ended_) return;
  const bool all = std::all_of(choices_.begin(),
                               choices_.end(),
                               [](const auto& one) { return one->ended(); });
  if (!status.ok() || all) {
    End(status, std::move(finished));
    return;
  }
  NoteUntaken({choice, 0});
  sender_->Send(*std::move(finished));
}

void Session::End(const absl::Status& status,
                  std::optional<v1::GenerateResponse> last) {
  if (ended_) return;
  ended_ = true;
  environment_.timer->Cancel(alive_id_);
  for (const auto& choice : choices_) {
    choice->Abort(status.ok() ? absl::CancelledError("the request has ended")
                              : status);
  }
  (model_metrics_ != nullptr ? model_metrics_->running
                             : environment_.metrics->waiting)
      ->Add(-1);
  if (!status.ok()) {
    environment_.metrics->OnFailure(
        status, model_metrics_ == nullptr ? "" : model_metrics_->model_name());
  } else if (last.has_value()) {
    model_metrics_->OnSuccess(
        ReasonOf(*last),
        std::max(absl::Now() - arrival_, absl::ZeroDuration()));
  }
  // Of a request that was refused the caller hears enough.
  if (request_.has_value()) LogEnd(status);
  if (on_end_ != nullptr) std::exchange(on_end_, nullptr)();
  if (last.has_value()) {
    NoteUntaken({});
    sender_->Send(*std::move(last));
  }
  sender_->Finish(status);
}

void Session::LogEnd(const absl::Status& status) const {
  int num_tokens = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted = 0;
  for (const auto& choice : choices_) {
    num_tokens += choice->num_tokens();
    num_draft_tokens += choice->figures().num_draft_tokens;
    num_accepted += choice->figures().num_accepted_draft_tokens;
  }
  SPECWIRE_LOG(
      Info,
      "request ",
      request_->request_id,
      ": ",
      status.ok() ? std::string("done") : status.ToString(),
      ", prompt ",
      request_->params.prompt.size(),
      " tokens, completion ",
      num_tokens,
      request_->params.resumed.empty()
          ? std::string()
          : absl::StrCat(" (", request_->params.resumed.size(), " resumed)"),
      choices_.size() < 2 ? std::string()
                          : absl::StrCat(" in ", choices_.size(), " choices"),
      ", ",
      num_accepted,
      " of ",
      num_draft_tokens,
      " draft tokens accepted, ",
      absl::FormatDuration(absl::Now() - arrival_));
}

void Session::NoteUntaken(Untaken untaken) {
  told_ = true;
  if (untaken_.empty()) untaken_since_ = absl::Now();
  untaken_.push_back(untaken);
}

void Session::CheckStall(absl::Time now, absl::Duration limit) {
  if (now - untaken_since_.load() <= limit) return;
  // The call may have ended well for us: its messages still wait for whoever
  // does not read them.
  const absl::Status status = absl::AbortedError(absl::StrCat(
      "the client has read nothing for ", absl::FormatDuration(limit)));
  Fail(status);
  Post([this, status] { sender_->Cancel(status); });
}

void Session::OnClientTook() {
  if (untaken_.empty()) return;
  const Untaken taken = untaken_.front();
  untaken_.pop_front();
  untaken_since_ = untaken_.empty() ? absl::InfiniteFuture() : absl::Now();
  if (ended_ || taken.num_tokens == 0) return;
  choices_[static_cast<size_t>(taken.choice)]->OnClientTook(taken.num_tokens);
}

void Session::OnClientClosed(const absl::Status& status) {
  untaken_.clear();
  untaken_since_ = absl::InfiniteFuture();
  End(status.ok() ? absl::CancelledError("the client has gone") : status);
}

}  // namespace specwire::coordinator
