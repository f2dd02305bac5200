// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer_model.h"
#include "nlohmann/json.hpp"

namespace specwire {

// What the model in a tokenizer.json says about itself.
struct HfModelFlags {
  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;
};

// The steps of a pipeline: those in the list `members` of a Sequence, or the
// one that there is, or none.
std::vector<nlohmann::json> HfSteps(const nlohmann::json& value,
                                    const char* members);

// Reads what comes before and after the merges (normalizer, pre_tokenizer,
// decoder) into kind, pre and leading_space. INVALID_ARGUMENT if it is none of
// the known forms; `path` is the file's name in errors, `root` its document.
absl::Status ReadHfPipeline(absl::string_view path,
                            const nlohmann::json& root,
                            const HfModelFlags& flags,
                            TokenizerModel* model);

}  // namespace specwire
