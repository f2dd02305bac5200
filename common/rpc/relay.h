// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace specwire {

class RelayLoop;

// What one direction of a relay does to the bytes that pass it.
struct LinkConditions {
  // Every byte is held so long, at least; in [0, 60 s].
  absl::Duration delay = {};
  // What is added to it, drawn anew for each piece that arrives, evenly from
  // [0, jitter]; in [0, 60 s]. Bytes stay in order, so one that comes early
  // waits for those before it.
  absl::Duration jitter = {};
  // Bytes a second at most, in [0, 1e12]; 0: as fast as they come.
  int64_t rate = 0;
  // Nothing passes until this is false again; connections stay open, and their
  // ends see a peer that has vanished.
  bool stalled = false;
  // What comes is taken and lost, an end or a reset too, and nobody is told. A
  // connection that has lost something passes nothing more this way: there
  // would be a gap. Both ways at once: a peer that accepts and never answers.
  bool blackhole = false;
  // This direction is at its end, the other goes on: the receiver is told
  // behind what is under way, and what still comes is lost.
  bool ended = false;
  // A connection is reset when it has passed so many bytes this way, at once if
  // it has passed more; not negative. 0 resets all that there are or will be.
  std::optional<int64_t> cut_after = std::nullopt;
  // The chance of each byte that one of its bits is flipped, in [0, 1].
  double flip_rate = 0;
  // A connection's byte that has a bit flipped, counted from 0; not negative.
  std::optional<int64_t> flip_at = std::nullopt;
};

struct RelayOptions {
  // HOST:PORT, numeric; port 0 takes a free one.
  std::string listen = "127.0.0.1:0";
  // HOST:PORT, numeric; empty: SetTarget tells it, and connections that come
  // before that wait.
  std::string target;
  // Of the jitter and the flips.
  uint64_t seed = 0;
  // What a direction of a connection holds at most; then nothing more is read
  // until some of it is delivered. Bounds the rate by itself / delay.
  size_t buffer_bytes = size_t{4} << 20;
};

// A TCP relay in this process: whoever connects to it is connected to the
// target, and what passes is delayed, damaged or lost, so that a link on one
// machine behaves like a long or a bad one without any privilege. The end of a
// direction is passed on behind its last byte; a reset is passed on at once and
// takes with it what was still under way.
//
// One thread moves all bytes; it sleeps until there is something to do, to the
// nanosecond as far as the system's timers go. What else a link can do to bytes
// belongs into LinkConditions and RelayDirection::Admit.
//
// Thread safety: any thread.
class Relay {
 public:
  // UNAVAILABLE if it cannot listen, INVALID_ARGUMENT if an address is
  // malformed or no number.
  static absl::StatusOr<std::unique_ptr<Relay>> Start(
      const RelayOptions& options);
  // Cuts what is connected.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Where it listens.
  const std::string& address() const;
  // For connections that come from now on.
  absl::Status SetTarget(const std::string& target);
  // For bytes that come from now on, of every connection: `forward` towards the
  // target, `backward` from it. INVALID_ARGUMENT, naming the field, if one is
  // out of range.
  absl::Status SetConditions(const LinkConditions& forward,
                             const LinkConditions& backward);

  // Connections accepted so far, and those that are open.
  int64_t num_accepted() const;
  int64_t num_open() const;
  // Bits flipped so far.
  int64_t num_flips() const;

 private:
  explicit Relay(std::unique_ptr<RelayLoop> loop);

  const std::unique_ptr<RelayLoop> loop_;
  std::thread thread_;
};

}  // namespace specwire
