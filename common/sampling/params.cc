// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include <cmath>
#include <cstddef>

#include "absl/container/flat_hash_set.h"
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

absl::Status CheckLogitBias(const std::vector<LogitBias>& logit_bias,
                            int vocab_size) {
  if (logit_bias.size() > static_cast<size_t>(kMaxLogitBiases)) {
    return absl::InvalidArgumentError(absl::StrCat("logit_bias: at most ",
                                                   kMaxLogitBiases,
                                                   " entries allowed, got ",
                                                   logit_bias.size()));
  }
  absl::flat_hash_set<int32_t> seen;
  for (const LogitBias& entry : logit_bias) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckToken("logit_bias", entry.token_id, vocab_size));
    if (!(std::fabs(entry.bias) <= kMaxLogitBias)) {
      return OutOfRange("logit_bias", entry.bias, "in [-100, 100]");
    }
    if (!seen.insert(entry.token_id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias: token id ",
                       entry.token_id,
                       " stands there twice; at most one entry for each"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params, int vocab_size) {
  SPECWIRE_RETURN_IF_ERROR(CheckSamplingRanges(params));
  return CheckLogitBias(params.logit_bias, vocab_size);
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
  return absl::OkStatus();
}

}  // namespace specwire
