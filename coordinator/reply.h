// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/completion_text.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/request_machine.h"
#include "coordinator/request_validation.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// What a client is told of a choice: text as its characters complete, where
// tokens came from, times. Tells the metrics the same. Of a resumed request the
// text goes on where that of the resumed tokens ends; times are those of the
// new tokens.
//
// Thread safety: one thread at a time.
// Lifetime: *request and *metrics outlive it.
class Reply {
 public:
  Reply(const CheckedRequest* request,
        ModelMetrics* metrics,
        absl::Time arrival,
        int choice = 0);

  // Takes the next completion token, which Delta will tell; see TokenJudge.
  bool Judge(int32_t token);
  // The verifier began with the prompt at `start`.
  void OnFirstStep(absl::Time start, int32_t cached_prompt_tokens);
  // The message for tokens that have become final. REQUIRES: emit.tokens is not
  // empty and follows what was emitted before.
  v1::GenerateResponse Delta(const EmitTokens& emit, absl::Time now);
  // The last message. REQUIRES: finish.status is OK.
  v1::GenerateResponse Finished(const FinishRequest& finish,
                                const SpeculationFigures& figures,
                                const std::string& drafter);

  // Tells the metrics that the choice has ended, well or not.
  void CountEnd();

  // Completion tokens told so far, resumed ones included.
  int num_tokens() const { return num_resumed_ + num_told_; }

 private:
  void SetMatched(const FinishRequest& finish,
                  v1::GenerateFinished* finished) const;
  v1::GenerateTimings Timings() const;

  const CheckedRequest* const request_;
  ModelMetrics* const metrics_;
  const absl::Time arrival_;
  const int choice_;
  CompletionText text_;
  // Text that tokens have released and Delta has not told, a token each.
  std::deque<std::string> released_;
  // Tokens that the client had before, and those told here.
  const int num_resumed_;
  int num_told_ = 0;
  int32_t cached_prompt_tokens_ = 0;
  std::optional<absl::Time> first_step_;
  absl::Time first_token_;
  absl::Time last_token_;
};

}  // namespace specwire::coordinator
