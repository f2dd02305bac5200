// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {

// Requests at once, so that passes of several sequences mix.
inline constexpr int kMatrixConcurrency = 4;

// A cluster of real processes: a verifier of a model (a file or a folder) with
// a suffix drafter of its own, and a draft node of each kind, named after it:
// "ngram", "model" (the model's first layer), "oracle", "adversarial",
// "random". Null, after a failed expectation, if they do not all serve.
std::unique_ptr<ProcessCluster> StartWithEveryDrafter(const std::string& model);

// What is compared: every combination.
struct ExactnessMatrix {
  std::vector<std::vector<int32_t>> prompts;
  absl::Span<const SamplingSetting> settings;
  absl::Span<const char* const> drafters;
  absl::Span<const int> run_lengths;
  absl::Span<const int64_t> patiences;
  int max_tokens = 0;
};

// Expects that each request has the ids that it has without speculation, that
// every token of the oracle is accepted and none of the adversary. Returns how
// many draft tokens of each drafter were accepted.
std::map<std::string, int64_t> ExpectExact(ProcessCluster& cluster,
                                           const ExactnessMatrix& matrix);

}  // namespace specwire
