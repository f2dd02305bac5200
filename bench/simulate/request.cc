// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/request.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "bench/simulate/trace_drafter.h"

namespace specwire::simulate {
namespace {

// Tokens that a text which stops by itself would have been allowed beyond.
constexpr int kMoreTokens = 64;
// What the priors know model and drafter as.
constexpr char kModel[] = "model";

int MaxTokens(const Trace& trace) {
  return static_cast<int>(trace.positions.size()) +
         (trace.stopped ? kMoreTokens : 0);
}

std::vector<int32_t> StopTokens(const Trace& trace,
                                const std::vector<int32_t>& text) {
  if (!trace.stopped) return {};
  return {text.back()};
}

coordinator::RequestParams MakeParams(const Request::Context& context,
                                      const std::vector<int32_t>& text) {
  const Trace& trace = *context.trace;
  const Policy& policy = context.settings->policy;
  coordinator::RequestParams params;
  params.prompt.assign(text.begin(), text.begin() + trace.prompt_tokens);
  params.max_tokens = MaxTokens(trace);
  params.stop_token_ids = StopTokens(trace, text);
  params.speculation.enabled = policy.kind != Policy::Kind::kPlain;
  params.speculation.run_length = policy.run_length;
  params.speculation.window = policy.window;
  const bool adaptive = policy.kind == Policy::Kind::kAdaptive;
  params.speculation.fixed_run_length = !adaptive;
  params.speculation.fixed_window = !adaptive;
  params.speculation.patience = policy.patience;
  params.draft_nodes = policy.draft_nodes;
  params.local_run_length =
      trace.local != nullptr ? policy.local_run_length : 0;
  params.vocab_size = kTraceVocabulary;
  if (adaptive) {
    params.adapt = context.priors != nullptr
                       ? context.priors->Start(kModel, trace.drafter)
                       : coordinator::SpeculationStart();
  }
  return params;
}

}  // namespace

Request::Request(const Context& context, OnEnd on_end)
    : context_(context),
      on_end_(std::move(on_end)),
      text_(TraceText(*context.trace)),
      machine_(MakeParams(context, text_)) {}

void Request::Start() {
  result_.start = context_.time->now();
  Carry(machine_.Start());
}

void Request::Carry(std::vector<coordinator::Action> actions) {
  for (coordinator::Action& action : actions) {
    actions_.push_back(std::move(action));
  }
  if (std::exchange(carrying_, true)) return;
  while (!actions_.empty()) {
    const coordinator::Action action = std::move(actions_.front());
    actions_.pop_front();
    std::visit([this](const auto& wanted) { Do(wanted); }, action);
  }
  carrying_ = false;
}

void Request::Do(const coordinator::OpenVerifier& open) {
  verifier_.emplace(context_, context_.settings->verifier_link);
  const int64_t stream = verifier_->number;
  verifier::VerifyParams params;
  params.tokens = open.tokens;
  params.prompt_length = context_.trace->prompt_tokens;
  params.max_tokens = MaxTokens(*context_.trace);
  params.stop_token_ids = StopTokens(*context_.trace, text_);
  params.source = open.source;
  params.decode_until = open.decode_until;
  params.patience = open.patience;
  params.max_draft_rows = open.max_draft_rows;
  params.local_run_length = open.local_run_length;
  params.local_enough = open.local_enough;
  const auto send = [this, stream](const Commit& commit,
                                   const coordinator::PassTimes& times) {
    if (!verifier_.has_value() || verifier_->number != stream) return;
    verifier_->in.Send([this, stream, commit, times] {
      if (!verifier_.has_value() || verifier_->number != stream) return;
      Carry(machine_.OnCommit(commit, times));
    });
  };
  verifier_->out.Send([this, stream, params = std::move(params), send] {
    context_.verifier->Open(stream, params, context_.trace->local.get(), send);
  });
}

void Request::Do(const coordinator::SendProposal& send) {
  const int64_t stream = verifier_->number;
  verifier_->out.Send([this, stream, proposal = send.proposal] {
    context_.verifier->Propose(stream, proposal);
  });
}

void Request::Do(const coordinator::SendDecodeTune& tune) {
  verifier::VerifyTune out;
  out.patience = tune.patience;
  out.decode_until = tune.decode_until;
  out.local_enough = tune.local_enough;
  const int64_t stream = verifier_->number;
  verifier_->out.Send(
      [this, stream, out] { context_.verifier->Tune(stream, out); });
}

void Request::Do(const coordinator::OpenDrafter& open) {
  source_ = open.source;
  drafter_.emplace(context_, context_.settings->drafter_link);
  const int64_t stream = drafter_->number;
  absl::StatusOr<DraftPath> path =
      DraftPath::Open(open.tokens,
                      context_.trace->prompt_tokens,
                      open.run_length,
                      open.window,
                      AcceptanceRule::kCoupled,
                      open.min_survival);
  if (!path.ok()) {
    Carry(machine_.OnDrafterClosed(open.source, path.status(), false));
    return;
  }
  const auto send = [this, stream, source = open.source](const Proposal& said) {
    if (!drafter_.has_value() || drafter_->number != stream) return;
    drafter_->in.Send(
        [this, stream, said, source] { OnProposal(stream, said, source); });
  };
  drafter_->out.Send([this, stream, path = *std::move(path), send] {
    context_.drafter->Open(stream, path, context_.trace, send);
  });
}

void Request::OnProposal(int64_t stream, Proposal proposal, int32_t source) {
  if (!drafter_.has_value() || drafter_->number != stream) return;
  proposal.source = source;
  Carry(machine_.OnProposal(proposal));
}

Request::Stream* Request::Drafter(int32_t source) {
  return drafter_.has_value() && source == source_ ? &*drafter_ : nullptr;
}

void Request::Do(const coordinator::SendCommit& commit) {
  Stream* const drafter = Drafter(commit.source);
  if (drafter == nullptr) return;
  drafter->out.Send([this, stream = drafter->number, commit] {
    context_.drafter->Commit(stream, commit.position, commit.tokens);
  });
}

void Request::Do(const coordinator::SendRewind& rewind) {
  Stream* const drafter = Drafter(rewind.source);
  if (drafter == nullptr) return;
  drafter->out.Send([this, stream = drafter->number, rewind] {
    context_.drafter->Rewind(stream, rewind.position);
  });
}

void Request::Do(const coordinator::SendDraftTune& tune) {
  Stream* const drafter = Drafter(tune.source);
  if (drafter == nullptr) return;
  drafter->out.Send([this, stream = drafter->number, tune] {
    context_.drafter->Tune(
        stream, tune.run_length, tune.window, tune.min_survival);
  });
}

void Request::Do(const coordinator::CloseVerifier& /*close*/) {
  if (!verifier_.has_value()) return;
  verifier_->out.Send(
      [this, stream = verifier_->number] { context_.verifier->Close(stream); });
  verifier_.reset();
}

void Request::Do(const coordinator::CloseDrafter& close) {
  Stream* const drafter = Drafter(close.source);
  if (drafter == nullptr) return;
  drafter->out.Send(
      [this, stream = drafter->number] { context_.drafter->Close(stream); });
  drafter_.reset();
}

void Request::Do(const coordinator::ArmDrafterTimer& arm) {
  context_.time->At(
      context_.time->now() + context_.settings->drafter_deadline,
      [this, arm] { Carry(machine_.OnDrafterTimeout(arm.source, arm.owed)); });
}

void Request::Do(const coordinator::EmitTokens& emit) {
  result_.num_tokens =
      emit.first_index + static_cast<int64_t>(emit.tokens.size());
  result_.progress.push_back({context_.time->now(), result_.num_tokens});
  Carry(machine_.OnClientTook(static_cast<int>(result_.num_tokens)));
}

void Request::Do(const coordinator::FinishRequest& finish) {
  result_.end = context_.time->now();
  result_.figures = machine_.figures();
  if (context_.priors != nullptr && machine_.estimates().has_value()) {
    context_.priors->Report(
        kModel, context_.trace->drafter, *machine_.estimates());
  }
  on_end_(CheckEnd(finish), std::move(result_));
}

absl::Status Request::CheckEnd(const coordinator::FinishRequest& finish) const {
  if (!finish.status.ok()) return finish.status;
  if (!std::equal(machine_.log().begin(),
                  machine_.log().end(),
                  text_.begin(),
                  text_.end())) {
    return absl::InternalError(absl::StrCat("ended after ",
                                            machine_.log().size(),
                                            " tokens of ",
                                            text_.size(),
                                            ", or with others"));
  }
  return absl::OkStatus();
}

}  // namespace specwire::simulate
