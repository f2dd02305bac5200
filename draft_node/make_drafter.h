// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/drafting/synthetic.h"
#include "common/model/engine.h"

namespace specwire::draft {

struct DrafterOptions {
  // One of kDrafterKinds (common/drafting/drafter_names.h).
  std::string name;
  // Model file, for drafters that have a model.
  std::string model;
  // How the model is loaded; num_layers serves `model` and `hybrid` only.
  EngineOptions engine;
  // Whether `synthetic` is allowed, and how it drafts; its fingerprint is found
  // by MakeDrafter.
  bool allow_synthetic = false;
  SyntheticDrafterOptions synthetic;
};

// INVALID_ARGUMENT naming the flag if the options do not fit one another.
absl::Status CheckDrafterOptions(const DrafterOptions& options);

// Makes the drafter; only those with a model load one.
// REQUIRES: CheckDrafterOptions is OK.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const DrafterOptions& options);

}  // namespace specwire::draft
