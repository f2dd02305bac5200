// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/rpc/relay.h"
#include "common/rpc/relay_direction.h"
#include "common/rpc/relay_poller.h"
#include "common/rpc/relay_socket.h"

namespace specwire {

// Moves the bytes of a Relay: takes connections, and delivers what is due on
// both ways of each.
//
// Thread safety: what changes settings, Stop() and the counters: any thread;
// Run(): one.
class RelayLoop {
 public:
  // Listens. Connections wait until there is a target. As Relay::Start.
  static absl::StatusOr<std::unique_ptr<RelayLoop>> Open(
      const RelayOptions& options);
  ~RelayLoop();
  RelayLoop(const RelayLoop&) = delete;
  RelayLoop& operator=(const RelayLoop&) = delete;

  const std::string& address() const { return address_; }
  int64_t num_accepted() const { return num_accepted_; }
  int64_t num_open() const { return num_open_; }
  int64_t num_flips() const { return num_flips_; }

  void SetTarget(const SocketAddress& target);
  void SetConditions(const LinkConditions& forward,
                     const LinkConditions& backward);
  // Ends Run(), or one that is still to come.
  void Stop();
  void Run();

 private:
  struct Connection;
  // One end of a connection, or the listener (no connection).
  struct Endpoint : RelayPoller::Watched {
    Connection* connection = nullptr;
    // What is read here, and what is written here.
    RelayDirection* outgoing = nullptr;
    RelayDirection* incoming = nullptr;
  };
  struct Connection {
    Connection(const LinkConditions* forward_conditions,
               const LinkConditions* backward_conditions,
               size_t buffer_bytes,
               uint64_t seed,
               std::atomic<int64_t>* num_flips);

    // When there is something to deliver.
    int64_t due_ns() const;

    RelayDirection forward;
    RelayDirection backward;
    Endpoint client;
    Endpoint server;
    // The server's end is not connected yet.
    bool connecting = true;
    // As it is noted in the agenda.
    int64_t noted_ns = RelayDirection::kNever;
    bool over = false;
  };
  // What other threads set.
  struct Settings {
    bool has_target = false;
    SocketAddress target;
    LinkConditions forward;
    LinkConditions backward;
  };

  explicit RelayLoop(const RelayOptions& options)
      : options_(options), buffer_(RelayDirection::kReadBytes) {}

  void TakeSettings();
  void Accept();
  void OnEvent(Endpoint* endpoint, uint32_t events);
  // The connection is broken at this end: cuts it, or lets it seem to live
  // where the other end is not to know.
  void OnBroken(Endpoint* endpoint);
  // Delivers what is due on both ways and notes what comes next.
  void Serve(Connection* connection, int64_t now_ns);
  void WatchListener();
  void Note(Connection* connection, int64_t due_ns);
  // Cuts it; the object lives until the end of the round.
  void Cut(Connection* connection, bool reset);

  const RelayOptions options_;
  std::string address_;
  RelayPoller poller_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> num_accepted_ = 0;
  std::atomic<int64_t> num_open_ = 0;
  std::atomic<int64_t> num_flips_ = 0;

  Mutex mutex_;
  Settings wanted_ ABSL_GUARDED_BY(mutex_);
  // Counts up with each change of them.
  std::atomic<int64_t> num_settings_ = 0;

  // The thread's own. Directions refer to the conditions in `settings_`.
  Settings settings_;
  int64_t num_taken_ = 0;
  Endpoint listener_;
  std::vector<char> buffer_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  // Ended in this round.
  std::vector<std::unique_ptr<Connection>> ended_;
  // By when they have something to deliver.
  std::set<std::pair<int64_t, Connection*>> agenda_;
};

}  // namespace specwire
