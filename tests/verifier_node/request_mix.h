// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/model/engine.h"
#include "common/sampling/logprobs.h"
#include "common/sampling/params.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {

// Random requests with all that may differ between users, run alone or together
// on an engine thread, without gRPC.

enum class DraftQuality { kNone, kGood, kRandom, kAdversarial, kMixed };

struct MixRequest {
  // All but the sink.
  OpenSequence open;
  DraftQuality drafts = DraftQuality::kNone;
  int run_length = 4;
  // How the request behaves, and when it comes, after all began.
  uint32_t seed = 0;
  absl::Duration arrival;
  // The peer goes after that many commits; -1: never.
  int cancel_after = -1;
  // Tokens that the peer takes at a time; 0: no limit.
  int credit = 0;
  // Draft tokens are at least this.
  int32_t first_token = 0;
  // For messages.
  std::string Describe() const;
};

struct MixOutcome {
  absl::Status status;
  bool cancelled = false;
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  int64_t num_accepted = 0;
  // Of these, those that the node had looked up itself.
  int64_t num_accepted_local = 0;
};

struct MixOptions {
  int num_requests = 64;
  int max_prompt = 120;
  int max_tokens = 60;
  // Ids from here on are text; those before are never generated.
  int32_t first_token = 0;
  absl::Duration arrivals = absl::Milliseconds(20);
};

std::vector<MixRequest> RandomRequests(const MixOptions& options,
                                       const ModelInfo& model,
                                       uint32_t seed);

// The request as plain decoding without company answers it: no drafts, no
// cancelling, no limit of credit.
MixOutcome RunAlone(const MixRequest& request, Engine* engine);

// Runs all of them at once. `expected` are the outcomes of RunAlone, which good
// drafters know.
std::vector<MixOutcome> RunTogether(const std::vector<MixRequest>& requests,
                                    const std::vector<MixOutcome>& expected,
                                    EngineThread* thread,
                                    int vocab_size);

// What is wrong with an outcome; empty if nothing is.
std::string Compare(const MixOutcome& outcome, const MixOutcome& expected);

// Runs a mix of `seed` alone and then together, twice, on a node that drafts by
// itself, with `model` if it is set, and has seen the texts the second time.
// Checks that all outcomes
// agree, that nothing is left, and that there was as much trouble as was
// wanted: at least `least_preemptions`.
void CheckMix(const MixOptions& options,
              const EngineThreadOptions& thread_options,
              uint32_t seed,
              int least_preemptions,
              Engine* engine,
              std::unique_ptr<Drafter> model = nullptr);

}  // namespace specwire::verifier
