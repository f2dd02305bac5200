// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/trace_convert.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

absl::Duration NotNegative(int64_t microseconds) {
  return absl::Microseconds(std::max<int64_t>(microseconds, 0));
}

bool IsProbability(double value) { return value >= 0 && value <= 1; }

absl::StatusOr<DraftOutcome> FromProto(v1::DraftOutcome outcome) {
  switch (outcome) {
    case v1::DRAFT_OUTCOME_ACCEPTED:
      return DraftOutcome::kAccepted;
    case v1::DRAFT_OUTCOME_REJECTED:
      return DraftOutcome::kRejected;
    case v1::DRAFT_OUTCOME_DISCARDED:
      return DraftOutcome::kDiscarded;
    case v1::DRAFT_OUTCOME_OVERLAPPED:
      return DraftOutcome::kOverlapped;
    case v1::DRAFT_OUTCOME_STALE:
      return DraftOutcome::kStale;
    case v1::DRAFT_OUTCOME_TRIMMED:
      return DraftOutcome::kTrimmed;
    default:
      // Whatever is not used yet is for its receiver to know.
      return absl::InvalidArgumentError(
          absl::StrCat("trace.drafts: no outcome of a verifier: ",
                       static_cast<int>(outcome)));
  }
}

absl::StatusOr<TargetProbability> FromProto(
    const v1::TargetProbability& message) {
  // A number that is none fails too.
  if (!IsProbability(message.probability()) || !(message.logprob() <= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("trace: no probability: ",
                                                   message.probability(),
                                                   ", logarithm ",
                                                   message.logprob()));
  }
  return TargetProbability{.probability = message.probability(),
                           .logprob = message.logprob()};
}

absl::StatusOr<DraftFate> FromProto(const v1::DraftFate& message,
                                    int vocab_size) {
  DraftFate fate;
  if (message.has_number()) {
    if (message.number() < 0) {
      return absl::InvalidArgumentError("trace.drafts.number: is negative");
    }
    fate.number = message.number();
  } else if (message.token_id() < 0 || message.token_id() >= vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("trace.drafts.token_id: ",
                                                   message.token_id(),
                                                   " is not in [0, ",
                                                   vocab_size,
                                                   ")"));
  }
  fate.token_id = message.token_id();
  SPECWIRE_ASSIGN_OR_RETURN(fate.outcome, FromProto(message.outcome()));
  if (message.has_draft_probability()) {
    if (!IsProbability(message.draft_probability())) {
      return absl::InvalidArgumentError(
          "trace.drafts.draft_probability: must be in [0, 1]");
    }
    fate.draft_probability = message.draft_probability();
  }
  if (message.has_target()) {
    SPECWIRE_ASSIGN_OR_RETURN(fate.target, FromProto(message.target()));
  }
  return fate;
}

}  // namespace

v1::DraftOutcome ToProto(DraftOutcome outcome) {
  switch (outcome) {
    case DraftOutcome::kAccepted:
      return v1::DRAFT_OUTCOME_ACCEPTED;
    case DraftOutcome::kRejected:
      return v1::DRAFT_OUTCOME_REJECTED;
    case DraftOutcome::kDiscarded:
      return v1::DRAFT_OUTCOME_DISCARDED;
    case DraftOutcome::kOverlapped:
      return v1::DRAFT_OUTCOME_OVERLAPPED;
    case DraftOutcome::kStale:
      return v1::DRAFT_OUTCOME_STALE;
    case DraftOutcome::kTrimmed:
      return v1::DRAFT_OUTCOME_TRIMMED;
    case DraftOutcome::kUnused:
      return v1::DRAFT_OUTCOME_UNUSED;
  }
  return v1::DRAFT_OUTCOME_UNSPECIFIED;
}

v1::TargetProbability ToProto(const TargetProbability& probability) {
  v1::TargetProbability message;
  // Sums of a softmax may round beyond 1.
  message.set_probability(std::clamp(probability.probability, 0.0, 1.0));
  message.set_logprob(std::isnan(probability.logprob)
                          ? -std::numeric_limits<double>::infinity()
                          : std::min(probability.logprob, 0.0));
  return message;
}

void ToProto(const CommitTrace& trace, v1::DecodeTrace* out) {
  for (const DraftFate& fate : trace.drafts) {
    v1::DraftFate* const message = out->add_drafts();
    if (fate.number.has_value()) {
      message->set_number(*fate.number);
    } else {
      message->set_token_id(fate.token_id);
    }
    message->set_outcome(ToProto(fate.outcome));
    if (fate.draft_probability.has_value()) {
      message->set_draft_probability(*fate.draft_probability);
    }
    if (fate.target.has_value()) {
      *message->mutable_target() = ToProto(*fate.target);
    }
  }
  for (const TargetProbability& choice : trace.choices) {
    *out->add_choices() = ToProto(choice);
  }
  out->set_num_received(trace.num_received);
  out->set_held_us(absl::ToInt64Microseconds(trace.held));
}

void ToProto(const ProposalTrace& trace, v1::DraftResponseTrace* out) {
  out->mutable_chances()->Add(trace.chances.begin(), trace.chances.end());
  out->set_draft_us(absl::ToInt64Microseconds(trace.drafting));
  out->set_held_us(absl::ToInt64Microseconds(trace.held));
}

absl::StatusOr<CommitTrace> FromProto(const v1::DecodeTrace& message,
                                      int num_tokens,
                                      int vocab_size) {
  if (static_cast<size_t>(message.drafts_size()) > kMaxDraftFates ||
      message.choices_size() > num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("trace: ",
                                                   message.drafts_size(),
                                                   " drafts and ",
                                                   message.choices_size(),
                                                   " choices; at most ",
                                                   kMaxDraftFates,
                                                   " and one for each token"));
  }
  CommitTrace trace;
  for (const v1::DraftFate& fate : message.drafts()) {
    SPECWIRE_ASSIGN_OR_RETURN(trace.drafts.emplace_back(),
                              FromProto(fate, vocab_size));
  }
  for (const v1::TargetProbability& choice : message.choices()) {
    SPECWIRE_ASSIGN_OR_RETURN(trace.choices.emplace_back(), FromProto(choice));
  }
  trace.num_received = std::max<int64_t>(message.num_received(), 0);
  trace.held = NotNegative(message.held_us());
  return trace;
}

ProposalTrace FromProto(const v1::DraftResponseTrace& message, int num_tokens) {
  ProposalTrace trace;
  trace.drafting = NotNegative(message.draft_us());
  trace.held = NotNegative(message.held_us());
  if (message.chances_size() != num_tokens) return trace;
  trace.chances.assign(message.chances().begin(), message.chances().end());
  const bool sound =
      std::all_of(trace.chances.begin(), trace.chances.end(), [](float chance) {
        return IsProbability(static_cast<double>(chance));
      });
  if (!sound) trace.chances.clear();
  return trace;
}

}  // namespace specwire
