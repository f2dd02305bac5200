// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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
// Thread safety: one thread. Lifetime: `conditions`, which may change, and
// `num_flips` must outlive it.
class RelayDirection {
 public:
  // Read at once at most.
  static constexpr size_t kReadBytes = size_t{64} << 10;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `num_flips` counts them.
  RelayDirection(const LinkConditions* conditions,
                 size_t buffer_bytes,
                 uint64_t seed,
                 std::atomic<int64_t>* num_flips)
      : conditions_(conditions),
        buffer_bytes_(buffer_bytes),
        random_(seed),
        num_flips_(num_flips) {}

  bool wants_bytes() const {
    return !end_read_ && held_ < buffer_bytes_ && !conditions_->stalled;
  }
  // The receiver was full: it must be writable before anything is due again.
  bool blocked() const { return blocked_ && !conditions_->stalled; }
  void Unblock() { blocked_ = false; }
  // Nothing is to come any more: the end has been delivered, or lost.
  bool done() const { return done_ || (lost_ && end_read_); }
  // What comes now is lost, and so is news of a broken connection.
  bool loses() const { return lost_ || conditions_->blackhole; }
  // When there is something to deliver.
  int64_t due_ns() const {
    const bool waits = pieces_.empty() || blocked_ || conditions_->stalled;
    return waits ? kNever : pieces_.front().due_ns;
  }

  // Takes note of conditions that do not wait for a byte.
  void Settle();
  // One end is broken, and the other is not to know: of the direction that
  // comes from there, and of the one that goes there.
  void LoseSender() { lost_ = end_read_ = true; }
  void LoseReceiver();
  // Reads once, by way of a buffer of kReadBytes. False if the connection is
  // broken.
  bool Read(int from, char* buffer);
  // Writes what is due. False if the connection is broken, or to be cut.
  bool Deliver(int to, int64_t now_ns);

 private:
  enum class Kind { kBytes, kEnd, kCut };
  // Bytes that arrived together, or what comes behind them.
  struct Piece {
    Kind kind = Kind::kBytes;
    std::vector<char> bytes = {};
    int64_t due_ns = 0;

    // What it counts for in the buffer; small ones cost more than their bytes.
    size_t cost() const { return bytes.size() + sizeof(Piece); }
  };

  // Takes what has just arrived, under the conditions of this moment.
  void Admit(Piece piece);
  // Damages bytes; the first of them has the index `admitted_`.
  void Flip(std::vector<char>* bytes);
  // When the line has carried so many bytes more.
  int64_t DueNs(size_t size);
  void Push(Piece piece);
  // False if not all of it could be written.
  bool Write(int to, const Piece& piece);

  const LinkConditions* const conditions_;
  const size_t buffer_bytes_;
  std::mt19937_64 random_;
  std::atomic<int64_t>* const num_flips_;
  std::deque<Piece> pieces_;
  size_t held_ = 0;
  // Of the first piece.
  size_t sent_ = 0;
  // Bytes taken so far.
  int64_t admitted_ = 0;
  int64_t line_free_ns_ = 0;
  int64_t last_due_ns_ = 0;
  bool blocked_ = false;
  bool end_read_ = false;
  // The end, and the cut, are among the pieces or have been delivered.
  bool closed_ = false;
  bool cut_ = false;
  bool lost_ = false;
  bool done_ = false;
};

}  // namespace specwire
