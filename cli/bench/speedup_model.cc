// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/speedup_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"

namespace specwire::cli::bench {
namespace {

double Between(double x, double x0, double y0, double x1, double y1) {
  return x1 == x0 ? y0 : y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

// Of measurements at several contexts, ascending.
double AtContext(const std::map<double, double>& us_by_context,
                 double context_length) {
  const auto above = us_by_context.lower_bound(context_length);
  if (above == us_by_context.end()) return us_by_context.rbegin()->second;
  if (above == us_by_context.begin()) return above->second;
  const auto below = std::prev(above);
  return Between(
      context_length, below->first, below->second, above->first, above->second);
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

absl::StatusOr<PassCosts> PassCosts::Create(
    const std::vector<v1::StepCost>& costs, double context_length) {
  std::map<int, std::map<double, double>> by_rows;
  for (const v1::StepCost& cost : costs) {
    if (cost.num_rows() < 1 || cost.duration_us() <= 0) continue;
    by_rows[cost.num_rows()][cost.context_length()] =
        static_cast<double>(cost.duration_us());
  }
  PassCosts result;
  for (const auto& [rows, us_by_context] : by_rows) {
    result.points_.push_back(
        {static_cast<double>(rows), AtContext(us_by_context, context_length)});
  }
  for (size_t i = result.points_.size(); i > 1; --i) {
    Point& fewer = result.points_[i - 2];
    fewer.us = std::min(fewer.us, result.points_[i - 1].us);
  }
  if (result.points_.empty() || result.points_.front().rows != 1) {
    return absl::FailedPreconditionError(
        "the verifier tells no cost of a pass of one row");
  }
  return result;
}

double PassCosts::At(double rows) const {
  if (points_.size() == 1) return 1;
  size_t above = 1;
  while (above + 1 < points_.size() && points_[above].rows < rows) ++above;
  const Point& low = points_[above - 1];
  const Point& high = points_[above];
  return Between(rows, low.rows, low.us, high.rows, high.us) / plain_us();
}

std::vector<double> SurvivalOf(const v1::SpeculationStats& stats) {
  std::vector<double> survival;
  int64_t at_least = 0;
  for (int j = stats.acceptance_histogram_size() - 1; j >= 1; --j) {
    at_least += stats.acceptance_histogram(j);
    survival.push_back(Share(at_least, stats.num_spec_steps()));
  }
  std::reverse(survival.begin(), survival.end());
  return survival;
}

FixedRun MakeFixedRun(const Figures& speculative, int run_length) {
  const v1::SpeculationStats& stats = speculative.speculation;
  FixedRun run;
  run.run_length = run_length;
  run.answered =
      std::min(1.0,
               Share(stats.num_spec_steps(),
                     stats.num_passes() - speculative.num_completed));
  run.offered = Share(stats.num_draft_tokens(), stats.num_spec_steps());
  run.survival = SurvivalOf(stats);
  run.survival.resize(static_cast<size_t>(run_length));
  return run;
}

SpeedupModel::SpeedupModel(PassCosts costs,
                           double draft_token,
                           std::vector<FixedRun> runs)
    : costs_(std::move(costs)),
      draft_token_(draft_token),
      runs_(std::move(runs)) {
  std::sort(runs_.begin(), runs_.end(), [](const auto& a, const auto& b) {
    return a.run_length < b.run_length;
  });
}

int SpeedupModel::longest() const {
  return runs_.empty() ? 0 : runs_.back().run_length;
}

const FixedRun& SpeedupModel::RunFor(int k) const {
  return *std::find_if(runs_.begin(), runs_.end(), [k](const FixedRun& run) {
    return run.run_length >= k;
  });
}

double SpeedupModel::Offered(int k) const {
  double below_k = 0;
  double below_m = 0;
  for (const FixedRun& run : runs_) {
    if (run.run_length >= k) {
      return Between(k, below_k, below_m, run.run_length, run.offered);
    }
    below_k = run.run_length;
    below_m = run.offered;
  }
  return below_m;
}

double SpeedupModel::TokensPerRound(int k) const {
  const FixedRun& run = RunFor(k);
  double accepted = 0;
  for (int i = 0; i < k; ++i) {
    accepted += run.survival[static_cast<size_t>(i)];
  }
  return 1 + run.answered * accepted;
}

double SpeedupModel::RoundTime(int k, double round_trip) const {
  const double offered = Offered(k);
  return 1 + round_trip +
         RunFor(k).answered *
             (draft_token_ * offered + costs_.At(1 + offered) - 1);
}

double SpeedupModel::Speedup(int k, double round_trip) const {
  return TokensPerRound(k) / RoundTime(k, round_trip);
}

SpeedupModel::Best SpeedupModel::BestAt(double round_trip) const {
  Best best;
  for (int k = 1; k <= longest(); ++k) {
    const double speedup = Speedup(k, round_trip);
    if (speedup > best.speedup) best = {k, speedup};
  }
  return best;
}

}  // namespace specwire::cli::bench
