// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/speedup_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "cli/bench/statistics.h"

namespace specwire::cli::bench {
namespace {

// A line through fewer points says nothing about them.
constexpr size_t kTellingRuns = 3;

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

FixedRun MakeFixedRun(const Figures& speculative, int run_length, bool waits) {
  const v1::SpeculationStats& stats = speculative.speculation;
  FixedRun run;
  run.run_length = run_length;
  run.waits = waits;
  run.answered =
      std::min(1.0,
               Share(stats.num_spec_steps(),
                     stats.num_passes() - speculative.num_completed));
  run.offered = Share(stats.num_draft_tokens(), stats.num_spec_steps());
  run.survival = SurvivalOf(stats);
  run.survival.resize(static_cast<size_t>(run_length));
  return run;
}

DraftLoop MeasureLoop(const PassCosts& costs,
                      double draft_token,
                      const std::vector<TimedRun>& runs) {
  // By run length, of a round of each request: draft tokens, and what it takes
  // beside a plain round, the rows of its pass and the way on purpose.
  std::map<int, std::pair<std::vector<double>, std::vector<double>>> lengths;
  for (const TimedRun& timed : runs) {
    const FixedRun& run = timed.run;
    if (!run.waits) continue;
    auto& [tokens, times] = lengths[run.run_length];
    tokens.push_back(run.answered * run.offered);
    times.push_back(timed.round_time - 1 - timed.round_trip -
                    run.answered * (costs.At(1 + run.offered) - 1));
  }
  std::vector<double> tokens;
  std::vector<double> times;
  for (auto& [_, requests] : lengths) {
    tokens.push_back(Median(std::move(requests.first)));
    times.push_back(Median(std::move(requests.second)));
  }
  DraftLoop loop{draft_token, 0};
  if (tokens.empty()) return loop;
  const double count = static_cast<double>(tokens.size());
  const double mean_tokens =
      std::accumulate(tokens.begin(), tokens.end(), 0.0) / count;
  const double mean_time =
      std::accumulate(times.begin(), times.end(), 0.0) / count;
  double together = 0;
  double square = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    together += (tokens[i] - mean_tokens) * (times[i] - mean_time);
    square += (tokens[i] - mean_tokens) * (tokens[i] - mean_tokens);
  }
  if (tokens.size() >= kTellingRuns && square > 0) {
    loop.draft_token = std::clamp(together / square, 0.0, 2 * draft_token);
  }
  loop.base = std::max(mean_time - loop.draft_token * mean_tokens, 0.0);
  return loop;
}

SpeedupModel::SpeedupModel(PassCosts costs,
                           DraftLoop loop,
                           std::vector<FixedRun> runs)
    : costs_(std::move(costs)), loop_(loop), runs_(std::move(runs)) {
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
  const FixedRun& run = RunFor(k);
  const double offered = Offered(k);
  const double rows = run.answered * (costs_.At(1 + offered) - 1);
  if (!run.waits) return 1 + rows;
  return 1 + loop_.base + round_trip + rows +
         run.answered * loop_.draft_token * offered;
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
