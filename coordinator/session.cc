// SPDX-License-Identifier: Apache-2.0
#include "coordinator/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// A stream that ends well before its sequence has still failed it.
absl::Status NotOk(const absl::Status& status, absl::string_view who) {
  if (!status.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat("the ", who, " ended the stream too early"));
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
  return std::make_shared<ClientHandler>(shared_from_this());
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
  Post([this, status] {
    if (active()) {
      Perform(machine_->OnClientGone(status));
    } else {
      End(status);
    }
  });
}

void Session::OnDrafterAvailable() {
  Post([this] {
    if (active()) Perform(machine_->OnDrafterAvailable());
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
  environment_.metrics->waiting->Add(-1);
  environment_.metrics->running->Add(1);
  model_metrics_ =
      environment_.metrics->ForModel(request_->model->info.model.name);
  reply_.emplace(&*request_, model_metrics_, arrival_);
  machine_.emplace(request_->params);
  untaken_.push_back(0);
  sender_->Send(MakeStarted(*request_));
  Perform(machine_->Start());
}

void Session::End(const absl::Status& status,
                  std::optional<v1::GenerateResponse> last) {
  if (ended_) return;
  ended_ = true;
  debts_.clear();
  environment_.timer->Cancel(timer_id_);
  (request_.has_value() ? environment_.metrics->running
                        : environment_.metrics->waiting)
      ->Add(-1);
  if (!status.ok()) environment_.metrics->OnFailure(status);
  // Of a request that was refused the caller hears enough.
  if (request_.has_value()) {
    SPECWIRE_LOG(
        Info,
        "request ",
        request_->request_id,
        ": ",
        status.ok() ? std::string("done") : status.ToString(),
        ", prompt ",
        request_->params.prompt.size(),
        " tokens, completion ",
        reply_->num_tokens(),
        request_->params.resumed.empty()
            ? std::string()
            : absl::StrCat(" (", request_->params.resumed.size(), " resumed)"),
        ", ",
        machine_->figures().num_accepted_draft_tokens,
        " of ",
        machine_->figures().num_draft_tokens,
        " draft tokens accepted, ",
        absl::FormatDuration(absl::Now() - arrival_));
  }
  if (on_end_ != nullptr) std::exchange(on_end_, nullptr)();
  if (last.has_value()) sender_->Send(*std::move(last));
  sender_->Finish(status);
}

void Session::OnClientTook() {
  if (untaken_.empty()) return;
  const int count = untaken_.front();
  untaken_.pop_front();
  if (active() && count > 0) Perform(machine_->OnClientTook(count));
}

void Session::OnClientClosed(const absl::Status& status) {
  untaken_.clear();
  if (ended_) return;
  const absl::Status gone =
      status.ok() ? absl::CancelledError("the client has gone") : status;
  if (active()) {
    Perform(machine_->OnClientGone(gone));
  } else {
    End(gone);
  }
}

void Session::OnDecoded(int32_t number, const v1::DecodeResponse& response) {
  if (!active() || number != verifier_.number) return;
  const absl::StatusOr<Commit> commit =
      ParseCommit(response, request_->params.vocab_size);
  if (!commit.ok()) {
    LoseVerifier(absl::InternalError(absl::StrCat(
        "the verifier sent a bad message: ", commit.status().message())));
    return;
  }
  reply_->OnFirstStep(
      absl::Now() - absl::Microseconds(response.timings().verify_us()),
      response.cached_prompt_tokens());
  std::vector<Action> actions = machine_->OnCommit(*commit);
  CountFigures();
  Perform(std::move(actions));
}

void Session::CountFigures() {
  const SpeculationFigures& now = machine_->figures();
  const auto add =
      [this](Counter* PairMetrics::*counter, int64_t value, int64_t* counted) {
        if (value == *counted) return;
        if (!pair_.has_value()) {
          pair_ = model_metrics_->Pair(proposer_node_, verifier_name_);
        }
        ((*pair_).*counter)->Increment(static_cast<double>(value - *counted));
        *counted = value;
      };
  if (now.num_passes != counted_.num_passes) {
    model_metrics_->num_passes->Increment(
        static_cast<double>(now.num_passes - counted_.num_passes));
    counted_.num_passes = now.num_passes;
  }
  model_metrics_->OnAccepted(static_cast<int>(
      now.num_accepted_draft_tokens - counted_.num_accepted_draft_tokens));
  add(&PairMetrics::num_drafts, now.num_spec_steps, &counted_.num_spec_steps);
  add(&PairMetrics::num_draft_tokens,
      now.num_draft_tokens,
      &counted_.num_draft_tokens);
  add(&PairMetrics::num_accepted_tokens,
      now.num_accepted_draft_tokens,
      &counted_.num_accepted_draft_tokens);
  add(&PairMetrics::num_overlapped_tokens,
      now.num_overlapped_tokens,
      &counted_.num_overlapped_tokens);
  add(&PairMetrics::num_stale_tokens,
      now.num_stale_tokens,
      &counted_.num_stale_tokens);
  add(&PairMetrics::num_trimmed_tokens,
      now.num_trimmed_tokens,
      &counted_.num_trimmed_tokens);
  add(&PairMetrics::num_unused_tokens,
      now.num_unused_tokens,
      &counted_.num_unused_tokens);
}

void Session::OnDecodeClosed(int32_t number, const absl::Status& status) {
  if (!active() || number != verifier_.number) return;
  LoseVerifier(NotOk(status, "verifier"));
}

void Session::DropVerifier(const absl::Status& status) {
  SPECWIRE_LOG(Warning,
               "request ",
               request_->request_id,
               ": lost verifier '",
               verifier_.node.identity.name,
               "': ",
               status.ToString());
  last_loss_ = absl::Status(status.code(),
                            absl::StrCat("lost verifier '",
                                         verifier_.node.identity.name,
                                         "' (",
                                         status.message(),
                                         ")"));
  lost_verifiers_.insert(verifier_.node.node_id);
  verifier_.sender->Cancel();
  verifier_ = VerifierStream();
}

void Session::LoseVerifier(const absl::Status& status) {
  DropVerifier(status);
  Perform(machine_->OnVerifierClosed(status, /*could_open=*/true));
}

void Session::OnDrafted(int32_t source, const v1::DraftResponse& response) {
  if (!active()) return;
  if (source == drafter_.source && response.tokens_size() > 0 &&
      proposer_node_ != drafter_.node.identity.name) {
    proposer_node_ = drafter_.node.identity.name;
    pair_.reset();
  }
  std::vector<Action> actions =
      machine_->OnProposal(ParseProposal(response, source));
  CountFigures();
  Perform(std::move(actions));
}

void Session::OnDraftClosed(int32_t source, const absl::Status& status) {
  if (!active() || source != drafter_.source) return;
  const absl::Status lost = NotOk(status, "drafter");
  SPECWIRE_LOG(Info,
               "request ",
               request_->request_id,
               ": lost draft node '",
               drafter_.node.identity.name,
               "': ",
               lost.ToString());
  lost_drafters_.insert(drafter_.node.node_id);
  drafter_.sender->Cancel();
  drafter_ = DrafterStream();
  Perform(machine_->OnDrafterClosed(source, lost, /*could_open=*/true));
}

void Session::OnDebtsDue() {
  timer_id_ = TimerThread::kNone;
  const absl::Time now = absl::Now();
  while (active() && !debts_.empty() && debts_.front().due <= now) {
    const Debt debt = debts_.front();
    debts_.pop_front();
    Perform(machine_->OnDrafterTimeout(debt.source, debt.owed));
  }
  ScheduleDebts();
}

void Session::ScheduleDebts() {
  if (ended_ || debts_.empty() || timer_id_ != TimerThread::kNone) return;
  timer_id_ = environment_.timer->ScheduleAfter(
      debts_.front().due - absl::Now(), [weak = weak_from_this()] {
        const std::shared_ptr<Session> session = weak.lock();
        if (session == nullptr) return;
        session->Post([raw = session.get()] { raw->OnDebtsDue(); });
      });
}

}  // namespace specwire::coordinator
