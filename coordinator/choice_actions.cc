// SPDX-License-Identifier: Apache-2.0

// What a choice does when its request machine wants something done; the
// events are in choice.cc.

#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/drafting/drafter_names.h"
#include "common/rpc/client_stream.h"
#include "coordinator/choice.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// Messages of one stream that wait for the strand. Credit and window keep sound
// nodes far below.
constexpr int kMaxBacklog = 4096;
// Messages that wait for a node: a drafter's flood limit, and tunes.
constexpr size_t kMaxQueuedMessages = 4096;

ClientStreamOptions NodeStreamOptions(absl::Time deadline,
                                      Counter* sent_bytes) {
  ClientStreamOptions options;
  options.limits.sent_bytes = sent_bytes;
  options.limits.max_queued_messages = kMaxQueuedMessages;
  options.deadline = deadline;
  return options;
}

}  // namespace

// Told about a node's stream: hands everything to the strand, and gives the
// node back to the registry when the stream has ended.
template <class In>
class Choice::NodeHandler final : public StreamHandler<In> {
 public:
  using OnIn = void (Choice::*)(int32_t, const In&);
  using OnEnd = void (Choice::*)(int32_t, const absl::Status&);

  NodeHandler(Choice* choice,
              int32_t number,
              std::string node_id,
              int num_unread,
              OnIn on_in,
              OnEnd on_end)
      : host_(choice->context_.host->shared_from_this()),
        choice_(choice),
        number_(number),
        node_id_(std::move(node_id)),
        num_unread_(num_unread),
        on_in_(on_in),
        on_end_(on_end) {}

  void OnMessage(In message) override {
    if (flooded_) return;
    if (num_unread_ > 0 && !message.has_check()) {
      choice_->environment_.registry->OnRead(node_id_,
                                             std::exchange(num_unread_, 0));
    }
    if (backlog_->fetch_add(1) >= kMaxBacklog) {
      flooded_ = true;
      PostEnd(absl::InternalError("the node sends faster than it may"));
      return;
    }
    host_->Post([choice = choice_,
                 number = number_,
                 on_in = on_in_,
                 backlog = backlog_,
                 message = std::move(message)] {
      backlog->fetch_sub(1);
      (choice->*on_in)(number, message);
    });
  }

  void OnClosed(absl::Status status) override {
    choice_->environment_.registry->Release(node_id_, num_unread_);
    PostEnd(std::move(status));
  }

 private:
  void PostEnd(absl::Status status) {
    host_->Post(
        [choice = choice_,
         number = number_,
         on_end = on_end_,
         status = std::move(status)] { (choice->*on_end)(number, status); });
  }

  // Owns the choice.
  const std::shared_ptr<ChoiceHost> host_;
  Choice* const choice_;
  const int32_t number_;
  const std::string node_id_;
  // Tokens that the node has to read before it says something. Touched by
  // OnMessage, and by OnClosed, which comes last.
  int num_unread_;
  const OnIn on_in_;
  const OnEnd on_end_;
  // Shared with the tasks, which may outlive the handler.
  const std::shared_ptr<std::atomic<int>> backlog_ =
      std::make_shared<std::atomic<int>>(0);
  // Touched by OnMessage alone.
  bool flooded_ = false;
};

void Choice::OnNodeSuspect(const std::string& node_id,
                           const absl::Status& why) {
  if (ended_) return;
  if (verifier_.sender != nullptr && verifier_.node.node_id == node_id) {
    LoseVerifier(why);
  } else if (drafter_.sender != nullptr && drafter_.node.node_id == node_id) {
    OnDraftClosed(drafter_.source, why);
  }
}

