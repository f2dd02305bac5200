// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/drafting/messages.h"

namespace specwire::verifier {

// Follows each draft token of a traced sequence from its arrival until it is
// settled. Tokens are named by their number: how many the stream had brought
// before. It mirrors what VerifySequence does to what is pending; whatever that
// counts, this names.
//
// Thread safety: one thread at a time.
class DraftLedger {
 public:
  // A proposal of `size` tokens came. Returns the number of its first.
  int64_t Receive(size_t size);
  // `count` of them, from number `first` on, are settled, or stand behind what
  // is pending.
  void Settle(int64_t first, int64_t count, DraftOutcome outcome);
  void Append(int64_t first, size_t count);
  // The first `count` of what is pending are settled, or all but the first
  // `keep`.
  void SettleFront(size_t count, DraftOutcome outcome);
  void SettleFrom(size_t keep, DraftOutcome outcome);
  // A pass has verified these, in the order of its rows; they are told first.
  // Those that were pending take their numbers: the first `outcomes.size()` of
  // them.
  void VerifyPending(const std::vector<DraftOutcome>& outcomes);
  void VerifyLocal(std::vector<DraftFate> fates);

  // What was settled since the last call; more than kMaxDraftFates are left
  // out.
  std::vector<DraftFate> Take();

  // Tokens that have come so far.
  int64_t num_received() const { return num_received_; }

 private:
  void Add(int64_t number, DraftOutcome outcome);

  int64_t num_received_ = 0;
  // Numbers of what is pending.
  std::deque<int64_t> pending_;
  std::vector<DraftFate> verified_;
  std::vector<DraftFate> settled_;
};

}  // namespace specwire::verifier
