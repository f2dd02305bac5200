// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace specwire {

// Texts that end a completion, prepared for the search: an automaton after Aho
// and Corasick, so a search takes one step a byte, however many texts there
// are.
//
// Thread safety: immutable.
class StopTexts {
 public:
  // REQUIRES: no text is empty. `texts` may be.
  explicit StopTexts(std::vector<std::string> texts);

  const std::vector<std::string>& texts() const { return texts_; }
  bool empty() const { return texts_.empty(); }

 private:
  friend class StopMatcher;

  // A node stands for a text that some stop text begins with; the root, node 0,
  // for the empty one.
  struct Node {
    char byte = 0;
    int parent = 0;
    int first_child = 0;
    int next_sibling = 0;
    // The node of the longest proper suffix that is a node too.
    int fail = 0;
    // The longest stop text that ends here, by index; -1: none does.
    int match = -1;
    // Bytes at the end of this node's text that more text may complete to a
    // stop text.
    size_t held = 0;
  };

  void AddText(int index);
  void Link();
  int Child(int node, char byte) const;
  int Next(int node, char byte) const;

  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
};

// Looks for the first stop text in a text that comes in pieces. Which it is,
// and where it ends, does not depend on the pieces: the one that is complete
// first, byte by byte, the longest of those that are complete at the same byte.
// Text that may yet turn out to be the beginning of a stop text is held back,
// so that what was released never has to be taken back.
//
// Thread safety: one thread at a time.
class StopMatcher {
 public:
  // `include_stop`: the stop text stays in the text, and nothing is held back.
  StopMatcher(std::shared_ptr<const StopTexts> texts, bool include_stop)
      : texts_(std::move(texts)), include_stop_(include_stop) {}

  // Takes the next piece and returns the text that it releases. A stop text
  // that is complete within the piece ends the text, and what follows is
  // dropped; unless `may_stop` is false: then it is text like any other.
  // REQUIRES: nothing has matched.
  std::string Push(absl::string_view piece, bool may_stop = true);

  // The text that was held back; none after a match. A new text may begin.
  std::string Finish();

  // The stop text that was met, by index.
  std::optional<int> match() const { return match_; }

 private:
  const std::shared_ptr<const StopTexts> texts_;
  const bool include_stop_;
  int node_ = 0;
  std::string held_;
  std::optional<int> match_;
};

}  // namespace specwire
