// SPDX-License-Identifier: Apache-2.0
// What speculation control makes of recorded accept traces, in virtual time,
// against fixed settings in hindsight; see docs/performance.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/simulate/experiment.h"

namespace specwire::simulate {
namespace {

struct Flags {
  std::vector<std::string> traces;
  std::vector<std::string> local_traces;
  double constant = -1;
  int constant_run = kMaxTracedRun;
  int tokens = 2000;
  std::string switch_to;
  int segment = 400;
  int window = 50;

  double plain_ms = 2.5;
  std::string verify;
  DraftCosts draft;
  std::vector<double> verifier_rtt_ms = {0.3};
  std::vector<double> drafter_rtt_ms = {0.3};
  double jitter_ms = 0;
  std::vector<int> verifiers = {1};
  int draft_nodes = 0;
  int concurrency = 1;

  int run_length = 4;
  int max_window = 8;
  double patience_ms = 10;
  bool no_priors = false;

  std::vector<int> grid = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
  int repeats = 4;
  uint64_t seed = 1;
  bool mixed = false;
  bool show_grid = false;
  bool json = false;
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T Get(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

void AddTraceFlags(CLI::App* app, Flags* flags) {
  app->add_option("--traces", flags->traces, "Files of accept traces");
  app->add_option("--local_traces",
                  flags->local_traces,
                  "Files of a lookup's accept traces of the same texts: what "
                  "the verifier looks up for itself");
  app->add_option("--constant",
                  flags->constant,
                  "Instead: each draft token is right with this chance")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--constant_run", flags->constant_run, "Its longest run")
      ->check(CLI::Range(1, kMaxTracedRun));
  app->add_option("--tokens", flags->tokens, "Its tokens")
      ->check(CLI::Range(1, kMaxTracedTokens));
  app->add_option("--switch_to",
                  flags->switch_to,
                  "A file of traces, or 'random': the drafter becomes like "
                  "that for a segment, and then itself again");
  app->add_option("--segment", flags->segment, "Tokens of a segment")
      ->check(CLI::Range(1, kMaxTracedTokens / 3));
  app->add_option("--report_window", flags->window, "Tokens in one figure")
      ->check(CLI::PositiveNumber);
}

void AddClusterFlags(CLI::App* app, Flags* flags) {
  app->add_option("--plain_ms", flags->plain_ms, "A pass of one row")
      ->check(CLI::PositiveNumber);
  app->add_option("--verify",
                  flags->verify,
                  "Time of a pass by rows, as in 1:1,5:1.27,8:1.53,16:2.5");
  app->add_option("--draft_cost",
                  flags->draft.token,
                  "A model's draft token, in plain passes")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--proposal_cost",
                  flags->draft.run,
                  "What each proposal costs on top, in plain passes")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--verifier_rtt_ms",
                  flags->verifier_rtt_ms,
                  "Round trips from coordinator to verifier")
      ->delimiter(',');
  app->add_option("--drafter_rtt_ms",
                  flags->drafter_rtt_ms,
                  "Round trips from coordinator to draft node")
      ->delimiter(',');
  app->add_option("--jitter_ms",
                  flags->jitter_ms,
                  "Mean delay of a message on top of that")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--verifiers", flags->verifiers, "Verifier nodes")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app->add_option("--draft_nodes",
                  flags->draft_nodes,
                  "Draft nodes; 0: as many as verifiers");
  app->add_option(
         "--concurrency", flags->concurrency, "Requests for each verifier")
      ->check(CLI::Range(1, 256));
}

void AddRunFlags(CLI::App* app, Flags* flags) {
  app->add_option("--run_length",
                  flags->run_length,
                  "Adaptive requests: run_length of the request");
  app->add_option("--window", flags->max_window, "Its window");
  app->add_option("--patience_ms", flags->patience_ms, "Its patience");
  app->add_flag("--no_priors",
                flags->no_priors,
                "Each request starts without what others have learnt");
  app->add_option("--grid", flags->grid, "Run lengths of fixed settings")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxRunLength));
  app->add_option("--repeats", flags->repeats, "Times that each trace is run")
      ->check(CLI::PositiveNumber);
  app->add_option("--seed", flags->seed, "Of order and jitter");
  app->add_flag("--mixed",
                flags->mixed,
                "All categories in one run, not one run for each");
  app->add_flag("--show_grid", flags->show_grid, "Print every fixed setting");
  app->add_flag("--json", flags->json, "Print JSON lines");
}

