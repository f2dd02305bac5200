// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/drafter_names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire {

const DrafterKind* FindDrafterKind(absl::string_view name) {
  for (const DrafterKind& kind : kDrafterKinds) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

std::vector<std::string> DrafterNames() {
  std::vector<std::string> names;
  for (const DrafterKind& kind : kDrafterKinds) {
    names.emplace_back(kind.name);
  }
  return names;
}

absl::Status CheckDrafterName(absl::string_view name, absl::string_view field) {
  if (FindDrafterKind(name) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field,
                   ": \"",
                   name,
                   "\" is unknown; known: ",
                   absl::StrJoin(DrafterNames(), ", ")));
}

}  // namespace specwire
