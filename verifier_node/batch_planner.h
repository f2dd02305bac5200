// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/engine.h"
#include "verifier_node/pass_cost.h"
#include "verifier_node/survival.h"

namespace specwire::verifier {

// A sequence that may have part in a pass.
struct PassCandidate {
  // Positions in its KV cache, and tokens that follow them, >= 1.
  int length = 0;
  int uncomputed = 1;
  // Whether it may decide tokens in this pass: then the last of its tokens may
  // be computed, and draft tokens behind it.
  bool steps = false;
  // Draft tokens that it has to offer for a step.
  int draft_rows = 0;
  // All of them belong to the step: which are verified must not depend on load.
  bool lock_step = false;
  // Logits are wanted of all its tokens.
  bool all_logits = false;
  // It must not be left without a row for lack of KV blocks.
  bool must_advance = false;
  // If they are a local draft, the chance for each that it and all before it
  // are accepted; empty: they were proposed, and `survival` tells.
  absl::Span<const float> draft_survival = {};
  // Of proposed tokens.
  // REQUIRES: set if draft_rows > draft_survival.size() and not lock_step.
  const Survival* survival = nullptr;
};

// What a pass may take.
struct PassLimits {
  int max_rows = Engine::kMaxRows;
  // Rows of prompts, at most.
  int prefill_rows = 256;
  // How much longer than without rows of prompts a pass with decoding sequences
  // may become, as predicted: for one prompt, and more for each further one
  // that waits, up to so much. Small chunks are dear, so where many wait,
  // sparing the few that decode would cost all of them more.
  double prefill_slowdown = 2;
  double slowdown_per_prompt = 0.5;
  double most_slowdown = 5;
  int block_size = 16;
  int64_t free_blocks = 0;
  // There is nobody to make room: a run in lock-step is cut to the room there
  // is.
  bool last_resort = false;
};

// One sequence's part.
struct PlannedRun {
  size_t candidate = 0;
  // Of its own tokens.
  int rows = 0;
  // Draft tokens behind them.
  int draft_rows = 0;
  // Whether it decides tokens: its last token is among `rows`.
  bool steps = false;
};

struct PassPlan {
  std::vector<PlannedRun> runs;
  // KV blocks were too few for a row that had to be computed: somebody must
  // make room, and a new plan be made.
  bool starved = false;
};

// Chooses who has part in a pass, and with how many rows. Pure code.
//
//   steps   each candidate that decodes gets a row, in the given order; one in
//           lock-step all its draft tokens as well, or it waits for the next
//           pass;
//   drafts  further draft tokens are added, likeliest to survive first across
//           all sequences, while each adds more expected tokens than the
//           pass's rate of tokens makes of the time it takes; none while a
//           prompt waits, whose first token they would delay;
//   chunks  what is left is for prompts, in the given order: much of them if
//           nobody decodes, else what the slowdown allows, and a few rows
//           always.
//
// No run gets more rows than there are KV blocks for.
//
// Thread safety: a function of its arguments.
PassPlan PlanPass(absl::Span<const PassCandidate> candidates,
                  const PassCost& cost,
                  const PassLimits& limits);

// Whether a proposal of the candidate is worth a wait: its first draft token
// would get a row in a pass of `num_steps` such sequences.
// Whatever it has on offer now: that is about proposals.
// REQUIRES: candidate.survival is set; num_steps >= 1.
bool IsWorthARow(const PassCandidate& candidate,
                 int num_steps,
                 const PassCost& cost);

}  // namespace specwire::verifier