std::vector<Trace> ReadAll(const std::vector<std::string>& paths) {
  std::vector<Trace> traces;
  for (const std::string& path : paths) {
    for (Trace& trace : Get(ReadTraceFile(path))) {
      traces.push_back(std::move(trace));
    }
  }
  return traces;
}

std::vector<Trace> GetTraces(const Flags& flags) {
  if (flags.constant >= 0) {
    return {ConstantTrace(
        flags.constant, flags.constant_run, flags.tokens, flags.seed)};
  }
  if (flags.traces.empty()) {
    Fail(absl::InvalidArgumentError("--traces or --constant is needed"));
  }
  std::vector<Trace> traces = ReadAll(flags.traces);
  if (!flags.local_traces.empty()) {
    const absl::Status added =
        AddLocalTraces(ReadAll(flags.local_traces), &traces);
    if (!added.ok()) Fail(added);
  }
  return traces;
}

// The settings of each combination of the flags that take several values.
std::vector<Settings> AllSettings(const Flags& flags) {
  Settings settings;
  settings.plain = absl::Milliseconds(flags.plain_ms);
  if (!flags.verify.empty()) {
    settings.verify = Get(VerifyCosts::Parse(flags.verify));
  }
  settings.draft = flags.draft;
  settings.seed = flags.seed;
  settings.priors = !flags.no_priors;
  settings.policy = {.kind = Policy::Kind::kAdaptive,
                     .run_length = flags.run_length,
                     .window = flags.max_window,
                     .patience = absl::Milliseconds(flags.patience_ms)};
  settings.verifier_link.jitter = settings.drafter_link.jitter =
      absl::Milliseconds(flags.jitter_ms);
  std::vector<Settings> all;
  for (const int verifiers : flags.verifiers) {
    settings.num_verifiers = verifiers;
    settings.num_draft_nodes =
        flags.draft_nodes > 0 ? flags.draft_nodes : verifiers;
    settings.concurrency = verifiers * flags.concurrency;
    for (const double verifier_rtt : flags.verifier_rtt_ms) {
      settings.verifier_link.one_way = absl::Milliseconds(verifier_rtt / 2);
      for (const double drafter_rtt : flags.drafter_rtt_ms) {
        settings.drafter_link.one_way = absl::Milliseconds(drafter_rtt / 2);
        all.push_back(settings);
      }
    }
  }
  return all;
}

std::string Describe(const Settings& settings) {
  return absl::StrFormat(
      "%d verifiers, %d requests at once, round trips %g ms to the verifier, "
      "%g ms to the drafter",
      settings.num_verifiers,
      settings.concurrency,
      2 * absl::ToDoubleMilliseconds(settings.verifier_link.one_way),
      2 * absl::ToDoubleMilliseconds(settings.drafter_link.one_way));
}

nlohmann::ordered_json ToJson(const Settings& settings) {
  return {{"verifiers", settings.num_verifiers},
          {"requests_at_once", settings.concurrency},
          {"verifier_rtt_ms",
           2 * absl::ToDoubleMilliseconds(settings.verifier_link.one_way)},
          {"drafter_rtt_ms",
           2 * absl::ToDoubleMilliseconds(settings.drafter_link.one_way)}};
}

void PrintRow(const std::string& category, const Comparison& comparison) {
  std::printf("%-16s %8.3f %9.3f %11.3f %-12s %8.3f %12.2f %9.2f %6.2f\n",
              category.c_str(),
              comparison.adaptive,
              comparison.predicted,
              comparison.best_fixed,
              Describe(comparison.best).c_str(),
              comparison.regret(),
              comparison.tokens_per_pass,
              comparison.acceptance,
              comparison.local);
}

void PrintJson(const Settings& settings,
               const std::string& category,
               const Comparison& comparison,
               const std::vector<Policy>& fixed) {
  nlohmann::ordered_json json = ToJson(settings);
  json["category"] = category;
  json["adaptive"] = comparison.adaptive;
  json["predicted"] = comparison.predicted;
  json["best_fixed"] = comparison.best_fixed;
  json["best"] = Describe(comparison.best);
  json["control"] = comparison.regret();
  json["tokens_per_pass"] = comparison.tokens_per_pass;
  json["acceptance"] = comparison.acceptance;
  json["local"] = comparison.local;
  for (size_t i = 0; i < fixed.size(); ++i) {
    json["fixed"][Describe(fixed[i])] = comparison.fixed[i];
  }
  std::printf("%s\n", json.dump().c_str());
}

