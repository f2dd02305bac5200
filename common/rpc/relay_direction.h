// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "common/rpc/relay.h"

namespace specwire {

// Nanoseconds of the clock that a relay's timer runs by.
int64_t RelayNowNs();

// One way through a connection of a Relay: what has been read at one end and
// not yet been written at the other. Sockets must not block.
//
// Thread safety: one thread. Lifetime: `conditions` must outlive it; they may
// change.
class RelayDirection {
 public:
  // Read at once at most.
  static constexpr size_t kReadBytes = size_t{64} << 10;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  RelayDirection(const LinkConditions* conditions,
                 size_t buffer_bytes,
                 uint64_t seed)
      : conditions_(conditions), buffer_bytes_(buffer_bytes), random_(seed) {}

  bool wants_bytes() const {
    return !end_read_ && held_ < buffer_bytes_ && !conditions_->stalled;
  }
  // The receiver was full: it must be writable before anything is due again.
  bool blocked() const { return blocked_ && !conditions_->stalled; }
  void Unblock() { blocked_ = false; }
  // The end has been delivered.
  bool done() const { return done_; }
  // When there is something to deliver.
  int64_t due_ns() const {
    const bool waits = pieces_.empty() || blocked_ || conditions_->stalled;
    return waits ? kNever : pieces_.front().due_ns;
  }

  // Reads once, by way of a buffer of kReadBytes. False if the connection is
  // broken.
  bool Read(int from, char* buffer);
  // Writes what is due. False if the connection is broken.
  bool Deliver(int to, int64_t now_ns);

 private:
  // Bytes that arrived together, or the end.
  struct Piece {
    int64_t due_ns;
    bool is_end;
    std::vector<char> bytes;

    // What it counts for in the buffer; small ones cost more than their bytes.
    size_t cost() const { return bytes.size() + sizeof(Piece); }
  };

  // Takes what has just arrived, under the conditions of this moment.
  void Admit(Piece piece);
  // False if not all of it could be written.
  bool Write(int to, const Piece& piece);

  const LinkConditions* const conditions_;
  const size_t buffer_bytes_;
  std::mt19937_64 random_;
  std::deque<Piece> pieces_;
  size_t held_ = 0;
  // Of the first piece.
  size_t sent_ = 0;
  int64_t last_due_ns_ = 0;
  bool blocked_ = false;
  bool end_read_ = false;
  bool done_ = false;
};

}  // namespace specwire
