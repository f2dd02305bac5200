// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/verify_params.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire::verifier {
namespace {

// Most draft tokens in one pass that anybody may ask for.
constexpr int kMaxDraftRows = 256;

absl::Status CheckBetween(absl::string_view field, int value, int most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be in [0, ", most, "], got ", value));
}

absl::Status CheckPatience(AcceptanceRule rule,
                           int local_run_length,
                           absl::Duration patience) {
  if (patience < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "patience must not be negative, got ", absl::FormatDuration(patience)));
  }
  if (rule != AcceptanceRule::kRatio || patience == absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  if (local_run_length > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "patience must be 0 under the ratio rule with a local_run_length, "
        "whose steps wait for no proposal, got ",
        absl::FormatDuration(patience)));
  }
  if (patience == absl::InfiniteDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "patience must be 0 or without limit under the ratio rule, which runs "
      "in lock-step, got ",
      absl::FormatDuration(patience)));
}

absl::Status CheckLocalEnough(float local_enough) {
  if (std::isfinite(local_enough) && local_enough >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "local_enough must be finite and at least 0, got ", local_enough));
}

absl::Status CheckRoom(const VerifyParams& params, int max_model_len) {
  const int64_t length = static_cast<int64_t>(params.tokens.size());
  if (length >= max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens must be shorter than max_model_len = ",
                     max_model_len,
                     ", got ",
                     length));
  }
  if (params.prompt_length < 1 || params.prompt_length > length) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length must be in [1, ",
                     length,
                     "], the number of tokens, got ",
                     params.prompt_length));
  }
  if (length - params.prompt_length >= params.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens must exceed the ",
                     length - params.prompt_length,
                     " completion tokens in tokens, got ",
                     params.max_tokens));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckParams(const VerifyParams& params,
                         const VerifyLimits& limits) {
  if (params.tokens.empty()) {
    return absl::InvalidArgumentError("tokens must not be empty");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckRoom(params, limits.max_model_len));
  SPECWIRE_RETURN_IF_ERROR(
      CheckIds("tokens", params.tokens, limits.vocab_size));
  SPECWIRE_RETURN_IF_ERROR(
      CheckIds("stop_token_ids", params.stop_token_ids, limits.vocab_size));
  SPECWIRE_RETURN_IF_ERROR(CheckAtLeast("source", params.source, 0));
  SPECWIRE_RETURN_IF_ERROR(
      CheckBetween("local_run_length", params.local_run_length, kMaxRunLength));
  return CheckTune({.patience = params.patience,
                    .max_draft_rows = params.max_draft_rows,
                    .decode_until = params.decode_until,
                    .local_enough = params.local_enough},
                   params.rule,
                   params.local_run_length,
                   /*decode_until=*/0);
}

absl::Status CheckTune(const VerifyTune& tune,
                       AcceptanceRule rule,
                       int local_run_length,
                       int decode_until) {
  if (tune.patience.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckPatience(rule, local_run_length, *tune.patience));
  }
  if (tune.max_draft_rows.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckBetween("max_draft_rows", *tune.max_draft_rows, kMaxDraftRows));
  }
  if (tune.decode_until.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckAtLeast("decode_until", *tune.decode_until, decode_until));
  }
  if (tune.local_enough.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(CheckLocalEnough(*tune.local_enough));
  }
  return absl::OkStatus();
}

absl::Status CheckIds(absl::string_view field,
                      absl::Span<const int32_t> ids,
                      int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, "[", i, "] must be in [0, ", vocab_size, "), got ", ids[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAtLeast(absl::string_view field, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be at least ", least, ", got ", value));
}

}  // namespace specwire::verifier
