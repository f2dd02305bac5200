// SPDX-License-Identifier: Apache-2.0
#include "common/model/engine_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire {

std::string EngineNames() { return absl::StrJoin(kEngineNames, ", "); }

absl::Status CheckEngineName(absl::string_view name, absl::string_view field) {
  if (std::find(std::begin(kEngineNames), std::end(kEngineNames), name) !=
      std::end(kEngineNames)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": \"", name, "\" is unknown; known: ", EngineNames()));
}

}  // namespace specwire
