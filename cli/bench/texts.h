// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

// How questions and what a model makes of them are told apart, for all
// benchmarks. Pure functions.

namespace specwire::cli::bench {

// What a question's category is reported under: "chat" for the eight topics of
// Spec-Bench's conversations, which are MT-Bench's, and itself for any other.
absl::string_view GroupOf(absl::string_view category);

// Share of the runs of `length` tokens in `completion` that occurred earlier in
// prompt + completion: what repeats its prompt or goes in circles is easy to
// look up. 0 if the completion is shorter.
double RepeatRate(const std::vector<int32_t>& prompt,
                  const std::vector<int32_t>& completion,
                  int length = 4);

}  // namespace specwire::cli::bench
