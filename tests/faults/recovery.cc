// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/recovery.h"

#include <signal.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/faults/client.h"
#include "tests/faults/fault_cluster.h"
#include "tests/testing/generate_call.h"

namespace specwire::faults {
namespace {

constexpr absl::Duration kBound = absl::Seconds(60);
// So slow that a stream can be hit, and a prompt takes its time.
constexpr ClusterTimes kTimes = {absl::Milliseconds(10),
                                 absl::Microseconds(200)};
constexpr int kContext = 500;
constexpr int kPrompt = 300;
constexpr int kTokens = 400;

struct Measured {
  std::vector<absl::Duration> gaps;
  int faults = 0;
};

// The node by this role that has a sequence; empty if none tells of one.
std::string Busy(const FaultCluster& cluster, const std::string& role) {
  for (const std::string& name : cluster.BusyNodes()) {
    if (name.rfind(role, 0) == 0) return name;
  }
  return "";
}

// One stream that loses a node; the longest pause between two of its tokens
// from the loss on, unless the machine stood still meanwhile.
void Lose(FaultCluster* cluster,
          const Programs& programs,
          const std::string& role,
          int how,
          uint64_t number,
          Measured* measured) {
  const int pauses = programs.pauses->num_pauses();
  v1::GenerateRequest request = MakeRequest(number, kPrompt, kTokens);
  request.mutable_speculation()->set_patience_us(20000);
  ClientProcess client(programs.self,
                       cluster->client_addresses(),
                       cluster->client_tls(),
                       request);
  client.WaitTokens(kContext - kPrompt, absl::Now() + kBound);
  std::string victim;
  Eventually([&] { return !(victim = Busy(*cluster, role)).empty(); });
  const absl::Time loss = absl::Now();
  if (!victim.empty()) cluster->Signal(victim, how);
  client.WaitEnded(absl::Now() + kBound);
  const ClientLog log = client.log();
  absl::Duration longest;
  for (size_t i = 1; i < log.times.size(); ++i) {
    if (log.times[i] < loss) continue;
    longest = std::max(longest, log.times[i] - log.times[i - 1]);
  }
  // What came behind the loss shows that it was in time.
  const bool hit =
      !victim.empty() && !log.times.empty() && log.times.back() > loss;
  if (programs.pauses->num_pauses() == pauses) {
    Verdict verdict;
    CheckLog(request, log, true, role, &verdict);
    for (const std::string& problem : verdict.problems) {
      std::cout << "    " << problem << std::endl;
    }
    measured->faults += verdict.ok() ? 0 : 1;
    if (hit) measured->gaps.push_back(longest);
  }
  if (victim.empty()) return;
  if (how == SIGSTOP) {
    cluster->Signal(victim, SIGCONT);
  } else {
    cluster->WaitEnded(victim, kBound);
    cluster->StartProgram(victim).IgnoreError();
  }
  Eventually([&] { return cluster->CheckIdle().ok(); }, kBound);
}

void Print(const std::string& what, Measured measured, const std::string& bar) {
  std::vector<absl::Duration>& gaps = measured.gaps;
  std::sort(gaps.begin(), gaps.end());
  std::cout << what << ": ";
  if (gaps.empty()) {
    std::cout << "nothing was hit" << std::endl;
    return;
  }
  const auto at = [&](double part) {
    const auto index =
        static_cast<size_t>(part * static_cast<double>(gaps.size() - 1) + 0.5);
    return absl::FormatDuration(
        absl::Trunc(gaps[index], absl::Milliseconds(1)));
  };
  std::cout << "pause p50 " << at(0.5) << ", p99 " << at(0.99) << ", longest "
            << at(1) << " over " << gaps.size() << " losses (bar: " << bar
            << "); texts that were not plain: " << measured.faults << std::endl;
}

}  // namespace

int MeasureRecovery(int num_losses, uint64_t seed, const Programs& programs) {
  FaultCluster cluster(programs.bin, seed, kTimes);
  if (absl::Status status = cluster.Start(); !status.ok()) {
    std::cerr << "fault_matrix: " << status.ToString() << std::endl;
    return 1;
  }
  const absl::Duration step = kTimes.step + kTimes.row;
  const absl::Duration prefill = kTimes.step + kContext * kTimes.row;
  std::cout << "plain step " << absl::FormatDuration(step) << ", prefill of "
            << kContext << " tokens " << absl::FormatDuration(prefill)
            << std::endl;
  int faults = 0;
  const auto measure = [&](const std::string& role,
                           int how,
                           int times,
                           const std::string& what,
                           absl::Duration bar) {
    Measured measured;
    // Not every stream is hit.
    for (int i = 0;
         i < 2 * times && static_cast<int>(measured.gaps.size()) < times;
         ++i) {
      Lose(&cluster,
           programs,
           role,
           how,
           seed * 1000003 + static_cast<uint64_t>(i),
           &measured);
    }
    faults += measured.faults;
    Print(what, std::move(measured), absl::FormatDuration(bar));
  };
  measure("verifier",
          SIGKILL,
          num_losses,
          "verifier killed",
          absl::Milliseconds(1500) + prefill);
  measure("draft",
          SIGKILL,
          num_losses,
          "drafter killed",
          2 * step + absl::Milliseconds(100));
  measure("verifier",
          SIGSTOP,
          std::max(num_losses / 5, 1),
          "verifier stopped",
          absl::Seconds(3) + prefill);
  return faults == 0 ? 0 : 1;
}

}  // namespace specwire::faults
