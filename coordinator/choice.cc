// SPDX-License-Identifier: Apache-2.0
#include "coordinator/choice.h"

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

// Whether a request's first drafter is to be the local one.
bool BeginsLocal(const CheckedRequest& request,
                 const SessionEnvironment& environment) {
  if (environment.local_drafter == nullptr ||
      !request.params.speculation.enabled ||
      !MayDraftLocally(request.drafter)) {
    return false;
  }
  if (request.drafter == kLocalDrafter) return true;
  if (!environment.registry->ServesDrafter(
          request.model->info.vocabulary_fingerprint, request.drafter)) {
    return true;
  }
  // Under the ratio rule the text depends on what is drafted, so it shall not
  // depend on other requests who drafts.
  if (!request.drafter.empty() ||
      request.params.speculation.rule == AcceptanceRule::kRatio) {
    return false;
  }
  return environment.preference->TakesLocal(
      request.model->info.model.model_digest);
}

// The request's parameters, with what is known of the drafters.
RequestParams WithStart(const CheckedRequest& request,
                        const std::string& prior_name,
                        SpeculationPriors* priors) {
  RequestParams params = request.params;
  if (params.adapt.has_value()) {
    params.adapt =
        priors->Start(request.model->info.model.model_digest, prior_name);
  }
  return params;
}

}  // namespace

Choice::Choice(const Context& context, int index)
    : context_(context),
      environment_(*context.environment),
      request_(*context.request),
      index_(index),
      reply_(context.request, context.metrics, context.arrival, index),
      begins_local_(BeginsLocal(*context.request, *context.environment)),
      prior_name_(begins_local_ ? std::string(kLocalDrafter)
                                : context.request->drafter),
      machine_(WithStart(
                   *context.request, *prior_name_, context.environment->priors),
               [this](int32_t token) { return reply_.Judge(token); }) {}

Choice::~Choice() { environment_.timer->Cancel(timer_id_); }

void Choice::Start() { Perform(machine_.Start()); }

void Choice::OnClientTook(int count) {
  if (!ended_) Perform(machine_.OnClientTook(count));
}

void Choice::Abort(const absl::Status& status) {
  if (!ended_) Perform(machine_.OnClientGone(status));
}

void Choice::OnDrafterAvailable() {
  if (!ended_) Perform(machine_.OnDrafterAvailable());
}

void Choice::OnDecoded(int32_t number, const v1::DecodeResponse& response) {
  if (ended_ || number != verifier_.number) return;
  if (response.has_prompt_logprobs()) {
    OnPromptLogprobs(response.prompt_logprobs());
    return;
  }
  const absl::StatusOr<Commit> commit =
      ParseCommit(response, request_.params.vocab_size, request_.logprobs);
  if (!commit.ok()) {
    LoseVerifier(absl::InternalError(absl::StrCat(
        "the verifier sent a bad message: ", commit.status().message())));
    return;
  }
  const v1::StepTimings& timings = response.timings();
  // Only the first counts, whose wait is that in the queue.
  reply_.OnFirstStep(verifier_.opened + absl::Microseconds(timings.wait_us()),
                     response.cached_prompt_tokens());
  std::vector<Action> actions =
      machine_.OnCommit(*commit,
                        {.wait = absl::Microseconds(timings.wait_us()),
                         .verify = absl::Microseconds(timings.verify_us())});
  CountFigures();
  Perform(std::move(actions));
}

void Choice::OnPromptLogprobs(const v1::PromptLogprobs& logprobs) {
  absl::Status status = CheckPromptLogprobs(logprobs, request_);
  if (status.ok() && logprobs.position() > num_prompt_told_) {
    status = absl::InvalidArgumentError("prompt_logprobs: leave a gap");
  }
  if (!status.ok()) {
    LoseVerifier(absl::InternalError(
        absl::StrCat("the verifier sent a bad message: ", status.message())));
    return;
  }
  // A verifier that took over from another begins at the beginning.
  const int skip = num_prompt_told_ - logprobs.position();
  if (skip >= logprobs.logprobs_size()) return;
  v1::GenerateResponse message;
  v1::PromptLogprobs* const out = message.mutable_prompt()->mutable_logprobs();
  out->set_position(num_prompt_told_);
  out->mutable_logprobs()->Add(logprobs.logprobs().begin() + skip,
                               logprobs.logprobs().end());
  num_prompt_told_ += out->logprobs_size();
  context_.host->OnPrompt(std::move(message));
}

