// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/drafting/drafter.h"
#include "tests/exactness/toy_engine.h"

namespace specwire {

// The drafters of draft_node for a toy target: "good" and "bad" (the model
// drafter, whose logits are near the target's or have nothing to do with them),
// "oracle", "adversarial", "ngram", "random".
std::unique_ptr<Drafter> MakeToyDrafter(absl::string_view kind,
                                        const ToyEngine& target);

// The model drafter on a given model.
std::unique_ptr<Drafter> MakeToyModelDrafter(std::unique_ptr<ToyEngine> model);

}  // namespace specwire
