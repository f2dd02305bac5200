// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/stop_matcher.h"

#include <utility>

namespace specwire {

StopTexts::StopTexts(std::vector<std::string> texts)
    : texts_(std::move(texts)), nodes_(1) {
  for (size_t i = 0; i < texts_.size(); ++i) AddText(static_cast<int>(i));
  Link();
}

void StopTexts::AddText(int index) {
  int node = 0;
  for (const char byte : texts_[static_cast<size_t>(index)]) {
    int child = Child(node, byte);
    if (child == 0) {
      child = static_cast<int>(nodes_.size());
      Node added;
      added.byte = byte;
      added.parent = node;
      added.next_sibling = nodes_[static_cast<size_t>(node)].first_child;
      nodes_.push_back(added);
      nodes_[static_cast<size_t>(node)].first_child = child;
    }
    node = child;
  }
  // Of equal texts the first counts.
  int& match = nodes_[static_cast<size_t>(node)].match;
  if (match < 0) match = index;
}

void StopTexts::Link() {
  // By length, so that the suffix of a node is linked before it.
  std::vector<std::pair<int, size_t>> queue = {{0, 0}};
  for (size_t at = 0; at < queue.size(); ++at) {
    const auto [index, depth] = queue[at];
    Node& node = nodes_[static_cast<size_t>(index)];
    if (depth > 1) {
      node.fail =
          Next(nodes_[static_cast<size_t>(node.parent)].fail, node.byte);
    }
    const Node& suffix = nodes_[static_cast<size_t>(node.fail)];
    // A stop text that is the whole node is longer than any that is a suffix.
    if (node.match < 0 && index != 0) node.match = suffix.match;
    node.held = node.first_child != 0 ? depth : index == 0 ? 0 : suffix.held;
    for (int child = node.first_child; child != 0;
         child = nodes_[static_cast<size_t>(child)].next_sibling) {
      queue.push_back({child, depth + 1});
    }
  }
}

int StopTexts::Child(int node, char byte) const {
  int child = nodes_[static_cast<size_t>(node)].first_child;
  while (child != 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

int StopTexts::Next(int node, char byte) const {
  for (;;) {
    const int child = Child(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[static_cast<size_t>(node)].fail;
  }
}

std::string StopMatcher::Push(absl::string_view piece, bool may_stop) {
  std::string text = std::exchange(held_, std::string());
  if (texts_->empty()) {
    text.append(piece.data(), piece.size());
    return text;
  }
  for (size_t i = 0; i < piece.size(); ++i) {
    node_ = texts_->Next(node_, piece[i]);
    const int match = texts_->nodes_[static_cast<size_t>(node_)].match;
    if (may_stop && match >= 0) {
      match_ = match;
      text.append(piece.data(), i + 1);
      if (!include_stop_) {
        text.resize(text.size() -
                    texts_->texts_[static_cast<size_t>(match)].size());
      }
      return text;
    }
  }
  text.append(piece.data(), piece.size());
  if (!include_stop_) {
    const size_t held = texts_->nodes_[static_cast<size_t>(node_)].held;
    held_ = text.substr(text.size() - held);
    text.resize(text.size() - held);
  }
  return text;
}

std::string StopMatcher::Finish() {
  node_ = 0;
  return std::exchange(held_, std::string());
}

}  // namespace specwire
