// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/decode_convert.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/trace_convert.h"

namespace specwire::verifier {
namespace {

constexpr size_t kMaxUserBytes = 64;

absl::Status CheckUser(absl::string_view user) {
  if (user.size() <= kMaxUserBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("user: ", user.size(), " bytes, at most ", kMaxUserBytes));
}

constexpr int64_t kLockStep = -1;

absl::StatusOr<absl::Duration> Patience(int64_t patience_us) {
  if (patience_us == kLockStep) return absl::InfiniteDuration();
  if (patience_us < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "patience_us: ", patience_us, " is neither >= 0 nor -1 (no limit)"));
  }
  return absl::Microseconds(patience_us);
}

absl::Status CheckRows(int32_t rows) {
  if (rows >= 0 && rows <= kMaxProposalTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "max_draft_rows: ", rows, " is not between 0 and ", kMaxProposalTokens));
}

absl::Status CheckCandidates(absl::string_view field, int32_t value) {
  if (value >= 0 && value <= kMaxLogprobs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not between 0 and ", kMaxLogprobs));
}

template <class Field>
void AddEntries(const std::vector<PositionLogprobs>& entries, Field* field) {
  field->Reserve(static_cast<int>(entries.size()));
  for (const PositionLogprobs& entry : entries) {
    *field->Add() = specwire::ToProto(entry);
  }
}

// What belongs to the request as a whole and not to the token protocol.
absl::Status CheckRequest(const v1::DecodeOpen& message) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckSequence(message.choice(), message.tenant_salt()));
  SPECWIRE_RETURN_IF_ERROR(CheckUser(message.user()));
  if (message.has_logprobs()) {
    SPECWIRE_RETURN_IF_ERROR(CheckCandidates("logprobs", message.logprobs()));
  }
  if (message.has_prompt_logprobs()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckCandidates("prompt_logprobs", message.prompt_logprobs()));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const v1::DecodeOpen& message,
                          const ModelInfo& model) {
  // Lists that are far too long are refused before anything is copied; the
  // rest is VerifySequence's to judge.
  if (message.tokens_size() < 1 ||
      message.tokens_size() >= model.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: ",
                     message.tokens_size(),
                     " of them; at least 1 and fewer than max_model_len ",
                     model.max_model_len));
  }
  if (message.stop_token_ids_size() > kMaxStopTokenIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop_token_ids: ",
                     message.stop_token_ids_size(),
                     " of them, at most ",
                     kMaxStopTokenIds));
  }
  const int64_t length =
      int64_t{message.prompt_length()} + int64_t{message.max_tokens()};
  if (message.max_tokens() < 1 || length > model.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens: ",
                     message.max_tokens(),
                     " is not between 1 and the room behind prompt_length ",
                     message.prompt_length(),
                     " in max_model_len ",
                     model.max_model_len));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenSequence> FromProto(const v1::DecodeOpen& message,
                                       const ModelInfo& model) {
  SPECWIRE_RETURN_IF_ERROR(CheckLengths(message, model));
  SPECWIRE_RETURN_IF_ERROR(CheckRequest(message));
  StopCriteria stop;
  stop.max_tokens = message.max_tokens();
  stop.min_tokens = message.min_tokens();
  stop.stop_token_ids.assign(message.stop_token_ids().begin(),
                             message.stop_token_ids().end());
  stop.ignore_eos = message.ignore_eos();
  SPECWIRE_RETURN_IF_ERROR(ValidateStop(stop, model.vocab_size));

  OpenSequence open;
  SPECWIRE_ASSIGN_OR_RETURN(
      open.sampling,
      specwire::FromProto(message.sampling(), /*default_seed=*/0));
  SPECWIRE_RETURN_IF_ERROR(ValidateSampling(open.sampling, model.vocab_size));
  if (!message.sampling().has_seed() &&
      open.sampling.temperature >= kGreedyTemperature) {
    return absl::InvalidArgumentError(
        "sampling.seed: must be set, so that every node draws the same noise");
  }
  open.choice = message.choice();
  if (message.has_logprobs()) open.logprobs = message.logprobs();
  if (message.has_prompt_logprobs()) {
    open.prompt_logprobs = message.prompt_logprobs();
  }
  open.priority = message.priority();
  open.cache_salt = message.tenant_salt();
  open.user = message.user();
  VerifyParams& params = open.params;
  params.tokens.assign(message.tokens().begin(), message.tokens().end());
  params.prompt_length = message.prompt_length();
  params.max_tokens = message.max_tokens();
  params.stop_token_ids = std::move(stop.stop_token_ids);
  if (!message.ignore_eos()) {
    params.stop_token_ids.insert(params.stop_token_ids.end(),
                                 model.eos_ids.begin(),
                                 model.eos_ids.end());
  }
  open.context = {.prompt_length = params.prompt_length,
                  .min_tokens = stop.min_tokens,
                  .end_token_ids = params.stop_token_ids};
  SPECWIRE_ASSIGN_OR_RETURN(params.rule, specwire::FromProto(message.rule()));
  params.source = message.source();
  params.decode_until = message.decode_until();
  SPECWIRE_ASSIGN_OR_RETURN(params.patience, Patience(message.patience_us()));
  if (message.has_max_draft_rows()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRows(message.max_draft_rows()));
    params.max_draft_rows = message.max_draft_rows();
  }
  params.local_run_length = message.local_run_length();
  if (message.has_local_enough()) params.local_enough = message.local_enough();
  params.trace = message.trace();
  if (message.max_silence_ms() > 0) {
    open.max_silence = absl::Milliseconds(message.max_silence_ms());
  }
  return open;
}

