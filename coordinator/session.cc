// SPDX-License-Identifier: Apache-2.0
#include "coordinator/session.h"

#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/rpc/client_stream.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// Messages of one stream that wait for the strand. Credit and window keep sound
// nodes far below.
constexpr int kMaxBacklog = 4096;
// Messages that wait for a node: a drafter's flood limit, and tunes.
constexpr size_t kMaxQueuedMessages = 4096;

ClientStreamOptions NodeStreamOptions(absl::Time deadline) {
  ClientStreamOptions options;
  options.limits.max_queued_messages = kMaxQueuedMessages;
  options.deadline = deadline;
  return options;
}

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
    session_->Post([session = session_.get(), status = std::move(status)] {
      session->OnClientClosed(status);
    });
  }

 private:
  const std::shared_ptr<Session> session_;
};

// Told about a node's stream: hands everything to the strand, and gives the
// node back to the registry when the stream has ended.
template <class In>
class Session::NodeHandler final : public StreamHandler<In> {
 public:
  using OnIn = void (Session::*)(int32_t, const In&);
  using OnEnd = void (Session::*)(int32_t, const absl::Status&);

  NodeHandler(std::shared_ptr<Session> session,
              int32_t number,
              std::string node_id,
              OnIn on_in,
              OnEnd on_end)
      : session_(std::move(session)),
        number_(number),
        node_id_(std::move(node_id)),
        on_in_(on_in),
        on_end_(on_end) {}

  void OnMessage(In message) override {
    if (flooded_) return;
    if (backlog_->fetch_add(1) >= kMaxBacklog) {
      flooded_ = true;
      PostEnd(absl::InternalError("the node sends faster than it may"));
      return;
    }
    session_->Post([session = session_.get(),
                    number = number_,
                    on_in = on_in_,
                    backlog = backlog_,
                    message = std::move(message)] {
      backlog->fetch_sub(1);
      (session->*on_in)(number, message);
    });
  }

  void OnClosed(absl::Status status) override {
    session_->environment_.registry->Release(node_id_);
    PostEnd(std::move(status));
  }

 private:
  void PostEnd(absl::Status status) {
    session_->Post(
        [session = session_.get(),
         number = number_,
         on_end = on_end_,
         status = std::move(status)] { (session->*on_end)(number, status); });
  }

