// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "specwire/v1/cluster.pb.h"

namespace specwire::cli {

// A node of the cluster in words, for people and scripts.

// "verifier" or "draft".
std::string RoleName(const v1::Node& node);
// "serving", "draining" and so on.
std::string StateName(const v1::Node& node);
// What the node serves: the model of a verifier, the drafter of a draft node.
std::string Serves(const v1::Node& node);
// Whether its tokens are made up.
bool IsSynthetic(const v1::Node& node);
// Whether it has left, so that its latest load is of no meaning.
bool IsGone(const v1::Node& node);

// A number of its load; "-" for a node that has left.
std::string LoadText(const v1::Node& node, int64_t value);

// For a cell of a table on a terminal: plain ASCII, as wide as it is long,
// whatever else it holds escaped. Elsewhere Printable does.
std::string Escaped(absl::string_view text);

}  // namespace specwire::cli
