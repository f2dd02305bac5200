// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace specwire::cli {

// The default target's file under models/ of the working folder, or of a folder
// above `folder`. NOT_FOUND says what to do.
absl::StatusOr<std::string> FindDefaultModel(const std::string& folder);

// The draft model that comes with the project, looked for in the same places
// under draft_node/models/; nothing if it is not there or was made for another
// vocabulary than that of `target`, a file or a folder.
std::optional<std::string> FindDraftModel(const std::string& folder,
                                          const std::string& target);

}  // namespace specwire::cli
