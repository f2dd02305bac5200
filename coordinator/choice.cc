// SPDX-License-Identifier: Apache-2.0
#include "coordinator/choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/draining.h"
#include "common/base/logging.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/messages.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// A stream that ends well before its sequence has still failed it.
absl::Status NotOk(const absl::Status& status, absl::string_view who) {
  if (!status.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat("the ", who, " ended the stream too early"));
}

// Who drafts for a request: draft nodes, its verifier, or both.
void ChooseDrafters(const CheckedRequest& request,
                    const Registry& registry,
                    RequestParams* params) {
  if (!params->speculation.enabled) return;
  const std::string& drafter = request.drafter;
  const bool serves = drafter != kLocalDrafter &&
                      registry.ServesDrafter(
                          request.model->info.vocabulary_fingerprint, drafter);
  // Who names a drafter wants its drafts and no others, and a request that
  // fixes how it speculates wants one kind.
  const bool local =
      drafter == kLocalDrafter || (drafter == kSuffixDrafter && !serves) ||
      (drafter.empty() && (!serves || params->adapt.has_value()));
  params->draft_nodes =
      drafter != kLocalDrafter &&
      !(local && params->speculation.rule == AcceptanceRule::kRatio);
  if (!local) return;
  params->local_run_length = params->speculation.fixed_run_length
                                 ? params->speculation.run_length
                                 : kMaxRunLength;
}

