// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/drafting/messages.h"
#include "tests/integration/protocol_simulation.h"
#include "tests/integration/toy_model.h"

namespace specwire::simulation {

// Everything a schedule draws before it starts.
struct Settings {
  uint64_t toy_seed = 0;
  int prompt_length = 3;
  int max_tokens = 0;
  int run_length = 0;
  int window = 0;
  absl::Duration patience;
  // The ratio rule: in lock-step, with distributions that are all on one token.
  bool ratio = false;
  double quality = 0;
  double silent = 0;
  double partial = 0;
  bool moody = false;
  bool stops = false;
  // The coordinator judges: a text of two tokens ends the request.
  bool stop_text = false;
  bool speculate = true;
  int credit = 0;
  int max_moves = 0;
  int row_budget = 0;
  int client_delay = 0;
  double crash = 0;
  double lose_draft = 0;
  double no_draft_node = 0;
  // Drafter deadlines run; without them the protocol has to live by itself.
  bool timers = false;
  int deadline = 0;
  // Needs timers: messages of the drafter are dropped or mangled.
  double mute = 0;
  double nonsense = 0;
  // The request machine decides when to draft and to wait; what is known of the
  // drafter at the start.
  bool adapt = false;
  // And how long runs are and how far the drafter works ahead.
  bool free_settings = false;
  bool pays = true;
  int first_attempt = 1;
  // The verifier has local drafts of at most so many tokens, 0: none; the
  // chance of each of them to be right.
  int local_run_length = 0;
  double local_quality = 0;
  // Commits are repeated, or garbled in ways that show.
  double mad_verifier = 0;
  // Chances, at each event, that a verifier or a drafter stops for a while: it
  // takes nothing and says nothing, then goes on where it was. A verifier that
  // stops for longer than hang_limit is given up.
  double hang = 0;
  int hang_limit = 0;
  // Chances that a verifier that is opened refuses, being full or draining, and
  // that there is none to open.
  double refuse = 0;
  double no_verifier = 0;
  // The chance, at each event, that the coordinator dies; another goes on
  // behind what the client has.
  double coordinator_crash = 0;
};

Settings DrawSettings(Rng* rng, Broken broken);
std::string Describe(const Settings& settings);

// Turns a proposal into something like it that its drafter did not send; `log`
// is prompt and completion so far.
void MangleProposal(const Settings& settings,
                    absl::Span<const int32_t> log,
                    Rng* rng,
                    Proposal* proposal);

// Turns a commit into one that a coordinator can see to be wrong.
void GarbleCommit(Rng* rng, Commit* commit);

}  // namespace specwire::simulation
