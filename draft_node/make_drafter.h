// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"

namespace specwire::draft {

struct DrafterOptions {
  // "ngram" or "oracle".
  std::string name;
  // Model file, for drafters that have a model.
  std::string model;
  // Only the first N layers of it; 0: all.
  int num_layers = 0;
  EngineOptions engine;
};

// INVALID_ARGUMENT naming the flag if the options do not fit one another.
absl::Status CheckDrafterOptions(const DrafterOptions& options);

// Makes the drafter; only those with a model load one.
// REQUIRES: CheckDrafterOptions is OK.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const DrafterOptions& options);

}  // namespace specwire::draft
