// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace specwire::simulation {

// A rule of the token protocol that a simulation leaves out, by changing the
// messages between the machines, to show that the rule is needed.
enum class Broken {
  kNone,
  // A verifier's fence moves to the end of a proposal that differs, not to one
  // past its first difference.
  kFence,
  // Drafters with nothing to propose say nothing.
  kEmpty,
  // Drafters are not told that a sequence was reopened.
  kRewind,
  // What was drafted before a sequence was reopened is taken for its own.
  kOpen,
  // A verifier does not learn that the drafter was replaced.
  kSource,
};

struct Options {
  uint64_t seed = 0;
  Broken broken = Broken::kNone;
};

struct Outcome {
  // Empty if all went well; else "hang", or what was wrong.
  std::string failure;
  // The schedule's settings, for a person to read.
  std::string settings;
  int64_t passes = 0;
  int64_t completion_tokens = 0;
  int64_t accepted_tokens = 0;
  int drafters_lost = 0;
  int verifiers_lost = 0;
  // Nodes that stopped for a while, verifiers that refused, and coordinators
  // that died or had no verifier left, behind which another went on.
  int hangs = 0;
  int refusals = 0;
  int coordinators_lost = 0;
  bool stopped_by_text = false;
};

// Runs one request through the three real machines (DraftPath, VerifySequence,
// RequestMachine) over links with random delays, under a schedule drawn from
// the seed: crashes, replacements, hangs, refusals, silence, nonsense, late
// messages, row budgets, credit, coordinators that die and are followed by
// others. It
// checks the text against plain decoding, that the request ends, that every
// figure adds up against its own books, and that no machine oversteps its
// bounds.
Outcome Simulate(const Options& options);

}  // namespace specwire::simulation
