// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/costs.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace specwire::simulate {

absl::StatusOr<VerifyCosts> VerifyCosts::Parse(absl::string_view text) {
  VerifyCosts costs;
  costs.table_.clear();
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits(':', 1));
    int rows = 0;
    double time = 0;
    const bool numbers = absl::SimpleAtoi(parts.first, &rows) &&
                         absl::SimpleAtod(parts.second, &time) &&
                         std::isfinite(time) && time > 0;
    const bool rises = costs.table_.empty()
                           ? rows == 1
                           : rows > costs.table_.back().first &&
                                 time >= costs.table_.back().second;
    if (!numbers || !rises) {
      return absl::InvalidArgumentError(
          absl::StrCat("'",
                       entry,
                       "' in '",
                       text,
                       "': wanted are ROWS:TIME pairs, rows rising from 1, "
                       "times above 0 and never falling"));
    }
    costs.table_.push_back({rows, time});
  }
  // In units of a pass of one row.
  const double one = costs.table_.front().second;
  for (auto& entry : costs.table_) entry.second /= one;
  return costs;
}

double VerifyCosts::operator()(int rows) const {
  size_t next = 1;
  while (next + 1 < table_.size() && table_[next].first < rows) ++next;
  if (table_.size() == 1) return table_[0].second;
  const auto& [rows_before, before] = table_[next - 1];
  const auto& [rows_after, after] = table_[next];
  return before +
         (after - before) * (rows - rows_before) / (rows_after - rows_before);
}

double ClosedFormSpeedup(int run_length,
                         double acceptance,
                         double token,
                         double round_trip,
                         const VerifyCosts& costs) {
  if (run_length == 0) return 1;
  const double tokens =
      (1 - std::pow(acceptance, run_length + 1)) / (1 - acceptance);
  return tokens / (run_length * token + costs(run_length + 1) + round_trip);
}

}  // namespace specwire::simulate