void Choice::CountFigures() {
  const SpeculationFigures& now = machine_.figures();
  const auto add =
      [this](Counter* PairMetrics::*counter, int64_t value, int64_t* counted) {
        if (value == *counted) return;
        if (!pair_.has_value()) {
          pair_ = context_.metrics->Pair(proposer_node_, verifier_name_);
        }
        ((*pair_).*counter)->Increment(static_cast<double>(value - *counted));
        *counted = value;
      };
  if (now.num_passes != counted_.num_passes) {
    context_.metrics->num_passes->Increment(
        static_cast<double>(now.num_passes - counted_.num_passes));
    counted_.num_passes = now.num_passes;
  }
  context_.metrics->OnAccepted(static_cast<int>(
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
  add(&PairMetrics::num_ahead_hits,
      now.num_ahead_hits,
      &counted_.num_ahead_hits);
  add(&PairMetrics::num_ahead_misses,
      now.num_ahead_misses,
      &counted_.num_ahead_misses);
}

void Choice::OnDecodeClosed(int32_t number, const absl::Status& status) {
  if (ended_ || number != verifier_.number) return;
  if (absl::IsResourceExhausted(status) && !machine_.committed_here()) {
    // It has no room; another may have.
    SPECWIRE_LOG(Debug,
                 "request ",
                 request_.request_id,
                 ": refused by verifier '",
                 verifier_.node.identity.name,
                 "': ",
                 status.message());
    last_loss_ = status;
    lost_verifiers_.insert(verifier_.node.node_id);
    verifier_ = VerifierStream();
    Perform(machine_.OnVerifierRefused());
    return;
  }
  LoseVerifier(NotOk(status, "verifier"));
}

void Choice::DropVerifier(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    // The caller's time, not the node's fault.
    SPECWIRE_LOG(Info, "request ", request_.request_id, ": its time is up");
  } else {
    SPECWIRE_LOG(Warning,
                 "request ",
                 request_.request_id,
                 ": lost verifier '",
                 verifier_.node.identity.name,
                 "': ",
                 status.ToString());
  }
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

void Choice::LoseVerifier(const absl::Status& status) {
  DropVerifier(status);
  Perform(machine_.OnVerifierClosed(status, /*could_open=*/true));
}

void Choice::OnDrafted(int32_t source, const v1::DraftResponse& response) {
  if (!ended_) OnProposal(ParseProposal(response, source));
}

void Choice::OnProposal(const Proposal& proposal) {
  if (proposal.source == drafter_.source && !proposal.tokens.empty() &&
      proposer_node_ != drafter_.node.identity.name) {
    proposer_node_ = drafter_.node.identity.name;
    pair_.reset();
  }
  std::vector<Action> actions = machine_.OnProposal(proposal);
  CountFigures();
  Perform(std::move(actions));
}

void Choice::OnDraftClosed(int32_t source, const absl::Status& status) {
  if (ended_ || source != drafter_.source) return;
  LoseDrafter(NotOk(status, "drafter"));
}

void Choice::LoseDrafter(const absl::Status& status) {
  SPECWIRE_LOG(Info,
               "request ",
               request_.request_id,
               ": lost draft node '",
               drafter_.node.identity.name,
               "': ",
               status.ToString());
  const int32_t source = drafter_.source;
  lost_drafters_.insert(drafter_.node.node_id);
  if (drafter_.sender != nullptr) drafter_.sender->Cancel();
  drafter_ = DrafterStream();
  Perform(machine_.OnDrafterClosed(source, status, /*could_open=*/true));
}

void Choice::OnDebtDue() {
  timer_id_ = TimerThread::kNone;
  if (!ended_ && debt_.has_value() && debt_->due <= absl::Now()) {
    const Debt debt = *std::exchange(debt_, std::nullopt);
    Perform(machine_.OnDrafterTimeout(debt.source, debt.owed));
  }
  ScheduleDebt();
}

void Choice::ScheduleDebt() {
  if (ended_ || !debt_.has_value() || timer_id_ != TimerThread::kNone) return;
  timer_id_ = environment_.timer->ScheduleAfter(
      debt_->due - absl::Now(), [weak = context_.host->weak_from_this(), this] {
        // The host owns this choice.
        const std::shared_ptr<ChoiceHost> host = weak.lock();
        if (host != nullptr) host->Post([this] { OnDebtDue(); });
      });
}

}  // namespace specwire::coordinator