  const std::shared_ptr<Session> session_;
  const int32_t number_;
  const std::string node_id_;
  const OnIn on_in_;
  const OnEnd on_end_;
  // Shared with the tasks, which may outlive the handler.
  const std::shared_ptr<std::atomic<int>> backlog_ =
      std::make_shared<std::atomic<int>>(0);
  // Touched by OnMessage alone.
  bool flooded_ = false;
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
    SPECWIRE_LOG(Info,
                 "request ",
                 request_->request_id,
                 ": ",
                 status.ok() ? std::string("done") : status.ToString(),
                 ", prompt ",
                 request_->params.prompt.size(),
                 " tokens, completion ",
                 reply_->num_tokens(),
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
  CountCommit();
  Perform(std::move(actions));
}

void Session::CountCommit() {
  const SpeculationFigures& figures = machine_->figures();
  const int64_t steps = figures.num_spec_steps - counted_steps_;
  const int64_t drafts = figures.num_draft_tokens - counted_draft_tokens_;
  const int64_t accepted =
      figures.num_accepted_draft_tokens - counted_accepted_;
  if (steps == 0) return;
  counted_steps_ += steps;
  counted_draft_tokens_ += drafts;
  counted_accepted_ += accepted;
  if (!pair_.has_value()) {
    pair_ = model_metrics_->Pair(proposer_node_, verifier_.node.identity.name);
  }
  pair_->num_drafts->Increment(static_cast<double>(steps));
  pair_->num_draft_tokens->Increment(static_cast<double>(drafts));
  pair_->num_accepted_tokens->Increment(static_cast<double>(accepted));
  model_metrics_->OnAccepted(static_cast<int>(accepted));
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
  Perform(machine_->OnProposal(ParseProposal(response, source)));
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

void Session::Perform(std::vector<Action> actions) {
  for (Action& action : actions) actions_.push_back(std::move(action));
  if (performing_) return;
  performing_ = true;
  while (!actions_.empty()) {
    const Action action = std::move(actions_.front());
    actions_.pop_front();
    std::visit([this](const auto& wanted) { Do(wanted); }, action);
  }
  performing_ = false;
}

void Session::Do(const OpenVerifier& open) {
  std::shared_ptr<const NodeLink> link;
  while (link == nullptr) {
    absl::StatusOr<NodeInfo> node = environment_.registry->AcquireVerifier(
        request_->model->info.model.model_digest, lost_verifiers_);
    if (!node.ok()) {
      Perform(machine_->OnVerifierClosed(
          absl::UnavailableError(absl::StrCat(last_loss_.message(),
                                              last_loss_.ok() ? "" : ", and ",
                                              node.status().message())),
          /*could_open=*/false));
      return;
    }
    link = environment_.membership->Link(node->node_id);
    if (link == nullptr) {
      // It left between the two calls.
      environment_.registry->Release(node->node_id);
      lost_verifiers_.insert(node->node_id);
    }
    verifier_.node = *std::move(node);
  }
  verifier_.number = ++verifier_number_;
  if (verifier_number_ > 1) model_metrics_->OnMigration(last_loss_);
  pair_.reset();
  auto handler = std::make_shared<NodeHandler<v1::DecodeResponse>>(
      shared_from_this(),
      verifier_.number,
      verifier_.node.node_id,
      &Session::OnDecoded,
      &Session::OnDecodeClosed);
  verifier_.sender = StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
      NodeStreamOptions(deadline_),
      std::move(handler),
      [&link](grpc::ClientContext* context, auto* reactor) {
        link->verifier.async()->Decode(context, reactor);
      });
  verifier_.sender->Send(MakeDecodeOpen(*request_, open));
}

void Session::Do(const SendProposal& send) {
  if (verifier_.sender == nullptr) return;
  if (drafter_.source == send.proposal.source &&
      !send.proposal.tokens.empty()) {
    proposer_ = drafter_.node.drafter->name;
    if (proposer_node_ != drafter_.node.identity.name) {
      proposer_node_ = drafter_.node.identity.name;
      pair_.reset();
    }
  }
  verifier_.sender->Send(MakeProposal(send.proposal));
}

void Session::Do(const SendDecodeTune& tune) {
  if (verifier_.sender != nullptr) verifier_.sender->Send(MakeDecodeTune(tune));
}

void Session::Do(const OpenDrafter& open) {
  std::shared_ptr<const NodeLink> link;
  while (link == nullptr) {
    absl::StatusOr<NodeInfo> node = environment_.registry->AcquireDrafter(
        request_->model->info.vocabulary_fingerprint,
        request_->drafter,
        lost_drafters_);
    if (!node.ok()) {
      Perform(machine_->OnDrafterClosed(open.source,
                                        node.status(),
                                        /*could_open=*/false));
      return;
    }
    link = environment_.membership->Link(node->node_id);
    if (link == nullptr) {
      environment_.registry->Release(node->node_id);
      lost_drafters_.insert(node->node_id);
    }
    drafter_.node = *std::move(node);
  }
  drafter_.source = open.source;
  auto handler =
      std::make_shared<NodeHandler<v1::DraftResponse>>(shared_from_this(),
                                                       open.source,
                                                       drafter_.node.node_id,
                                                       &Session::OnDrafted,
                                                       &Session::OnDraftClosed);
  drafter_.sender = StartClientStream<v1::DraftRequest, v1::DraftResponse>(
      NodeStreamOptions(deadline_),
      std::move(handler),
      [&link](grpc::ClientContext* context, auto* reactor) {
        link->drafter.async()->Draft(context, reactor);
      });
  drafter_.sender->Send(MakeDraftOpen(*request_, open));
}

void Session::Do(const SendCommit& commit) {
  if (drafter_.source != commit.source || drafter_.sender == nullptr) return;
  drafter_.sender->Send(MakeDraftCommit(commit));
}

void Session::Do(const SendRewind& rewind) {
  if (drafter_.source != rewind.source || drafter_.sender == nullptr) return;
  drafter_.sender->Send(MakeDraftRewind(rewind));
}

void Session::Do(const CloseVerifier& /*close*/) {
  if (verifier_.sender == nullptr) return;
  if (machine_->finished()) {
    verifier_.sender->Cancel();
    verifier_ = VerifierStream();
    return;
  }
  // Before the end, the machine closes only what has broken the rules.
  DropVerifier(absl::InternalError("it contradicted the log"));
}

void Session::Do(const CloseDrafter& close) {
  if (drafter_.source != close.source || drafter_.sender == nullptr) return;
  if (!machine_->finished()) {
    SPECWIRE_LOG(Info,
                 "request ",
                 request_->request_id,
                 ": gave up draft node '",
                 drafter_.node.identity.name,
                 "': it was late or broke the rules");
    lost_drafters_.insert(drafter_.node.node_id);
  }
  drafter_.sender->Cancel();
  drafter_ = DrafterStream();
}

void Session::Do(const ArmDrafterTimer& arm) {
  // Those of earlier drafters are void.
  while (!debts_.empty() && debts_.front().source != arm.source) {
    debts_.pop_front();
  }
  debts_.push_back(
      {arm.source, arm.owed, absl::Now() + environment_.drafter_deadline});
  ScheduleDebts();
}

void Session::Do(const EmitTokens& emit) {
  v1::GenerateResponse delta = reply_->Delta(emit, absl::Now());
  untaken_.push_back(reply_->num_tokens());
  sender_->Send(std::move(delta));
}

void Session::Do(const FinishRequest& finish) {
  if (!finish.status.ok()) {
    End(finish.status);
    return;
  }
  End(absl::OkStatus(),
      reply_->Finished(finish, machine_->figures(), proposer_, absl::Now()));
}

}  // namespace specwire::coordinator
