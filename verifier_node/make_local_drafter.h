// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/model/engine.h"
#include "verifier_node/local_drafter.h"

namespace specwire::verifier {

// The name of no local drafter.
inline constexpr char kNoDrafter[] = "none";

struct LocalDrafterOptions {
  // "suffix", "hybrid" or kNoDrafter.
  std::string name;
  // Model file; for "hybrid" only.
  std::string model;
  // How the model is loaded.
  EngineOptions engine;
};

// INVALID_ARGUMENT naming the flag if the options do not fit one another.
absl::Status CheckLocalDrafterOptions(const LocalDrafterOptions& options);

// Loads the model of "hybrid", to be handed to MakeLocalDrafter; for the others
// a null pointer. It takes less time than the target, so it goes first: what is
// wrong with it is known at once. Errors name flag and file. REQUIRES:
// CheckLocalDrafterOptions is OK.
absl::StatusOr<std::unique_ptr<Drafter>> LoadLocalDraftModel(
    const LocalDrafterOptions& options);

// Makes the drafter, for "none" a null pointer. FAILED_PRECONDITION if the
// model was made for another vocabulary than the target's. The clock must
// outlive the drafter. REQUIRES: CheckLocalDrafterOptions is OK.
absl::StatusOr<std::unique_ptr<LocalDrafter>> MakeLocalDrafter(
    const LocalDrafterOptions& options,
    std::unique_ptr<Drafter> model,
    const Engine& target,
    const Clock* clock);

}  // namespace specwire::verifier
