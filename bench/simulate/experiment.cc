// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/experiment.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/simulate/random.h"
#include "common/base/status_macros.h"

namespace specwire::simulate {
namespace {

std::vector<size_t> MakeOrder(size_t num_traces, int repeats, uint64_t seed) {
  Random random(seed);
  std::vector<size_t> order;
  for (int i = 0; i < repeats; ++i) {
    std::vector<size_t> round(num_traces);
    std::iota(round.begin(), round.end(), size_t{0});
    for (size_t j = round.size(); j > 1; --j) {
      std::swap(round[j - 1], round[random.Next() % j]);
    }
    order.insert(order.end(), round.begin(), round.end());
  }
  return order;
}

void Add(const RequestResult& result, Tally* tally) {
  *tally += {.num_tokens = result.num_tokens,
             .time = result.duration(),
             .figures = result.figures,
             .predicted = result.figures.predicted_speedup *
                          absl::ToDoubleSeconds(result.duration())};
}

// Groups that are run apart: all, or one for each category.
std::vector<std::vector<Trace>> Groups(const std::vector<Trace>& traces,
                                       bool mixed) {
  if (mixed) return {traces};
  std::map<std::string, std::vector<Trace>> groups;
  for (const Trace& trace : traces) groups[trace.category].push_back(trace);
  std::vector<std::vector<Trace>> result;
  for (auto& [category, group] : groups) result.push_back(std::move(group));
  return result;
}

// By category; over all as the sum of what was run apart.
absl::StatusOr<std::map<std::string, Tally>> RunGroups(
    const Settings& settings,
    const std::vector<std::vector<Trace>>& groups,
    int repeats) {
  std::map<std::string, Tally> tallies;
  for (const std::vector<Trace>& group : groups) {
    SPECWIRE_ASSIGN_OR_RETURN(const auto part,
                              RunAll(settings, group, repeats));
    for (const auto& [name, tally] : part) {
      tallies[name] += tally;
    }
  }
  return tallies;
}

// When the request had that many tokens, as if those of a pass came evenly.
absl::Time TimeOf(const RequestResult& result, int64_t count) {
  absl::Time before = result.start;
  int64_t count_before = 0;
  for (const auto& [at, so_far] : result.progress) {
    if (so_far >= count) {
      const double part = static_cast<double>(count - count_before) /
                          static_cast<double>(so_far - count_before);
      return before + part * (at - before);
    }
    before = at;
    count_before = so_far;
  }
  return before;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  num_tokens += other.num_tokens;
  time += other.time;
  predicted += other.predicted;
  figures.num_passes += other.figures.num_passes;
  figures.num_draft_tokens += other.figures.num_draft_tokens;
  figures.num_accepted_draft_tokens += other.figures.num_accepted_draft_tokens;
  figures.num_local_draft_tokens += other.figures.num_local_draft_tokens;
  return *this;
}

double Tally::predicted_speedup() const {
  return predicted / absl::ToDoubleSeconds(time);
}

double Tally::rate() const {
  return static_cast<double>(num_tokens) / absl::ToDoubleSeconds(time);
}

double Tally::tokens_per_pass() const {
  return static_cast<double>(num_tokens) /
         static_cast<double>(figures.num_passes);
}

absl::StatusOr<std::map<std::string, Tally>> RunAll(
    const Settings& settings, const std::vector<Trace>& traces, int repeats) {
  const std::vector<size_t> order =
      MakeOrder(traces.size(), repeats, settings.seed);
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<RequestResult> results,
                            Simulate(settings, traces, order));
  std::map<std::string, Tally> tallies;
  for (const RequestResult& result : results) {
    Add(result, &tallies[traces[result.trace].category]);
    Add(result, &tallies[kAllCategories]);
  }
  return tallies;
}

std::vector<Policy> FixedPolicies(const std::vector<int>& run_lengths,
                                  bool local) {
  std::vector<Policy> policies = {{.kind = Policy::Kind::kPlain}};
  for (const int run_length : run_lengths) {
    if (run_length < 1) continue;
    for (const int window : {run_length, 2 * run_length}) {
      for (const absl::Duration patience :
           {absl::ZeroDuration(), absl::InfiniteDuration()}) {
        policies.push_back({.kind = Policy::Kind::kFixed,
                            .run_length = run_length,
                            .window = window,
                            .patience = patience,
                            .local_run_length = 0});
      }
    }
    if (local) {
      policies.push_back({.kind = Policy::Kind::kFixed,
                          .run_length = run_length,
                          .window = run_length,
                          .patience = absl::ZeroDuration(),
                          .draft_nodes = false,
                          .local_run_length = run_length});
    }
  }
  return policies;
}

std::string Describe(const Policy& policy) {
  if (policy.kind == Policy::Kind::kPlain) return "plain";
  if (!policy.draft_nodes) return absl::StrCat(policy.run_length, " local");
  return absl::StrCat(policy.run_length,
                      "/",
                      policy.window,
                      policy.patience == absl::ZeroDuration() ? " taking"
                      : policy.patience == absl::InfiniteDuration()
                          ? " waiting"
                          : " patient");
}

absl::StatusOr<std::map<std::string, Comparison>> CompareWithFixed(
    const Settings& settings,
    const std::vector<Trace>& traces,
    const std::vector<Policy>& fixed,
    int repeats,
    bool mixed) {
  const std::vector<std::vector<Trace>> groups = Groups(traces, mixed);
  const auto run = [&](const Policy& policy) {
    Settings with = settings;
    with.policy = policy;
    return RunGroups(with, groups, repeats);
  };
  SPECWIRE_ASSIGN_OR_RETURN(const auto plain,
                            run({.kind = Policy::Kind::kPlain}));
  SPECWIRE_ASSIGN_OR_RETURN(const auto adaptive, run(settings.policy));
  std::map<std::string, Comparison> comparisons;
  for (const auto& [name, tally] : adaptive) {
    Comparison& comparison = comparisons[name];
    comparison.adaptive = tally.rate() / plain.at(name).rate();
    comparison.tokens_per_pass = tally.tokens_per_pass();
    comparison.predicted = tally.predicted_speedup();
    const auto& figures = tally.figures;
    const auto drafted =
        static_cast<double>(std::max<int64_t>(figures.num_draft_tokens, 1));
    comparison.acceptance =
        static_cast<double>(figures.num_accepted_draft_tokens) / drafted;
    comparison.local =
        static_cast<double>(figures.num_local_draft_tokens) / drafted;
  }
  for (const Policy& policy : fixed) {
    SPECWIRE_ASSIGN_OR_RETURN(const auto tallies, run(policy));
    for (auto& [name, comparison] : comparisons) {
      const double speedup = tallies.at(name).rate() / plain.at(name).rate();
      comparison.fixed.push_back(speedup);
      if (speedup > comparison.best_fixed) {
        comparison.best_fixed = speedup;
        comparison.best = policy;
      }
    }
  }
  return comparisons;
}

Trace SwitchTrace(const std::vector<Trace>& good,
                  const std::vector<Trace>& bad,
                  int segment) {
  const std::vector<Trace> segments = {JoinTraces(good, segment),
                                       JoinTraces(bad, segment),
                                       JoinTraces(good, segment)};
  return JoinTraces(segments, 3 * segment);
}

double SpeedupBetween(const RequestResult& result,
                      absl::Duration plain,
                      int64_t begin,
                      int64_t end) {
  return absl::FDivDuration(static_cast<double>(end - begin) * plain,
                            TimeOf(result, end) - TimeOf(result, begin));
}

}  // namespace specwire::simulate
