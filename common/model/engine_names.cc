// SPDX-License-Identifier: Apache-2.0
#include "common/model/engine_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
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

absl::Status CheckFormat(absl::string_view engine,
                         absl::string_view dtype,
                         absl::string_view device) {
  const struct {
    const char* field;
    absl::string_view value;
    const char* usual;
    const char* other;
  } flags[] = {{"--dtype", dtype, kFloat32Dtype, kBfloat16Dtype},
               {"--device", device, kCpuDevice, kCudaDevice}};
  for (const auto& [field, value, usual, other] : flags) {
    if (value == usual) continue;
    if (value != other) {
      return absl::InvalidArgumentError(absl::StrCat(field,
                                                     ": \"",
                                                     absl::CHexEscape(value),
                                                     "\" is unknown; known: ",
                                                     usual,
                                                     ", ",
                                                     other));
    }
    if (engine != kReferenceEngine) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": ", other, " needs --engine ", kReferenceEngine));
    }
  }
  return absl::OkStatus();
}

}  // namespace specwire
