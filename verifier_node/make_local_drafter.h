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

// Makes the drafter, for "none" a null pointer; only "hybrid" loads a model.
// FAILED_PRECONDITION if that was made for another vocabulary than the
// target's. The clock must outlive the drafter. REQUIRES:
// CheckLocalDrafterOptions is OK.
absl::StatusOr<std::unique_ptr<LocalDrafter>> MakeLocalDrafter(
    const LocalDrafterOptions& options,
    const Engine& target,
    const Clock* clock);

}  // namespace specwire::verifier
