// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The matrix of faults: what is struck, by what, and when.

namespace specwire::faults {

enum class Target {
  // Processes.
  kClient,
  kCoordinator,
  kDrafter,
  kVerifier,
  // Links.
  kClientLink,
  kVerifierLink,
  kDrafterLink,
  kJoinLink,
};

enum class Fault {
  // Of processes.
  kKill,
  kTerminate,
  kStopShort,
  kStopLong,
  kMemory,
  kDescriptors,
  // Of links.
  kDelay,
  kJitter,
  kRate,
  kStallForward,
  kStallBackward,
  kHalfClose,
  kReset,
  kBlackhole,
  kFlips,
  // Without TLS, which alone notices them.
  kPlainFlips,
};

enum class Phase {
  kConnect,
  kJoin,
  kPrefill,
  kWaitForDraft,
  kVerify,
  kDelivery,
  kLastToken,
  kDrain,
  kRecovery,
};

bool IsLink(Target target);
absl::string_view Name(Target target);
absl::string_view Name(Fault fault);
absl::string_view Name(Phase phase);

struct Cell {
  Target target = Target::kClient;
  Fault fault = Fault::kKill;
  Phase phase = Phase::kConnect;

  bool operator==(const Cell&) const = default;
};

// Tokens cross the link, and nothing tells whether those arrive that were sent:
// a client may get others, or an error.
bool MayChangeTokens(const Cell& cell);

// "verifier/kill/prefill".
std::string ToString(const Cell& cell);
// INVALID_ARGUMENT, listing what there is.
absl::StatusOr<Cell> ParseCell(absl::string_view text);

// Why the cell says nothing, as a sentence; nothing for one that is run.
std::optional<std::string> WhyNot(const Cell& cell);

// Cells that say nothing: "client/*/join", and why.
struct LeftOut {
  std::string pattern;
  std::string why;
};
std::vector<LeftOut> AllLeftOut();

// Every combination of a target and a fault of its kind with every phase, those
// included that are not run.
std::vector<Cell> EveryCell();
// Those that are run.
std::vector<Cell> AllCells();
// Of these so many that every pair of target and fault, of target and phase,
// and of fault and phase that occurs in AllCells() occurs in them.
std::vector<Cell> PairwiseCells(uint64_t seed);

}  // namespace specwire::faults