void Choice::Perform(std::vector<Action> actions) {
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

absl::Status Choice::WhyNone(const absl::Status& status) const {
  // Those that are full said when to try again.
  if (absl::IsResourceExhausted(last_loss_)) return last_loss_;
  if (last_loss_.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat(last_loss_.message(), ", and ", status.message()));
}

void Choice::Do(const OpenVerifier& open) {
  const auto num_tokens = static_cast<int>(open.tokens.size());
  const int end = static_cast<int>(request_.params.prompt.size()) +
                  request_.params.max_tokens;
  std::shared_ptr<const NodeLink> link;
  while (link == nullptr) {
    absl::StatusOr<NodeInfo> node = environment_.registry->AcquireVerifier(
        request_.model->info.model.model_digest,
        lost_verifiers_,
        {.num_tokens = num_tokens,
         .max_tokens = end - num_tokens,
         .affinity = request_.affinity});
    if (!node.ok()) {
      Perform(machine_.OnVerifierClosed(WhyNone(node.status()),
                                        /*could_open=*/false));
      return;
    }
    link = environment_.membership->Link(node->node_id);
    if (link == nullptr) {
      // It left between the two calls.
      environment_.registry->Release(node->node_id, num_tokens);
      lost_verifiers_.insert(node->node_id);
    }
    verifier_.node = *std::move(node);
  }
  verifier_.number = ++verifier_number_;
  verifier_.opened = absl::Now();
  // A refusal is no loss.
  if (verifier_number_ > 1 && !absl::IsResourceExhausted(last_loss_)) {
    context_.metrics->OnMigration(last_loss_);
  }
  // What has not been counted is the former one's.
  CountFigures();
  verifier_name_ = verifier_.node.identity.name;
  if (trace_.has_value()) trace_->SetVerifier(verifier_name_);
  pair_.reset();
  local_pair_.reset();
  committed_at_.reset();
  auto handler = std::make_shared<NodeHandler<v1::DecodeResponse>>(
      this,
      verifier_.number,
      verifier_.node.node_id,
      num_tokens,
      &Choice::OnDecoded,
      &Choice::OnDecodeClosed);
  verifier_.sender = StartClientStream<v1::DecodeRequest, v1::DecodeResponse>(
      NodeStreamOptions(context_.deadline, environment_.metrics->decode_bytes),
      std::move(handler),
      [&link](grpc::ClientContext* context, auto* reactor) {
        link->verifier.async()->Decode(context, reactor);
      });
  verifier_.link = link;
  verifier_.account.Open(verifier_.opened);
  v1::DecodeRequest message = MakeDecodeOpen(request_, open, index_);
  message.mutable_open()->set_max_silence_ms(absl::ToInt64Milliseconds(
      StreamAccount::NodeLimit(environment_.stream_deadline)));
  SendToVerifier(std::move(message));
}

void Choice::Do(const SendProposal& send) {
  if (verifier_.sender == nullptr) return;
  if (drafter_.source == send.proposal.source &&
      !send.proposal.tokens.empty()) {
    proposer_ = drafter_.node.drafter->name;
  }
  if (committed_at_.has_value() && !draft_took_.has_value() &&
      !send.proposal.tokens.empty()) {
    draft_took_ = absl::Now() - *committed_at_;
  }
  SendToVerifier(MakeProposal(send.proposal));
}

void Choice::Do(const SendDecodeTune& tune) {
  SendToVerifier(MakeDecodeTune(tune));
}

void Choice::Do(const OpenDrafter& open) {
  if (OpenDraftNode(open)) return;
  Perform(machine_.OnDrafterClosed(
      open.source,
      absl::UnavailableError("no drafter that fits takes work"),
      /*could_open=*/false));
}

bool Choice::OpenDraftNode(const OpenDrafter& open) {
  std::shared_ptr<const NodeLink> link;
  while (link == nullptr) {
    absl::StatusOr<NodeInfo> node = environment_.registry->AcquireDrafter(
        request_.model->info.vocabulary_fingerprint,
        request_.drafter,
        lost_drafters_,
        verifier_.node.identity.address);
    if (!node.ok()) return false;
    link = environment_.membership->Link(node->node_id);
    if (link == nullptr) {
      environment_.registry->Release(node->node_id);
      lost_drafters_.insert(node->node_id);
    }
    drafter_.node = *std::move(node);
  }
  drafter_.source = open.source;
  if (trace_.has_value()) {
    trace_->OnDrafterOpened(
        open.source, drafter_.node.identity.name, drafter_.node.drafter->name);
    trace_->OnDrafterTold(open.source, static_cast<int>(open.tokens.size()));
  }
  auto handler =
      std::make_shared<NodeHandler<v1::DraftResponse>>(this,
                                                       open.source,
                                                       drafter_.node.node_id,
                                                       /*num_unread=*/0,
                                                       &Choice::OnDrafted,
                                                       &Choice::OnDraftClosed);
  drafter_.sender = StartClientStream<v1::DraftRequest, v1::DraftResponse>(
      NodeStreamOptions(context_.deadline, environment_.metrics->draft_bytes),
      std::move(handler),
      [&link](grpc::ClientContext* context, auto* reactor) {
        link->drafter.async()->Draft(context, reactor);
      });
  drafter_.link = link;
  drafter_.account.Open(absl::Now());
  v1::DraftRequest message = MakeDraftOpen(request_, open, index_);
  message.mutable_open()->set_max_silence_ms(absl::ToInt64Milliseconds(
      StreamAccount::NodeLimit(environment_.stream_deadline)));
  SendToDrafter(std::move(message));
  return true;
}

void Choice::Do(const SendCommit& commit) {
  if (drafter_.source != commit.source) return;
  if (trace_.has_value()) {
    trace_->OnDrafterTold(
        commit.source,
        commit.position + static_cast<int>(commit.tokens.size()));
  }
  SendToDrafter(MakeDraftCommit(commit));
}

void Choice::Do(const SendRewind& rewind) {
  if (drafter_.source != rewind.source) return;
  if (trace_.has_value()) {
    trace_->OnDrafterTold(rewind.source, rewind.position);
  }
  SendToDrafter(MakeDraftRewind(rewind));
}

void Choice::Do(const SendDraftTune& tune) {
  if (drafter_.source != tune.source) return;
  SendToDrafter(MakeDraftTune(tune));
}

void Choice::Do(const CloseVerifier& /*close*/) {
  if (verifier_.sender == nullptr) return;
  if (machine_.finished()) {
    verifier_.sender->Cancel();
    verifier_ = VerifierStream();
    return;
  }
  // Before the end, the machine closes only what has broken the rules.
  DropVerifier(absl::InternalError("it contradicted the log"));
}

void Choice::Do(const CloseDrafter& close) {
  if (drafter_.source != close.source) return;
  if (close.lost && !machine_.finished()) {
    SPECWIRE_LOG(Info,
                 "request ",
                 request_.request_id,
                 ": gave up draft node '",
                 drafter_.node.identity.name,
                 "': it was late or broke the rules");
    lost_drafters_.insert(drafter_.node.node_id);
  }
  if (drafter_.sender != nullptr) drafter_.sender->Cancel();
  drafter_ = DrafterStream();
}

void Choice::Do(const ArmDrafterTimer& arm) {
  debt_ = {arm.source, arm.owed, absl::Now() + environment_.drafter_deadline};
  ScheduleDebt();
}

void Choice::Do(const EmitTokens& emit) {
  v1::GenerateResponse delta = reply_.Delta(emit, absl::Now());
  context_.host->OnDelta(index_, reply_.num_tokens(), std::move(delta));
}

void Choice::Do(const FinishRequest& finish) {
  CountFigures();
  reply_.CountEnd();
  ended_ = true;
  const std::optional<SpeculationEstimates> estimates = machine_.estimates();
  if (estimates.has_value()) {
    environment_.priors->Report(
        request_.model->info.model.model_digest, request_.drafter, *estimates);
  }
  debt_.reset();
  environment_.timer->Cancel(timer_id_);
  environment_.timer->Cancel(check_id_);
  if (!finish.status.ok()) {
    context_.host->OnEnded(index_, finish.status, std::nullopt);
    return;
  }
  // Who has drafted: a draft node's name says more.
  const bool local = machine_.figures().num_local_draft_tokens > 0;
  v1::GenerateResponse finished =
      reply_.Finished(finish,
                      machine_.figures(),
                      proposer_.empty() && local ? kLocalDrafter : proposer_);
  context_.host->OnEnded(index_, finish.status, std::move(finished));
}

}  // namespace specwire::coordinator
