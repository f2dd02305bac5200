// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/strike.h"

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire::faults {
namespace {

// A process that was stopped, or whose link was stalled, for so long is taken
// for lost: more than a ping and the time to answer it.
constexpr absl::Duration kBeyondKeepalive = absl::Seconds(6);
constexpr rlim_t kSomeMemory = 256 << 10;
// Below what every process has open.
constexpr rlim_t kFewDescriptors = 3;

rlim_t AddressSpace(pid_t pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  rlim_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

// Of the soft limit.
absl::Status Limit(pid_t pid, bool memory, rlim_t value) {
  // 0 would be this process.
  if (pid <= 0) return absl::NotFoundError("there is no process");
  // prlimit's own types differ between C libraries.
  const auto resource = memory ? RLIMIT_AS : RLIMIT_NOFILE;
  rlimit limit = {};
  if (prlimit(pid, resource, nullptr, &limit) == 0) {
    limit.rlim_cur = std::min(value, limit.rlim_max);
    if (prlimit(pid, resource, &limit, nullptr) == 0) return absl::OkStatus();
  }
  return absl::UnavailableError(std::strerror(errno));
}

// Adds a fault to the conditions of a link.
void AddFault(Fault fault, LinkConditions* forward, LinkConditions* backward) {
  for (LinkConditions* way : {forward, backward}) {
    switch (fault) {
      case Fault::kDelay:
        way->delay += absl::Milliseconds(150);
        break;
      case Fault::kJitter:
        way->jitter = absl::Milliseconds(200);
        break;
      case Fault::kRate:
        way->rate = 8000;
        break;
      case Fault::kReset:
        way->cut_after = 0;
        break;
      case Fault::kBlackhole:
        way->blackhole = true;
        break;
      case Fault::kFlips:
        way->flip_rate = 0.05;
        break;
      case Fault::kPlainFlips:
        // Seldom enough that a frame now and then is hit and not all of them.
        way->flip_rate = 0.003;
        break;
      default:
        break;
    }
  }
  forward->stalled = fault == Fault::kStallForward;
  backward->stalled = fault == Fault::kStallBackward;
  forward->ended = fault == Fault::kHalfClose;
}

}  // namespace

Strike::Strike(Fault fault,
               std::string victim,
               LinkState state,
               FaultCluster* cluster)
    : fault_(fault),
      victim_(std::move(victim)),
      state_(std::move(state)),
      cluster_(cluster) {}

pid_t Strike::Pid() const { return pid_ > 0 ? pid_ : cluster_->pid(victim_); }

void Strike::Signal(int signal) const {
  if (Pid() > 0) kill(Pid(), signal);
}

absl::Status Strike::Begin() {
  return fault_ < Fault::kDelay ? BeginOnProcess() : BeginOnLink();
}

absl::Status Strike::BeginOnProcess() {
  switch (fault_) {
    case Fault::kKill:
      Signal(SIGKILL);
      return absl::OkStatus();
    case Fault::kTerminate:
      Signal(SIGTERM);
      return absl::OkStatus();
    case Fault::kMemory:
      return Limit(Pid(), true, AddressSpace(Pid()) + kSomeMemory);
    case Fault::kDescriptors:
      return Limit(Pid(), false, kFewDescriptors);
    default:
      Signal(SIGSTOP);
      return absl::OkStatus();
  }
}

absl::Status Strike::BeginOnLink() {
  const auto found = state_.find(victim_);
  LinkConditions forward;
  LinkConditions backward;
  if (found != state_.end()) std::tie(forward, backward) = found->second;
  AddFault(fault_, &forward, &backward);
  return cluster_->SetLink(victim_, forward, backward);
}

absl::Duration Strike::hold() const {
  switch (fault_) {
    case Fault::kKill:
    case Fault::kReset:
      return absl::Milliseconds(200);
    case Fault::kTerminate:
    case Fault::kHalfClose:
      return absl::Milliseconds(500);
    case Fault::kStopLong:
      return absl::Seconds(5);
    case Fault::kStallForward:
    case Fault::kStallBackward:
    case Fault::kBlackhole:
      return kBeyondKeepalive;
    default:
      return absl::Seconds(1);
  }
}

void Strike::End() {
  switch (fault_) {
    case Fault::kStopShort:
    case Fault::kStopLong:
      Signal(SIGCONT);
      return;
    case Fault::kMemory:
    case Fault::kDescriptors:
      // It may have died of it.
      Limit(Pid(), fault_ == Fault::kMemory, RLIM_INFINITY).IgnoreError();
      return;
    default:
      return;
  }
}

}  // namespace specwire::faults
