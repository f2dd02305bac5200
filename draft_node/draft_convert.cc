// SPDX-License-Identifier: Apache-2.0
#include "draft_node/draft_convert.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/trace_convert.h"

namespace specwire::draft {
namespace {

constexpr int kMaxTokens = 1 << 20;
// Stop tokens and EOS.
constexpr int kMaxEndTokenIds = kMaxStopTokenIds + kMaxEosTokenIds;

using TokenList = google::protobuf::RepeatedField<int32_t>;

// A drafter need not know the vocabulary's size.
absl::Status CheckIds(const TokenList& tokens, absl::string_view field) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= kMaxVocabularySize) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": ", token, " is not in [0, ", kMaxVocabularySize, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const TokenList& tokens, absl::string_view field) {
  if (tokens.empty() || tokens.size() > kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(field,
                     ": ",
                     tokens.size(),
                     " of them, at least 1 and at most ",
                     kMaxTokens));
  }
  return CheckIds(tokens, field);
}

absl::StatusOr<SequenceContext> ToContext(const v1::DraftOpen& message) {
  if (message.min_tokens() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: must be >= 0, got ", message.min_tokens()));
  }
  if (message.end_token_ids_size() > kMaxEndTokenIds) {
    return absl::InvalidArgumentError(absl::StrCat("end_token_ids: ",
                                                   message.end_token_ids_size(),
                                                   " of them, at most ",
                                                   kMaxEndTokenIds));
  }
  SPECWIRE_RETURN_IF_ERROR(CheckIds(message.end_token_ids(), "end_token_ids"));
  SequenceContext context;
  context.prompt_length = message.prompt_length();
  context.min_tokens = message.min_tokens();
  context.end_token_ids.assign(message.end_token_ids().begin(),
                               message.end_token_ids().end());
  return context;
}

}  // namespace

absl::StatusOr<OpenDraft> FromProto(const v1::DraftOpen& message) {
  SPECWIRE_RETURN_IF_ERROR(CheckTokens(message.tokens(), "tokens"));
  if (message.vocab_size() < 0 || message.vocab_size() > kMaxVocabularySize) {
    return absl::InvalidArgumentError(absl::StrCat("vocab_size: ",
                                                   message.vocab_size(),
                                                   " is not in [0, ",
                                                   kMaxVocabularySize,
                                                   "]"));
  }
  OpenDraft open;
  SPECWIRE_ASSIGN_OR_RETURN(
      open.params.sampling,
      specwire::FromProto(message.sampling(), /*default_seed=*/0));
  SPECWIRE_RETURN_IF_ERROR(
      ValidateSampling(open.params.sampling, kMaxVocabularySize));
  SPECWIRE_ASSIGN_OR_RETURN(open.params.rule,
                            specwire::FromProto(message.rule()));
  SPECWIRE_RETURN_IF_ERROR(
      CheckSequence(message.choice(), message.tenant_salt()));
  SPECWIRE_ASSIGN_OR_RETURN(open.params.context, ToContext(message));
  open.params.choice = message.choice();
  open.params.vocab_size = message.vocab_size();
  open.params.tenant_salt = message.tenant_salt();
  open.tokens.assign(message.tokens().begin(), message.tokens().end());
  open.prompt_length = message.prompt_length();
  open.run_length = message.run_length();
  open.window = message.window();
  open.min_survival = message.min_survival();
  open.priority = message.priority();
  open.trace = message.trace();
  return open;
}

absl::StatusOr<CommittedTokens> FromProto(const v1::DraftCommit& message) {
  SPECWIRE_RETURN_IF_ERROR(CheckTokens(message.tokens(), "commit.tokens"));
  if (message.position() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("commit.position: ", message.position(), " is negative"));
  }
  CommittedTokens commit;
  commit.position = message.position();
  commit.tokens.assign(message.tokens().begin(), message.tokens().end());
  return commit;
}

Rewind FromProto(const v1::DraftRewind& message) {
  return {.position = message.position()};
}

DraftTune FromProto(const v1::DraftTune& message) {
  DraftTune tune;
  if (message.has_run_length()) tune.run_length = message.run_length();
  if (message.has_window()) tune.window = message.window();
  if (message.has_min_survival()) tune.min_survival = message.min_survival();
  return tune;
}

v1::DraftResponse ToProto(const Proposal& proposal) {
  v1::DraftResponse message;
  message.set_position(proposal.position);
  message.set_based_on(proposal.based_on);
  message.mutable_tokens()->Add(proposal.tokens.begin(), proposal.tokens.end());
  specwire::ToProto(proposal.q, message.mutable_q());
  message.set_confidence(proposal.confidence);
  if (proposal.trace.has_value()) {
    specwire::ToProto(*proposal.trace, message.mutable_trace());
  }
  return message;
}

}  // namespace specwire::draft
