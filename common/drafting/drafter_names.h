// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// The one list of drafters that a draft node can be. No model code here: the
// command line includes it too.

namespace specwire {

inline constexpr char kNgramDrafter[] = "ngram";
inline constexpr char kSuffixDrafter[] = "suffix";
inline constexpr char kModelDrafter[] = "model";
inline constexpr char kHybridDrafter[] = "hybrid";
inline constexpr char kOracleDrafter[] = "oracle";
inline constexpr char kRandomDrafter[] = "random";
inline constexpr char kAdversarialDrafter[] = "adversarial";
inline constexpr char kSyntheticDrafter[] = "synthetic";

// The drafter that a verifier keeps for itself: in a request it asks for that
// one, in replies and statistics it stands where a draft node's name would.
inline constexpr char kLocalDrafter[] = "local";

// What a drafter needs.
struct DrafterKind {
  const char* name;
  // Reads a model file and computes with it.
  bool has_model;
  // A part of the model's layers is enough for it.
  bool takes_layers;
};

inline constexpr DrafterKind kDrafterKinds[] = {
    {.name = kNgramDrafter, .has_model = false, .takes_layers = false},
    {.name = kSuffixDrafter, .has_model = false, .takes_layers = false},
    {.name = kModelDrafter, .has_model = true, .takes_layers = true},
    {.name = kHybridDrafter, .has_model = true, .takes_layers = true},
    {.name = kOracleDrafter, .has_model = true, .takes_layers = false},
    {.name = kRandomDrafter, .has_model = false, .takes_layers = false},
    {.name = kAdversarialDrafter, .has_model = true, .takes_layers = false},
    {.name = kSyntheticDrafter, .has_model = false, .takes_layers = false}};

// Null if there is no such drafter.
const DrafterKind* FindDrafterKind(absl::string_view name);

// In the order of the list.
std::vector<std::string> DrafterNames();

// INVALID_ARGUMENT, naming `field`, if there is no such drafter.
absl::Status CheckDrafterName(absl::string_view name, absl::string_view field);

}  // namespace specwire
