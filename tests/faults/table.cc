// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire::faults {

std::string Summary(const std::vector<Outcome>& outcomes, uint64_t seed) {
  Verdict sum;
  int survived = 0;
  for (const Outcome& outcome : outcomes) {
    survived += outcome.verdict.ok() ? 1 : 0;
    sum.wrong += outcome.verdict.wrong;
    sum.lost += outcome.verdict.lost;
    sum.doubled += outcome.verdict.doubled;
    sum.hung += outcome.verdict.hung;
    sum.blocks += outcome.verdict.blocks;
    sum.sequences += outcome.verdict.sequences;
  }
  return absl::StrCat(survived,
                      " of ",
                      outcomes.size(),
                      " cells survived: wrong tokens ",
                      sum.wrong,
                      ", lost ",
                      sum.lost,
                      ", doubled ",
                      sum.doubled,
                      ", hung calls ",
                      sum.hung,
                      ", leaked blocks ",
                      sum.blocks,
                      ", sequences left ",
                      sum.sequences,
                      "; seed ",
                      seed);
}

std::string MakeTable(const std::vector<Outcome>& outcomes, uint64_t seed) {
  std::map<std::pair<Target, Fault>, std::map<Phase, bool>> rows;
  for (const Outcome& outcome : outcomes) {
    rows[{outcome.cell.target, outcome.cell.fault}][outcome.cell.phase] =
        outcome.verdict.ok();
  }
  std::string text =
      absl::StrCat(Summary(outcomes, seed), ".\n\n| target | fault |");
  std::string rule = "| --- | --- |";
  for (int phase = 0; phase <= static_cast<int>(Phase::kRecovery); ++phase) {
    absl::StrAppend(&text, " ", Name(static_cast<Phase>(phase)), " |");
    absl::StrAppend(&rule, " --- |");
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  for (const auto& [key, phases] : rows) {
    absl::StrAppend(
        &text, "| ", Name(key.first), " | ", Name(key.second), " |");
    for (int i = 0; i <= static_cast<int>(Phase::kRecovery); ++i) {
      const auto found = phases.find(static_cast<Phase>(i));
      absl::StrAppend(&text,
                      found == phases.end() ? " – |"
                      : found->second       ? " ok |"
                                            : " FAILED |");
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "\nNot run (–):\n");
  for (const LeftOut& cells : AllLeftOut()) {
    absl::StrAppend(&text, "- ", cells.pattern, ": ", cells.why, "\n");
  }
  return text;
}

}  // namespace specwire::faults
