// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/draft_ledger.h"

#include <algorithm>
#include <utility>

namespace specwire::verifier {

int64_t DraftLedger::Receive(size_t size) {
  const int64_t first = num_received_;
  num_received_ += static_cast<int64_t>(size);
  return first;
}

void DraftLedger::Settle(int64_t first, int64_t count, DraftOutcome outcome) {
  for (int64_t i = 0; i < count; ++i) Add(first + i, outcome);
}

void DraftLedger::Append(int64_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    pending_.push_back(first + static_cast<int64_t>(i));
  }
}

void DraftLedger::SettleFront(size_t count, DraftOutcome outcome) {
  for (size_t i = 0; i < count && !pending_.empty(); ++i) {
    Add(pending_.front(), outcome);
    pending_.pop_front();
  }
}

void DraftLedger::SettleFrom(size_t keep, DraftOutcome outcome) {
  const size_t begin = std::min(keep, pending_.size());
  for (size_t i = begin; i < pending_.size(); ++i) Add(pending_[i], outcome);
  pending_.resize(begin);
}

void DraftLedger::VerifyPending(const std::vector<DraftOutcome>& outcomes) {
  for (const DraftOutcome outcome : outcomes) {
    if (pending_.empty()) return;
    DraftFate fate;
    fate.number = pending_.front();
    fate.outcome = outcome;
    verified_.push_back(fate);
    pending_.pop_front();
  }
}

void DraftLedger::VerifyLocal(std::vector<DraftFate> fates) {
  verified_ = std::move(fates);
}

std::vector<DraftFate> DraftLedger::Take() {
  std::vector<DraftFate> fates = std::exchange(verified_, {});
  fates.insert(fates.end(), settled_.begin(), settled_.end());
  settled_.clear();
  return fates;
}

void DraftLedger::Add(int64_t number, DraftOutcome outcome) {
  // Somebody sends what he should not: he knows it himself.
  if (settled_.size() + kMaxProposalTokens >= kMaxDraftFates) return;
  DraftFate fate;
  fate.number = number;
  fate.outcome = outcome;
  settled_.push_back(fate);
}

}  // namespace specwire::verifier
