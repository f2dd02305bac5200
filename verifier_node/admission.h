// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

// Who comes first, who waits how long, and who must go. Pure code: no clock, no
// engine.

namespace specwire::verifier {

// Shares time between tenants, or users, by the tokens that were computed for
// them: each has a counter, and the one with the least comes first. One that
// comes back starts at the present minimum, at least: idling saves up nothing,
// and leaving pays off no debt.
//
// Memory: tenants that are present, and kMaxIdle others.
// Thread safety: one thread at a time.
class FairShare {
 public:
  static constexpr size_t kMaxIdle = 1024;

  // A sequence of the tenant comes or goes. REQUIRES: as many of the second.
  void Enter(absl::string_view tenant);
  void Leave(absl::string_view tenant);
  // REQUIRES: the tenant is present.
  void Charge(absl::string_view tenant, int64_t num_tokens);

  // 0 for one that is unknown.
  int64_t served(absl::string_view tenant) const;
  size_t num_tenants() const { return tenants_.size(); }

 private:
  struct Tenant {
    int64_t served = 0;
    int num_sequences = 0;
  };

  void UpdateMinimum();
  // Forgets an idle one if there are too many.
  void Prune();

  absl::flat_hash_map<std::string, Tenant> tenants_;
  size_t num_idle_ = 0;
  // Of those that were present when one came or went, last; never falls.
  int64_t minimum_ = 0;
};

// What decides who comes before whom: the higher priority, then the user who
// got less, then the tenant of that user that got less, then (for rows, not for
// prompts) who had its latest pass earlier, then who came first.
struct Standing {
  int32_t priority = 0;
  int64_t user_served = 0;
  int64_t served = 0;
  int64_t last_pass = 0;
  int64_t arrival = 0;

  bool GoesBefore(const Standing& other) const {
    return std::tuple(
               -int64_t{priority}, user_served, served, last_pass, arrival) <
           std::tuple(-int64_t{other.priority},
                      other.user_served,
                      other.served,
                      other.last_pass,
                      other.arrival);
  }
};

// How fast places become free, from those that became free while somebody
// waited.
//
// Thread safety: one thread at a time.
class WaitEstimate {
 public:
  // Somebody waits from now on, or nobody does. May repeat.
  void OnWaiting(bool waiting, absl::Time now);
  // A sequence has ended.
  void OnLeft(absl::Time now);

  // Mean time between two that leave, of the latest ones: they often leave
  // together. Nothing before any was seen.
  std::optional<absl::Duration> interval() const;

 private:
  static constexpr size_t kIntervals = 64;

  // Since when the next interval runs; nothing while nobody waits.
  std::optional<absl::Time> since_;
  std::deque<absl::Duration> intervals_;
};

// How long sequences take once they have started, from those that ended.
//
// Thread safety: one thread at a time.
class ServiceEstimate {
 public:
  // A sequence has ended that ran for `duration` and committed `num_tokens`.
  void OnServed(absl::Duration duration, int64_t num_tokens);

  // For one that commits `max_tokens` at most, the usual number if that is
  // less. Zero before any was seen.
  absl::Duration Expect(int64_t max_tokens) const;

 private:
  // Running means.
  double num_tokens_ = 0;
  absl::Duration per_token_;
};

// A sequence that could be made to give its KV blocks back.
struct VictimCandidate {
  int num_preemptions = 0;
  int32_t priority = 0;
  // Its credit is used up.
  bool blocked = false;
  int64_t arrival = 0;
};

// The index of the one to preempt; nothing if there is none. The oldest of the
// highest priority that is not blocked never is. Of the others: one that was
// preempted less than twice if there is any, of the lowest priority, blocked
// rather than not, the youngest.
std::optional<size_t> ChooseVictim(absl::Span<const VictimCandidate> running);

// The index of the one that is never preempted.
std::optional<size_t> FindProtected(absl::Span<const VictimCandidate> running);

}  // namespace specwire::verifier
