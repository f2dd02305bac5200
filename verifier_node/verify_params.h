// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/drafting/messages.h"

namespace specwire::verifier {

// How a sequence is opened on a verifier. Mirrors DecodeOpen of
// proto/specwire/v1/verifier.proto.
struct VerifyParams {
  // Prompt and completion so far.
  std::vector<int32_t> tokens;
  int prompt_length = 0;
  // Completion tokens at most, counted from prompt_length.
  int max_tokens = 0;
  // Tokens that end the sequence: stop tokens, and EOS unless it is ignored.
  std::vector<int32_t> stop_token_ids;
  // The draft stream whose proposals are current.
  int32_t source = 0;
  // No token is committed at or beyond this position until a tune raises it.
  int decode_until = 0;
  // How long a step waits for a proposal; InfiniteDuration is lock-step.
  absl::Duration patience = absl::ZeroDuration();
  // Most draft tokens in one pass.
  int max_draft_rows = 32;
  // The ratio rule runs in lock-step: patience is infinite or, where no drafter
  // serves or there are local drafts, 0.
  AcceptanceRule rule = AcceptanceRule::kCoupled;
  // Longest local draft, 0 to kMaxRunLength; 0: there are none.
  int local_run_length = 0;
  // A local draft that is expected to bring so many accepted tokens goes before
  // proposals, without a wait; finite, at least 0.
  float local_enough = 0;
  // Commits tell what became of each draft token.
  bool trace = false;
};

// What the verifier's model allows.
struct VerifyLimits {
  int vocab_size = 0;
  int max_model_len = 0;
};

// New settings; absent fields stay.
struct VerifyTune {
  std::optional<absl::Duration> patience;
  std::optional<int> max_draft_rows;
  std::optional<int> decode_until;
  std::optional<float> local_enough;
};

// All of these: INVALID_ARGUMENT naming the field and its limit.
// Thread safety: functions of their arguments.

absl::Status CheckParams(const VerifyParams& params,
                         const VerifyLimits& limits);
// Those of a tune for a sequence that was opened with `rule` and
// `local_run_length`. `decode_until`: the present one, which may not sink.
absl::Status CheckTune(const VerifyTune& tune,
                       AcceptanceRule rule,
                       int local_run_length,
                       int decode_until);
absl::Status CheckIds(absl::string_view field,
                      absl::Span<const int32_t> ids,
                      int vocab_size);
absl::Status CheckAtLeast(absl::string_view field, int value, int least);

}  // namespace specwire::verifier