absl::StatusOr<Proposal> FromProto(const v1::Proposal& message) {
  if (message.tokens_size() > kMaxProposalTokens) {
    return absl::InvalidArgumentError(absl::StrCat("proposal.tokens: ",
                                                   message.tokens_size(),
                                                   " of them, at most ",
                                                   kMaxProposalTokens));
  }
  if (message.q_size() > message.tokens_size()) {
    return absl::InvalidArgumentError(absl::StrCat("proposal.q: ",
                                                   message.q_size(),
                                                   " of them, more than the ",
                                                   message.tokens_size(),
                                                   " tokens"));
  }
  Proposal proposal;
  SPECWIRE_ASSIGN_OR_RETURN(proposal.q, specwire::FromProto(message.q()));
  proposal.source = message.source();
  proposal.position = message.position();
  proposal.based_on = message.based_on();
  proposal.tokens.assign(message.tokens().begin(), message.tokens().end());
  return proposal;
}

absl::StatusOr<VerifyTune> FromProto(const v1::DecodeTune& message) {
  VerifyTune tune;
  if (message.has_patience_us()) {
    SPECWIRE_ASSIGN_OR_RETURN(tune.patience, Patience(message.patience_us()));
  }
  if (message.has_max_draft_rows()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRows(message.max_draft_rows()));
    tune.max_draft_rows = message.max_draft_rows();
  }
  if (message.has_decode_until()) tune.decode_until = message.decode_until();
  if (message.has_local_enough()) tune.local_enough = message.local_enough();
  return tune;
}

absl::StatusOr<OpenScore> FromProto(const v1::ScoreTokensRequest& message,
                                    const ModelInfo& model) {
  if (message.tokens_size() < 1 ||
      message.tokens_size() > model.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: ",
                     message.tokens_size(),
                     " of them; at least 1 and at most max_model_len ",
                     model.max_model_len));
  }
  for (int i = 0; i < message.tokens_size(); ++i) {
    if (message.tokens(i) < 0 || message.tokens(i) >= model.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[",
                                                     i,
                                                     "]: ",
                                                     message.tokens(i),
                                                     " is not in [0, ",
                                                     model.vocab_size,
                                                     ")"));
    }
  }
  SPECWIRE_RETURN_IF_ERROR(CheckCandidates("top", message.top()));
  SPECWIRE_RETURN_IF_ERROR(CheckUser(message.user()));
  if (message.num_context() < 0 ||
      message.num_context() >= message.tokens_size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_context: ",
                                                   message.num_context(),
                                                   " is not in [0, ",
                                                   message.tokens_size(),
                                                   "), the number of tokens"));
  }
  OpenScore open;
  open.tokens.assign(message.tokens().begin(), message.tokens().end());
  open.num_context = message.num_context();
  open.top = message.top();
  open.user = message.user();
  return open;
}

v1::DecodeResponse PromptToProto(const LogprobRun& run) {
  v1::DecodeResponse message;
  v1::PromptLogprobs* const prompt = message.mutable_prompt_logprobs();
  prompt->set_position(run.position);
  AddEntries(run.entries, prompt->mutable_logprobs());
  return message;
}

v1::ScoreTokensResponse ScoreToProto(const LogprobRun& run) {
  v1::ScoreTokensResponse message;
  message.set_position(run.position);
  AddEntries(run.entries, message.mutable_logprobs());
  return message;
}

v1::DecodeResponse ToProto(const Commit& commit, const StepReport& report) {
  v1::DecodeResponse message;
  message.set_position(commit.position);
  message.mutable_tokens()->Add(commit.tokens.begin(), commit.tokens.end());
  message.set_num_proposed(commit.num_proposed);
  message.set_num_accepted(commit.num_accepted);
  message.set_local(commit.local);
  message.set_local_next(commit.local_next);
  AddEntries(commit.logprobs, message.mutable_logprobs());
  if (commit.counters != DecodeCounters()) {
    v1::DecodeCounters* const counters = message.mutable_counters();
    counters->set_overlapped(commit.counters.overlapped);
    counters->set_stale(commit.counters.stale);
    counters->set_trimmed(commit.counters.trimmed);
  }
  if (commit.finish != FinishReason::kNone) {
    v1::DecodeFinish* const finish = message.mutable_finish();
    finish->set_reason(specwire::ToProto(commit.finish));
    if (commit.stop_token_id.has_value()) {
      finish->set_stop_token_id(*commit.stop_token_id);
    }
  }
  if (commit.trace.has_value()) {
    specwire::ToProto(*commit.trace, message.mutable_trace());
  }
  message.set_cached_prompt_tokens(report.cached_prompt_tokens);
  v1::StepTimings* const timings = message.mutable_timings();
  timings->set_wait_us(absl::ToInt64Microseconds(report.wait));
  timings->set_verify_us(absl::ToInt64Microseconds(report.verify));
  return message;
}

}  // namespace specwire::verifier
