// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/cell.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace specwire::faults {
namespace {

// In the order of the enumerators.
constexpr std::array<absl::string_view, 8> kTargets = {"client",
                                                       "coordinator",
                                                       "drafter",
                                                       "verifier",
                                                       "client_link",
                                                       "verifier_link",
                                                       "drafter_link",
                                                       "join_link"};
constexpr std::array<absl::string_view, 16> kFaults = {"kill",
                                                       "terminate",
                                                       "stop_1s",
                                                       "stop_5s",
                                                       "memory",
                                                       "descriptors",
                                                       "delay",
                                                       "jitter",
                                                       "rate",
                                                       "stall_forward",
                                                       "stall_backward",
                                                       "half_close",
                                                       "reset",
                                                       "blackhole",
                                                       "flips",
                                                       "plain_flips"};
constexpr std::array<absl::string_view, 9> kPhases = {"connect",
                                                      "join",
                                                      "prefill",
                                                      "wait_for_draft",
                                                      "verify",
                                                      "delivery",
                                                      "last_token",
                                                      "drain",
                                                      "recovery"};

// Cells that say nothing. What is absent matches all.
struct Excluded {
  std::optional<Target> target;
  std::optional<Fault> fault;
  std::optional<Phase> phase;
  absl::string_view why;

  bool Covers(const Cell& cell) const {
    return target.value_or(cell.target) == cell.target &&
           fault.value_or(cell.fault) == cell.fault &&
           phase.value_or(cell.phase) == cell.phase;
  }
};

const std::array<Excluded, 2>& ExcludedCells() {
  static constexpr std::array<Excluded, 2> kExcluded = {{
      {Target::kClient, std::nullopt, Phase::kJoin, "A client does not join."},
      {Target::kClientLink,
       std::nullopt,
       Phase::kJoin,
       "No node joins over the client's link."},
  }};
  return kExcluded;
}

template <class T, size_t kSize>
absl::StatusOr<T> Find(const std::array<absl::string_view, kSize>& names,
                       absl::string_view name,
                       absl::string_view what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<T>(found - names.begin());
  return absl::InvalidArgumentError(absl::StrCat("--cell: no ",
                                                 what,
                                                 " \"",
                                                 name,
                                                 "\"; there are ",
                                                 absl::StrJoin(names, ", ")));
}

// The pairs that a cell covers; targets, faults and phases have numbers of
// their own.
std::vector<std::pair<int, int>> PairsOf(const Cell& cell) {
  const int target = static_cast<int>(cell.target);
  const int fault = 100 + static_cast<int>(cell.fault);
  const int phase = 200 + static_cast<int>(cell.phase);
  return {{target, fault}, {target, phase}, {fault, phase}};
}

}  // namespace

bool IsLink(Target target) { return target >= Target::kClientLink; }

absl::string_view Name(Target target) {
  return kTargets[static_cast<size_t>(target)];
}

absl::string_view Name(Fault fault) {
  return kFaults[static_cast<size_t>(fault)];
}

absl::string_view Name(Phase phase) {
  return kPhases[static_cast<size_t>(phase)];
}

bool MayChangeTokens(const Cell& cell) {
  return cell.fault == Fault::kPlainFlips && cell.target == Target::kClientLink;
}

std::string ToString(const Cell& cell) {
  return absl::StrCat(
      Name(cell.target), "/", Name(cell.fault), "/", Name(cell.phase));
}

absl::StatusOr<Cell> ParseCell(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() != 3) {
    return absl::InvalidArgumentError("--cell: is TARGET/FAULT/PHASE");
  }
  const absl::StatusOr<Target> target =
      Find<Target>(kTargets, parts[0], "target");
  if (!target.ok()) return target.status();
  const absl::StatusOr<Fault> fault = Find<Fault>(kFaults, parts[1], "fault");
  if (!fault.ok()) return fault.status();
  const absl::StatusOr<Phase> phase = Find<Phase>(kPhases, parts[2], "phase");
  if (!phase.ok()) return phase.status();
  const Cell cell = {*target, *fault, *phase};
  if (IsLink(cell.target) != (cell.fault >= Fault::kDelay)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cell: ", Name(cell.fault), " cannot strike a ", Name(cell.target)));
  }
  return cell;
}

std::optional<std::string> WhyNot(const Cell& cell) {
  for (const Excluded& excluded : ExcludedCells()) {
    if (excluded.Covers(cell)) return std::string(excluded.why);
  }
  return std::nullopt;
}

std::vector<LeftOut> AllLeftOut() {
  const auto name = [](const auto& part) {
    return part.has_value() ? Name(*part) : absl::string_view("*");
  };
  std::vector<LeftOut> all;
  for (const Excluded& excluded : ExcludedCells()) {
    all.push_back({absl::StrCat(name(excluded.target),
                                "/",
                                name(excluded.fault),
                                "/",
                                name(excluded.phase)),
                   std::string(excluded.why)});
  }
  return all;
}

std::vector<Cell> EveryCell() {
  std::vector<Cell> cells;
  for (size_t target = 0; target < kTargets.size(); ++target) {
    for (size_t fault = 0; fault < kFaults.size(); ++fault) {
      for (size_t phase = 0; phase < kPhases.size(); ++phase) {
        const Cell cell = {static_cast<Target>(target),
                           static_cast<Fault>(fault),
                           static_cast<Phase>(phase)};
        if (IsLink(cell.target) == (cell.fault >= Fault::kDelay)) {
          cells.push_back(cell);
        }
      }
    }
  }
  return cells;
}

std::vector<Cell> AllCells() {
  std::vector<Cell> cells = EveryCell();
  std::erase_if(cells,
                [](const Cell& cell) { return WhyNot(cell).has_value(); });
  return cells;
}

std::vector<Cell> PairwiseCells(uint64_t seed) {
  std::vector<Cell> left = AllCells();
  std::mt19937_64 random(seed);
  std::shuffle(left.begin(), left.end(), random);
  std::set<std::pair<int, int>> open;
  for (const Cell& cell : left) {
    for (const auto& pair : PairsOf(cell)) open.insert(pair);
  }
  const auto gain = [&open](const Cell& cell) {
    const auto pairs = PairsOf(cell);
    return std::count_if(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return open.contains(pair);
    });
  };
  // Greedily: each is one of those that cover the most that is still open.
  std::vector<Cell> chosen;
  while (!open.empty()) {
    const auto best = std::max_element(
        left.begin(), left.end(), [&](const Cell& a, const Cell& b) {
          return gain(a) < gain(b);
        });
    for (const auto& pair : PairsOf(*best)) open.erase(pair);
    chosen.push_back(*best);
    left.erase(best);
  }
  return chosen;
}

}  // namespace specwire::faults
