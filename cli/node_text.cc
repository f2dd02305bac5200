// SPDX-License-Identifier: Apache-2.0
#include "cli/node_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/drafting/drafter_names.h"

namespace specwire::cli {
namespace {

// "NODE_STATE_SERVING" -> "serving".
std::string ShortName(const std::string& value, const std::string& prefix) {
  return absl::AsciiStrToLower(
      value.substr(value.starts_with(prefix) ? prefix.size() : 0));
}

}  // namespace

std::string RoleName(const v1::Node& node) {
  return ShortName(v1::NodeRole_Name(node.registration().role()), "NODE_ROLE_");
}

std::string StateName(const v1::Node& node) {
  return ShortName(v1::NodeState_Name(node.state()), "NODE_STATE_");
}

std::string Serves(const v1::Node& node) {
  return node.has_model() ? node.model().name() : node.drafter();
}

bool IsSynthetic(const v1::Node& node) {
  return node.model().synthetic() || node.drafter() == kSyntheticDrafter;
}

bool IsGone(const v1::Node& node) {
  return node.state() == v1::NODE_STATE_GONE;
}

std::string LoadText(const v1::Node& node, int64_t value) {
  return IsGone(node) ? "-" : absl::StrCat(value);
}

std::string Escaped(absl::string_view text) { return absl::CHexEscape(text); }

}  // namespace specwire::cli
