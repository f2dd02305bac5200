// SPDX-License-Identifier: Apache-2.0
#include "coordinator/wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/trace_convert.h"

namespace specwire::coordinator {
namespace {

int64_t PatienceUs(absl::Duration patience) {
  return patience == absl::InfiniteDuration()
             ? -1
             : absl::ToInt64Microseconds(patience);
}

template <class Field>
void Assign(Field* field, const std::vector<int32_t>& values) {
  field->Assign(values.begin(), values.end());
}

double Ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0
                    : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

v1::DecodeRequest MakeDecodeOpen(const CheckedRequest& request,
                                 const OpenVerifier& open,
                                 int choice) {
  v1::DecodeRequest message;
  v1::DecodeOpen* out = message.mutable_open();
  Assign(out->mutable_tokens(), open.tokens);
  out->set_prompt_length(static_cast<int32_t>(request.params.prompt.size()));
  *out->mutable_sampling() = ToProto(request.params.sampling);
  out->set_max_tokens(request.params.max_tokens);
  out->set_min_tokens(request.stop.min_tokens);
  Assign(out->mutable_stop_token_ids(), request.stop.stop_token_ids);
  out->set_ignore_eos(request.stop.ignore_eos);
  out->set_choice(choice);
  out->set_rule(ToProto(request.params.speculation.rule));
  if (request.logprobs.has_value()) out->set_logprobs(*request.logprobs);
  // All choices have the same prompt.
  if (request.prompt_logprobs.has_value() && choice == 0) {
    out->set_prompt_logprobs(*request.prompt_logprobs);
  }
  out->set_priority(request.priority);
  out->set_tenant_salt(request.cache_salt);
  out->set_user(request.user);
  out->set_source(open.source);
  out->set_decode_until(open.decode_until);
  out->set_patience_us(PatienceUs(open.patience));
  out->set_max_draft_rows(open.max_draft_rows);
  out->set_local_run_length(open.local_run_length);
  out->set_local_enough(open.local_enough);
  out->set_trace(request.trace);
  return message;
}

v1::DecodeRequest MakeProposal(const Proposal& proposal) {
  v1::DecodeRequest message;
  v1::Proposal* out = message.mutable_proposal();
  out->set_source(proposal.source);
  out->set_position(proposal.position);
  out->set_based_on(proposal.based_on);
  Assign(out->mutable_tokens(), proposal.tokens);
  ToProto(proposal.q, out->mutable_q());
  return message;
}

v1::DecodeRequest MakeDecodeTune(const SendDecodeTune& tune) {
  v1::DecodeRequest message;
  v1::DecodeTune* out = message.mutable_tune();
  if (tune.patience.has_value()) {
    out->set_patience_us(PatienceUs(*tune.patience));
  }
  if (tune.decode_until.has_value()) out->set_decode_until(*tune.decode_until);
  if (tune.local_enough.has_value()) out->set_local_enough(*tune.local_enough);
  return message;
}

v1::DraftRequest MakeDraftOpen(const CheckedRequest& request,
                               const OpenDrafter& open,
                               int choice) {
  v1::DraftRequest message;
  v1::DraftOpen* out = message.mutable_open();
  Assign(out->mutable_tokens(), open.tokens);
  out->set_prompt_length(static_cast<int32_t>(request.params.prompt.size()));
  *out->mutable_sampling() = ToProto(request.params.sampling);
  out->set_choice(choice);
  out->set_rule(ToProto(request.params.speculation.rule));
  out->set_run_length(open.run_length);
  out->set_window(open.window);
  out->set_min_survival(open.min_survival);
  out->set_vocab_size(request.params.vocab_size);
  out->set_priority(request.priority);
  out->set_tenant_salt(request.cache_salt);
  out->set_trace(request.trace);
  if (request.stop.min_tokens > 0) {
    out->set_min_tokens(request.stop.min_tokens);
    Assign(out->mutable_end_token_ids(), request.stop.stop_token_ids);
    if (!request.stop.ignore_eos) {
      const std::vector<int32_t>& eos = request.model->info.model.eos_ids;
      out->mutable_end_token_ids()->Add(eos.begin(), eos.end());
    }
  }
  return message;
}

v1::DraftRequest MakeDraftCommit(const SendCommit& commit) {
  v1::DraftRequest message;
  message.mutable_commit()->set_position(commit.position);
  Assign(message.mutable_commit()->mutable_tokens(), commit.tokens);
  return message;
}

v1::DraftRequest MakeDraftRewind(const SendRewind& rewind) {
  v1::DraftRequest message;
  message.mutable_rewind()->set_position(rewind.position);
  return message;
}

v1::DraftRequest MakeDraftTune(const SendDraftTune& tune) {
  v1::DraftRequest message;
  v1::DraftTune* out = message.mutable_tune();
  if (tune.run_length.has_value()) out->set_run_length(*tune.run_length);
  if (tune.window.has_value()) out->set_window(*tune.window);
  if (tune.min_survival.has_value()) {
    out->set_min_survival(*tune.min_survival);
  }
  return message;
}

absl::StatusOr<Commit> ParseCommit(const v1::DecodeResponse& response,
                                   int vocab_size,
                                   std::optional<int> logprobs) {
  const int num_tokens = response.tokens_size();
  if (response.position() < 0) {
    return absl::InvalidArgumentError("position: must not be negative");
  }
  if (num_tokens > kMaxProposalTokens + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens: ", num_tokens, "; at most ", kMaxProposalTokens + 1));
  }
  if (response.num_proposed() < 0 ||
      response.num_proposed() > kMaxProposalTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_proposed: must be 0 to ", kMaxProposalTokens));
  }
  if (response.num_accepted() < 0 ||
      response.num_accepted() > response.num_proposed() ||
      response.num_accepted() > num_tokens) {
    return absl::InvalidArgumentError(
        "num_accepted: must be 0 to num_proposed and the number of tokens");
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckTokenIds(response.tokens(), vocab_size, "tokens"));
  Commit commit;
  commit.position = response.position();
  commit.tokens.assign(response.tokens().begin(), response.tokens().end());
  if (response.logprobs_size() != (logprobs.has_value() ? num_tokens : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("logprobs: ",
                                                   response.logprobs_size(),
                                                   " entries for ",
                                                   num_tokens,
                                                   " tokens"));
  }
  for (int i = 0; i < response.logprobs_size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(
        PositionLogprobs entry,
        FromProto(
            response.logprobs(i), response.tokens(i), *logprobs, vocab_size));
    commit.logprobs.push_back(std::move(entry));
  }
  commit.num_proposed = response.num_proposed();
  commit.num_accepted = response.num_accepted();
  commit.local = response.local();
  commit.local_next = response.local_next();
  const v1::DecodeCounters& counters = response.counters();
  if (counters.overlapped() < 0 || counters.stale() < 0 ||
      counters.trimmed() < 0) {
    return absl::InvalidArgumentError("counters: must not be negative");
  }
  commit.counters = {
      counters.overlapped(), counters.stale(), counters.trimmed()};
  if (response.has_trace()) {
    SPECWIRE_ASSIGN_OR_RETURN(
        commit.trace, FromProto(response.trace(), num_tokens, vocab_size));
  }
  if (response.has_finish()) {
    SPECWIRE_ASSIGN_OR_RETURN(commit.finish,
                              FromProto(response.finish().reason()));
    if (commit.finish != FinishReason::kStop &&
        commit.finish != FinishReason::kLength) {
      return absl::InvalidArgumentError(
          "finish.reason: must be STOP or LENGTH");
    }
    if (response.finish().has_stop_token_id()) {
      commit.stop_token_id = response.finish().stop_token_id();
    }
  } else if (num_tokens == 0) {
    return absl::InvalidArgumentError("tokens: must not be empty");
  }
  return commit;
}

absl::Status CheckPromptLogprobs(const v1::PromptLogprobs& logprobs,
                                 const CheckedRequest& request) {
  const std::vector<int32_t>& prompt = request.params.prompt;
  const int size = logprobs.logprobs_size();
  if (!request.prompt_logprobs.has_value() || size == 0 ||
      logprobs.position() < 1 ||
      static_cast<int64_t>(prompt.size()) - logprobs.position() < size) {
    return absl::InvalidArgumentError(absl::StrCat("prompt_logprobs: ",
                                                   size,
                                                   " entries from position ",
                                                   logprobs.position(),
                                                   " on, the prompt has ",
                                                   prompt.size(),
                                                   " tokens"));
  }
  for (int i = 0; i < size; ++i) {
    SPECWIRE_RETURN_IF_ERROR(
        FromProto(logprobs.logprobs(i),
                  prompt[static_cast<size_t>(logprobs.position() + i)],
                  *request.prompt_logprobs,
                  request.params.vocab_size)
            .status());
  }
  return absl::OkStatus();
}

Proposal ParseProposal(const v1::DraftResponse& response, int32_t source) {
  Proposal proposal;
  proposal.source = source;
  proposal.position = response.position();
  proposal.based_on = response.based_on();
  proposal.tokens.assign(response.tokens().begin(), response.tokens().end());
  for (const v1::SparseDistribution& q : response.q()) {
    proposal.q.push_back(
        {{q.token_ids().begin(), q.token_ids().end()},
         {q.probabilities().begin(), q.probabilities().end()}});
  }
  proposal.confidence = response.confidence();
  if (response.has_trace()) {
    proposal.trace = FromProto(response.trace(), response.tokens_size());
  }
  return proposal;
}

v1::GenerateResponse MakeStarted(const CheckedRequest& request) {
  v1::GenerateResponse message;
  v1::GenerateStarted* out = message.mutable_started();
  out->set_request_id(request.request_id);
  out->set_model(request.model->info.model.name);
  out->set_model_digest(request.model->info.model.model_digest);
  *out->mutable_sampling() = ToProto(request.params.sampling);
  *out->mutable_stop() = ToProto(request.stop);
  const SpeculationSettings& settings = request.params.speculation;
  v1::Speculation* speculation = out->mutable_speculation();
  speculation->set_enabled(settings.enabled);
  speculation->set_max_draft_tokens(settings.run_length);
  speculation->set_drafter(settings.enabled ? request.drafter : "none");
  speculation->set_rule(ToProto(settings.rule));
  speculation->set_patience_us(PatienceUs(settings.patience));
  speculation->set_window(settings.window);
  Assign(out->mutable_prompt_token_ids(), request.params.prompt);
  out->set_alive_interval_ms(
      static_cast<int32_t>(absl::ToInt64Milliseconds(request.alive_interval)));
  return message;
}

std::optional<v1::GenerateResponse> MakePrompt(const CheckedRequest& request) {
  if (!request.echo.has_value() && !request.prompt_logprobs.has_value()) {
    return std::nullopt;
  }
  v1::GenerateResponse message;
  v1::GeneratePrompt* out = message.mutable_prompt();
  if (request.echo.has_value()) out->set_text(*request.echo);
  if (request.prompt_logprobs.has_value()) {
    out->mutable_logprobs()->add_logprobs();
  }
  return message;
}

v1::PassTrace MakePassTrace(const TracedPass& pass,
                            const Tokenizer& tokenizer) {
  v1::PassTrace message;
  message.set_position(pass.position);
  for (const TracedRun& run : pass.drafts) {
    v1::DraftTrace* const out = message.add_drafts();
    out->set_drafter(run.drafter);
    out->set_node(run.node);
    for (const TracedDraft& draft : run.tokens) {
      v1::DraftTokenTrace* const token = out->add_tokens();
      token->set_position(draft.position);
      token->set_token_id(draft.token_id);
      token->set_token_bytes(std::string(tokenizer.TokenBytes(draft.token_id)));
      token->set_outcome(ToProto(draft.outcome));
      if (draft.draft_probability.has_value()) {
        token->set_draft_probability(*draft.draft_probability);
      }
      if (draft.target.has_value()) {
        *token->mutable_target() = ToProto(*draft.target);
      }
    }
  }
  for (const TracedChoice& choice : pass.choices) {
    v1::ChoiceTrace* const out = message.add_choices();
    out->set_token_id(choice.token_id);
    out->set_token_bytes(std::string(tokenizer.TokenBytes(choice.token_id)));
    out->set_origin(choice.accepted ? v1::TOKEN_ORIGIN_DRAFT
                                    : v1::TOKEN_ORIGIN_TARGET);
    if (choice.target.has_value()) {
      *out->mutable_target() = ToProto(*choice.target);
    }
  }
  if (pass.times.has_value()) {
    const TracedTimes& times = *pass.times;
    v1::PassTimings* const out = message.mutable_timings();
    out->set_start_us(absl::ToInt64Microseconds(times.start));
    out->set_wait_us(absl::ToInt64Microseconds(times.wait));
    out->set_draft_us(absl::ToInt64Microseconds(times.drafting));
    out->set_network_us(absl::ToInt64Microseconds(times.network));
    out->set_verify_us(absl::ToInt64Microseconds(times.verify));
    if (times.proposal.has_value()) {
      out->set_proposal_us(absl::ToInt64Microseconds(*times.proposal));
    }
    out->set_end_us(absl::ToInt64Microseconds(times.end));
  }
  message.set_verifier(pass.verifier);
  message.set_num_left_out(pass.num_left_out);
  return message;
}

v1::SpeculationStats MakeStats(const SpeculationFigures& figures,
                               const SpeculationSettings& settings,
                               const std::string& drafter) {
  v1::SpeculationStats stats;
  if (figures.num_spec_steps > 0) {
    stats.set_mean_acceptance_length(
        1 + Ratio(figures.num_accepted_draft_tokens, figures.num_spec_steps));
  }
  stats.set_draft_acceptance_rate(
      Ratio(figures.num_accepted_draft_tokens, figures.num_draft_tokens));
  stats.set_num_spec_steps(figures.num_spec_steps);
  stats.set_num_draft_tokens(figures.num_draft_tokens);
  stats.set_num_accepted_draft_tokens(figures.num_accepted_draft_tokens);
  stats.mutable_acceptance_histogram()->Assign(
      figures.acceptance_histogram.begin(), figures.acceptance_histogram.end());
  stats.set_rule(ToProto(settings.rule));
  // A step may verify more than one proposal, and the verifier's own.
  const int longest_step =
      static_cast<int>(figures.draft_tokens_per_position.size());
  stats.set_num_spec_tokens(
      settings.enabled
          ? std::max(
                {settings.run_length, figures.longest_run_length, longest_step})
          : 0);
  stats.set_num_passes(figures.num_passes);
  stats.set_num_drafted_tokens(figures.num_drafted_tokens);
  stats.set_num_overlapped_tokens(figures.num_overlapped_tokens);
  stats.set_num_stale_tokens(figures.num_stale_tokens);
  stats.set_num_trimmed_tokens(figures.num_trimmed_tokens);
  stats.set_num_unused_tokens(figures.num_unused_tokens);
  stats.set_drafter(drafter);
  stats.set_num_local_draft_tokens(figures.num_local_draft_tokens);
  stats.set_num_accepted_local_draft_tokens(
      figures.num_accepted_local_draft_tokens);
  stats.set_num_ahead_hits(figures.num_ahead_hits);
  stats.set_num_ahead_misses(figures.num_ahead_misses);
  stats.set_predicted_speedup(figures.predicted_speedup);
  return stats;
}

}  // namespace specwire::coordinator
