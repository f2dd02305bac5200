// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/admission.h"

#include <algorithm>

namespace specwire::verifier {
namespace {

// Preempted so often, a sequence is spared if it can be.
constexpr int kOftenPreempted = 2;
// Of one sequence in the means of how long they take.
constexpr double kServiceWeight = 1.0 / 16;

}  // namespace

void FairShare::Enter(absl::string_view tenant) {
  auto it = tenants_.find(tenant);
  if (it == tenants_.end()) {
    it = tenants_.emplace(std::string(tenant), Tenant()).first;
    ++num_idle_;
  }
  if (it->second.num_sequences > 0) {
    ++it->second.num_sequences;
    return;
  }
  UpdateMinimum();
  it->second.num_sequences = 1;
  --num_idle_;
  it->second.served = std::max(it->second.served, minimum_);
}

void FairShare::Leave(absl::string_view tenant) {
  const auto it = tenants_.find(tenant);
  if (it == tenants_.end() || it->second.num_sequences == 0) return;
  if (it->second.num_sequences == 1) UpdateMinimum();
  if (--it->second.num_sequences > 0) return;
  ++num_idle_;
  Prune();
}

void FairShare::Charge(absl::string_view tenant, int64_t num_tokens) {
  const auto it = tenants_.find(tenant);
  if (it == tenants_.end()) return;
  it->second.served += num_tokens;
}

int64_t FairShare::served(absl::string_view tenant) const {
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? 0 : it->second.served;
}

void FairShare::UpdateMinimum() {
  std::optional<int64_t> least;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.num_sequences == 0) continue;
    least = std::min(least.value_or(tenant.served), tenant.served);
  }
  // It never falls: who was present alone and leaves sets no clock back.
  if (least.has_value()) minimum_ = std::max(minimum_, *least);
}

void FairShare::Prune() {
  if (num_idle_ <= kMaxIdle) return;
  // The one whose debt is least loses least.
  auto least = tenants_.end();
  for (auto it = tenants_.begin(); it != tenants_.end(); ++it) {
    if (it->second.num_sequences > 0) continue;
    if (least == tenants_.end() || it->second.served < least->second.served) {
      least = it;
    }
  }
  tenants_.erase(least);
  --num_idle_;
}

void WaitEstimate::OnWaiting(bool waiting, absl::Time now) {
  if (!waiting) {
    since_.reset();
  } else if (!since_.has_value()) {
    since_ = now;
  }
}

void WaitEstimate::OnLeft(absl::Time now) {
  if (!since_.has_value()) return;
  intervals_.push_back(now - *since_);
  if (intervals_.size() > kIntervals) intervals_.pop_front();
  since_ = now;
}

std::optional<absl::Duration> WaitEstimate::interval() const {
  if (intervals_.empty()) return std::nullopt;
  absl::Duration sum;
  for (const absl::Duration interval : intervals_) sum += interval;
  return sum / static_cast<double>(intervals_.size());
}

void ServiceEstimate::OnServed(absl::Duration duration, int64_t num_tokens) {
  if (num_tokens < 1 || duration <= absl::ZeroDuration()) return;
  const double tokens = static_cast<double>(num_tokens);
  const absl::Duration per_token = duration / tokens;
  if (num_tokens_ <= 0) {
    num_tokens_ = tokens;
    per_token_ = per_token;
    return;
  }
  num_tokens_ += kServiceWeight * (tokens - num_tokens_);
  per_token_ += kServiceWeight * (per_token - per_token_);
}

absl::Duration ServiceEstimate::Expect(int64_t max_tokens) const {
  return per_token_ * std::min(num_tokens_, static_cast<double>(max_tokens));
}

std::optional<size_t> FindProtected(absl::Span<const VictimCandidate> running) {
  std::optional<size_t> best;
  for (size_t i = 0; i < running.size(); ++i) {
    if (running[i].blocked) continue;
    if (!best.has_value() ||
        std::tuple(-int64_t{running[i].priority}, running[i].arrival) <
            std::tuple(-int64_t{running[*best].priority},
                       running[*best].arrival)) {
      best = i;
    }
  }
  return best;
}

std::optional<size_t> ChooseVictim(absl::Span<const VictimCandidate> running) {
  const std::optional<size_t> spared = FindProtected(running);
  const auto rank = [](const VictimCandidate& one) {
    return std::tuple(one.num_preemptions >= kOftenPreempted,
                      one.priority,
                      !one.blocked,
                      -one.arrival);
  };
  std::optional<size_t> victim;
  for (size_t i = 0; i < running.size(); ++i) {
    if (i == spared) continue;
    if (!victim.has_value() || rank(running[i]) < rank(running[*victim])) {
      victim = i;
    }
  }
  return victim;
}

}  // namespace specwire::verifier