// The request's parameters, with what is known of the drafters.
RequestParams WithStart(const CheckedRequest& request,
                        const SessionEnvironment& environment) {
  RequestParams params = request.params;
  ChooseDrafters(request, *environment.registry, &params);
  if (params.adapt.has_value()) {
    // Beside a verifier that drafts with a model, on the same processors,
    // another one must be seen to be of use.
    const std::string& digest = request.model->info.model.model_digest;
    const bool doubtful = params.local_run_length > 0 &&
                          environment.registry->DraftsBesideModels(
                              digest,
                              request.model->info.vocabulary_fingerprint,
                              request.drafter);
    params.adapt = environment.priors->Start(digest, request.drafter, doubtful);
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
      trace_(context.request->trace
                 ? std::make_optional<RequestTrace>(
                       &clock_, absl::Now() - context.arrival)
                 : std::nullopt),
      machine_(
          WithStart(*context.request, *context.environment),
          [this](int32_t token) { return reply_.Judge(token); },
          trace_.has_value() ? &*trace_ : nullptr) {}

Choice::~Choice() {
  environment_.timer->Cancel(timer_id_);
  environment_.timer->Cancel(check_id_);
}

void Choice::Start() {
  Perform(machine_.Start());
  checked_ = absl::Now();
  ScheduleCheck();
}

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
  const int64_t num_before = verifier_.account.OnReceived(absl::Now());
  if (response.has_check()) {
    const absl::Status status =
        StreamAccount::Compare(response.check().num_sent(), num_before);
    if (!status.ok()) FailVerifierStream(status);
    return;
  }
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
  CountWait(*commit, absl::Microseconds(timings.wait_us()));
  std::vector<Action> actions =
      machine_.OnCommit(*commit,
                        {.wait = absl::Microseconds(timings.wait_us()),
                         .verify = absl::Microseconds(timings.verify_us())});
  CountFigures();
  Perform(std::move(actions));
}

void Choice::CountWait(const Commit& commit, absl::Duration wait) {
  // A shorter wait was not for this proposal.
  if (draft_took_.has_value() && commit.num_proposed > 0 && !commit.local &&
      wait >= *draft_took_) {
    context_.metrics->draft_duration->Observe(
        absl::ToDoubleSeconds(*draft_took_));
    context_.metrics->network_duration->Observe(
        absl::ToDoubleSeconds(wait - *draft_took_));
  }
  committed_at_ = absl::Now();
  draft_took_.reset();
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
  const auto add_to = [this](const std::string& drafter,
                             std::optional<PairMetrics>* pair,
                             Counter* PairMetrics::*counter,
                             int64_t value) {
    if (value == 0) return;
    if (!pair->has_value()) {
      *pair = context_.metrics->Pair(drafter, verifier_name_);
    }
    ((**pair).*counter)->Increment(static_cast<double>(value));
  };
  const auto add =
      [&](Counter* PairMetrics::*counter, int64_t value, int64_t* counted) {
        add_to(proposer_node_, &pair_, counter, value - *counted);
        *counted = value;
      };
  // What the verifier drafted for itself is in the sums, but a pair of its own.
  const auto add_split = [&](Counter* PairMetrics::*counter,
                             int64_t value,
                             int64_t* counted,
                             int64_t local,
                             int64_t* local_counted) {
    add_to(kLocalDrafter, &local_pair_, counter, local - *local_counted);
    add_to(proposer_node_,
           &pair_,
           counter,
           (value - *counted) - (local - *local_counted));
    *counted = value;
    *local_counted = local;
  };
  if (now.num_passes != counted_.num_passes) {
    context_.metrics->num_passes->Increment(
        static_cast<double>(now.num_passes - counted_.num_passes));
    counted_.num_passes = now.num_passes;
  }
  context_.metrics->OnAccepted(static_cast<int>(
      now.num_accepted_draft_tokens - counted_.num_accepted_draft_tokens));
  add_split(&PairMetrics::num_drafts,
            now.num_spec_steps,
            &counted_.num_spec_steps,
            now.num_local_steps,
            &counted_.num_local_steps);
  add_split(&PairMetrics::num_draft_tokens,
            now.num_draft_tokens,
            &counted_.num_draft_tokens,
            now.num_local_draft_tokens,
            &counted_.num_local_draft_tokens);
  add_split(&PairMetrics::num_accepted_tokens,
            now.num_accepted_draft_tokens,
            &counted_.num_accepted_draft_tokens,
            now.num_accepted_local_draft_tokens,
            &counted_.num_accepted_local_draft_tokens);
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
  if (TellsOfConnection(status)) return FailVerifierStream(Garbled(status));
  LoseVerifier(NotOk(status, "verifier"));
}

void Choice::DropVerifier(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    // The caller's time, not the node's fault.
    SPECWIRE_LOG(Info, "request ", request_.request_id, ": its time is up");
  } else if (IsDraining(status)) {
    SPECWIRE_LOG(Info,
                 "request ",
                 request_.request_id,
                 ": leaves verifier '",
                 verifier_.node.identity.name,
                 "', which drains");
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
  if (ended_) return;
  if (source == drafter_.source) {
    const int64_t num_before = drafter_.account.OnReceived(absl::Now());
    const absl::Status status =
        response.has_check()
            ? StreamAccount::Compare(response.check().num_sent(), num_before)
            : absl::OkStatus();
    if (!status.ok()) return FailDrafterStream(status);
  }
  if (response.has_check()) return;
  const Proposal proposal = ParseProposal(response, source);
  if (proposal.source == drafter_.source && !proposal.tokens.empty() &&
      proposer_node_ != drafter_.node.identity.name) {
    // What has not been counted is the former one's.
    CountFigures();
    proposer_node_ = drafter_.node.identity.name;
    pair_.reset();
  }
  // Counted with the next commit, or at the end.
  Perform(machine_.OnProposal(proposal));
}

void Choice::OnDraftClosed(int32_t source, const absl::Status& status) {
  if (ended_ || source != drafter_.source) return;
  if (TellsOfConnection(status)) return FailDrafterStream(Garbled(status));
  LoseDrafter(source, NotOk(status, "drafter"));
}

void Choice::LoseDrafter(int32_t source, const absl::Status& loss) {
  SPECWIRE_LOG(Info,
               "request ",
               request_.request_id,
               ": lost draft node '",
               drafter_.node.identity.name,
               "': ",
               loss.ToString());
  lost_drafters_.insert(drafter_.node.node_id);
  if (drafter_.sender != nullptr) drafter_.sender->Cancel();
  drafter_ = DrafterStream();
  Perform(machine_.OnDrafterClosed(source, loss, /*could_open=*/true));
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
