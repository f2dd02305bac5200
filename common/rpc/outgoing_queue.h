// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "common/rpc/limits.h"
#include "common/rpc/message_checksum.h"

namespace specwire {

// The messages that one stream has yet to write, in order. At most one of them
// is being written; it keeps its address until EndWrite. Counted in messages
// and serialised bytes, the one that is being written included. Messages get
// their checksums here.
//
// Thread safety: none; its owner's lock guards it.
template <class Out>
class OutgoingQueue {
 public:
  explicit OutgoingQueue(const StreamLimits& limits) : limits_(limits) {}

  // Returns false, and changes nothing, if the message does not fit.
  bool Push(Out message) {
    SetChecksum(num_pushed_, &message);
    const size_t bytes = message.ByteSizeLong();
    if (size() >= limits_.max_queued_messages ||
        bytes > limits_.max_queued_bytes ||
        bytes_ > limits_.max_queued_bytes - bytes) {
      return false;
    }
    ++num_pushed_;
    bytes_ += bytes;
    waiting_.push_back({std::move(message), bytes});
    return true;
  }

  // Takes the oldest message for writing.
  // REQUIRES: has_waiting() and not writing().
  const Out* BeginWrite() {
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    if (limits_.sent_bytes != nullptr) {
      limits_.sent_bytes->Increment(static_cast<double>(current_.bytes));
    }
    return &current_.message;
  }

  // REQUIRES: writing().
  void EndWrite() {
    bytes_ -= current_.bytes;
    current_ = Entry();
    writing_ = false;
  }

  // Drops all but the message that is being written.
  void DropWaiting() {
    waiting_.clear();
    bytes_ = writing_ ? current_.bytes : 0;
  }

  bool writing() const { return writing_; }
  bool has_waiting() const { return !waiting_.empty(); }
  size_t size() const { return waiting_.size() + (writing_ ? 1 : 0); }

 private:
  struct Entry {
    Out message;
    size_t bytes = 0;
  };

  const StreamLimits limits_;
  std::deque<Entry> waiting_;
  Entry current_;
  bool writing_ = false;
  size_t bytes_ = 0;
  int64_t num_pushed_ = 0;
};

}  // namespace specwire