void PrintGrid(const std::map<std::string, Comparison>& comparisons,
               const std::vector<Policy>& fixed) {
  std::printf("\n%-16s", "fixed");
  for (const auto& [category, comparison] : comparisons) {
    std::printf(" %14s", category.substr(0, 14).c_str());
  }
  for (size_t i = 0; i < fixed.size(); ++i) {
    std::printf("\n%-16s", Describe(fixed[i]).c_str());
    for (const auto& [category, comparison] : comparisons) {
      std::printf(" %14.3f", comparison.fixed[i]);
    }
  }
  std::printf("\n");
}

void PrintComparisons(const Flags& flags,
                      const Settings& settings,
                      const std::vector<Trace>& traces) {
  const std::vector<Policy> fixed =
      FixedPolicies(flags.grid, !flags.local_traces.empty());
  const std::map<std::string, Comparison> comparisons = Get(
      CompareWithFixed(settings, traces, fixed, flags.repeats, flags.mixed));
  if (flags.json) {
    for (const auto& [category, comparison] : comparisons) {
      PrintJson(settings, category, comparison, fixed);
    }
    return;
  }
  std::printf("%s\n%-16s %8s %9s %11s %-12s %8s %12s %9s %6s\n",
              Describe(settings).c_str(),
              "category",
              "adaptive",
              "predicted",
              "best fixed",
              "",
              "control",
              "tokens/pass",
              "accepted",
              "local");
  for (const auto& [category, comparison] : comparisons) {
    PrintRow(category, comparison);
  }
  if (flags.show_grid) PrintGrid(comparisons, fixed);
}

RequestResult RunOne(Settings settings,
                     const Policy& policy,
                     const std::vector<Trace>& trace) {
  settings.policy = policy;
  return Get(Simulate(settings, trace, std::vector<size_t>{0}))[0];
}

void PrintSwitch(const Flags& flags,
                 const Settings& settings,
                 const std::vector<Trace>& good) {
  const std::vector<Trace> bad =
      flags.switch_to == "random"
          ? std::vector<Trace>{ConstantTrace(
                0, kMaxTracedRun, flags.segment, flags.seed)}
          : Get(ReadTraceFile(flags.switch_to));
  const std::vector<Trace> trace = {SwitchTrace(good, bad, flags.segment)};
  const RequestResult result = RunOne(settings, settings.policy, trace);
  std::printf("%s\n", Describe(settings).c_str());
  for (int64_t at = 0; at + flags.window <= result.num_tokens;
       at += flags.window) {
    std::printf("%8lld %8.3f\n",
                static_cast<long long>(at + flags.window),
                SpeedupBetween(result, settings.plain, at, at + flags.window));
  }
  std::vector<RequestResult> fixed;
  for (const Policy& policy : FixedPolicies(flags.grid)) {
    fixed.push_back(RunOne(settings, policy, trace));
  }
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t begin = i * flags.segment;
    const int64_t end = begin + flags.segment;
    double best = 0;
    for (const RequestResult& one : fixed) {
      best = std::max(best, SpeedupBetween(one, settings.plain, begin, end));
    }
    const double adaptive = SpeedupBetween(result, settings.plain, begin, end);
    std::printf("segment %lld: adaptive %.3f, best fixed %.3f, control %.3f\n",
                static_cast<long long>(i + 1),
                adaptive,
                best,
                adaptive / best);
  }
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Speculation in virtual time, by recorded accept traces");
  AddTraceFlags(&app, &flags);
  AddClusterFlags(&app, &flags);
  AddRunFlags(&app, &flags);
  CLI11_PARSE(app, argc, argv);
  const std::vector<Trace> traces = GetTraces(flags);
  for (const Settings& settings : AllSettings(flags)) {
    if (flags.switch_to.empty()) {
      PrintComparisons(flags, settings, traces);
    } else {
      PrintSwitch(flags, settings, traces);
    }
  }
  return 0;
}

}  // namespace
}  // namespace specwire::simulate

int main(int argc, char** argv) { return specwire::simulate::Main(argc, argv); }
