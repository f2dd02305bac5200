// SPDX-License-Identifier: Apache-2.0
#include "coordinator/node_info.h"

namespace specwire::coordinator {

absl::string_view NodeRoleName(NodeRole role) {
  return role == NodeRole::kDraft ? "draft" : "verifier";
}

absl::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kJoining:
      return "joining";
    case NodeState::kServing:
      return "serving";
    case NodeState::kSuspect:
      return "suspect";
    case NodeState::kDraining:
      return "draining";
    case NodeState::kIncompatible:
      return "incompatible";
    case NodeState::kGone:
      return "gone";
  }
  return "unknown";
}

}  // namespace specwire::coordinator
