// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace specwire {

// Finds, in text, the tokens that are looked for before a text is cut into
// words: the leftmost first, the longest of those that begin together.
//
// Thread safety: const methods from any thread.
class SpecialMatcher {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  SpecialMatcher();

  // `control` says that the token is one that only a place which allows control
  // tokens may yield. Of two tokens of the same text the first added counts.
  // REQUIRES: !text.empty().
  void Add(absl::string_view text, int32_t id, bool control);

  // The first match that begins in text[begin, end). A control token lies
  // wholly in there, and without `allow_control` its text is passed over as a
  // whole: no token is found in it. Another token may go on behind `end`, to
  // where `may_reach` allows.
  // REQUIRES: end <= text.size().
  std::optional<Match> Find(absl::string_view text,
                            size_t begin,
                            size_t end,
                            bool allow_control,
                            absl::FunctionRef<bool(size_t)> may_reach) const;

  // True if `text` is, or begins with, a control token.
  bool IsControl(absl::string_view text) const;
  bool BeginsWithControl(absl::string_view text) const;

 private:
  struct Found {
    Match match;
    bool control;
  };
  struct Node {
    int32_t id = -1;
    bool control = false;
  };

  // The index of the child, or -1.
  int32_t Child(int32_t node, char byte) const;
  // The longest token that begins at `begin`, as Find has it.
  std::optional<Found> Longest(absl::string_view text,
                               size_t begin,
                               size_t end,
                               absl::FunctionRef<bool(size_t)> may_reach) const;

  std::vector<Node> nodes_;
  // (node, byte) to node.
  absl::flat_hash_map<uint64_t, int32_t> edges_;
  // Which bytes some token begins with; most positions are ruled out here.
  std::array<bool, 256> starts_ = {};
};

}  // namespace specwire
