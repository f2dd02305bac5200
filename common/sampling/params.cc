// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr float kMaxLogitBias = 100.0f;
constexpr size_t kMaxStopTextBytes = 256;

absl::Status OutOfRange(absl::string_view field,
                        float value,
                        absl::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": must be ", range, ", got ", value));
}

absl::Status NotSupported(absl::string_view field,
                          absl::string_view value,
                          absl::string_view instead) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not supported yet; ", instead));
}

// Comparisons are written so that NaN fails them.
absl::Status CheckSamplingRanges(const SamplingParams& params) {
  if (!(params.temperature >= 0) || !std::isfinite(params.temperature)) {
    return OutOfRange("temperature", params.temperature, "finite and >= 0");
  }
  if (params.top_k < -1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "top_k: must be >= 1, or 0 or -1 for off, got ", params.top_k));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return OutOfRange("top_p", params.top_p, "in (0, 1]");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return OutOfRange("min_p", params.min_p, "in [0, 1]");
  }
  if (!(params.repetition_penalty > 0) ||
      !std::isfinite(params.repetition_penalty)) {
    return OutOfRange(
        "repetition_penalty", params.repetition_penalty, "finite and > 0");
  }
  if (!(std::fabs(params.frequency_penalty) <= 2)) {
    return OutOfRange(
        "frequency_penalty", params.frequency_penalty, "in [-2, 2]");
  }
  if (!(std::fabs(params.presence_penalty) <= 2)) {
    return OutOfRange(
        "presence_penalty", params.presence_penalty, "in [-2, 2]");
  }
  return absl::OkStatus();
}

absl::Status CheckToken(absl::string_view field, int32_t token, int vocab) {
  if (token >= 0 && token < vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": token id ", token, " is not in [0, ", vocab, ")"));
}

absl::Status CheckSamplingSupported(const SamplingParams& params) {
  if (params.repetition_penalty != 1) {
    return NotSupported("repetition_penalty",
                        absl::StrCat(params.repetition_penalty),
                        "pass 1 for off");
  }
  if (params.frequency_penalty != 0) {
    return NotSupported("frequency_penalty",
                        absl::StrCat(params.frequency_penalty),
                        "pass 0 for off");
  }
  if (params.presence_penalty != 0) {
    return NotSupported("presence_penalty",
                        absl::StrCat(params.presence_penalty),
                        "pass 0 for off");
  }
  if (!params.logit_bias.empty()) {
    return NotSupported("logit_bias", "a bias", "leave it out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params, int vocab_size) {
  SPECWIRE_RETURN_IF_ERROR(CheckSamplingRanges(params));
  for (const LogitBias& entry : params.logit_bias) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckToken("logit_bias", entry.token_id, vocab_size));
    if (!(std::fabs(entry.bias) <= kMaxLogitBias)) {
      return OutOfRange("logit_bias", entry.bias, "in [-100, 100]");
    }
  }
  return CheckSamplingSupported(params);
}

absl::Status ValidateStop(const StopCriteria& stop, int vocab_size) {
  if (stop.max_tokens.has_value() && *stop.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens: must be >= 1, got ", *stop.max_tokens));
  }
  if (stop.min_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: must be >= 0, got ", stop.min_tokens));
  }
  if (stop.max_tokens.has_value() && stop.min_tokens > *stop.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: must be <= max_tokens (",
                     *stop.max_tokens,
                     "), got ",
                     stop.min_tokens));
  }
  for (const int32_t token : stop.stop_token_ids) {
    SPECWIRE_RETURN_IF_ERROR(CheckToken("stop_token_ids", token, vocab_size));
  }
  for (const std::string& text : stop.stop) {
    if (text.empty() || text.size() > kMaxStopTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop: each text must have 1 to ",
                       kMaxStopTextBytes,
                       " bytes, got one of ",
                       text.size()));
    }
  }
  if (stop.min_tokens > 0) {
    return NotSupported(
        "min_tokens", absl::StrCat(stop.min_tokens), "pass 0 for no minimum");
  }
  if (!stop.stop.empty()) {
    return NotSupported("stop", "a stop text", "use stop_token_ids");
  }
  if (stop.include_stop_str_in_output) {
    return NotSupported("include_stop_str_in_output", "true", "pass false");
  }
  return absl::OkStatus();
}

}  // namespace specwire
