// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_sweep.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/bench/dataset.h"
#include "cli/bench/plot.h"
#include "cli/bench/sweep.h"
#include "cli/bench/sweep_report.h"
#include "cli/bench/sweep_result.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/supervisor.h"
#include "cli/up_flags.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

// Requests of each mode at each point, unless --num says otherwise: each of six
// groups of questions twice.
constexpr int64_t kDefaultRequests = 12;

constexpr char kGroup[] = "With --sweep";

// What the sweep decides itself, or has no use for.
constexpr const char* kExcluded[] = {"--modes",
                                     "--drafter",
                                     "--temperature",
                                     "--max_draft_tokens",
                                     "--patience_us",
                                     "--window",
                                     "--rate",
                                     "--burstiness",
                                     "--max_concurrency",
                                     "--duration",
                                     "--deadline_ms",
                                     "--goodput",
                                     "--raw"};

// All that the flags name, ready to run.
struct PreparedSweep {
  bench::SweepOptions grid;
  bench::Options options;
  UpOptions up;
  std::vector<bench::Question> questions;
  std::ofstream svg;
};

absl::StatusOr<PreparedSweep> Prepare(const SweepFlags& flags,
                                      const bench::Options& options) {
  PreparedSweep sweep;
  SPECWIRE_ASSIGN_OR_RETURN(sweep.grid, bench::ParseSweep(flags.texts));
  sweep.options = options;
  if (!sweep.options.num) sweep.options.num = kDefaultRequests;
  SPECWIRE_RETURN_IF_ERROR(bench::CheckOptions(sweep.options));
  sweep.up = flags.up;
  // Requests need no name: one model is served.
  sweep.up.model = std::exchange(sweep.options.model, "");
  SPECWIRE_ASSIGN_OR_RETURN(sweep.questions,
                            bench::ReadQuestionFile(options.dataset));
  sweep.questions = bench::TakeTurns(sweep.questions);
  if (!flags.svg.empty()) {
    sweep.svg.open(flags.svg, std::ios::out | std::ios::trunc);
    if (!sweep.svg) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--svg: cannot write ", flags.svg, ": ", std::strerror(errno)));
    }
  }
  return sweep;
}

void AddGridFlags(CLI::App* command, SweepFlags* flags) {
  bench::SweepTexts* texts = &flags->texts;
  command
      ->add_option("--sweep_drafters",
                   texts->drafters,
                   "Drafters, with commas; each has a cluster of its own at "
                   "each temperature; 'local' is the verifier's own, without "
                   "a draft node")
      ->capture_default_str();
  command
      ->add_option("--sweep_temperatures", texts->temperatures, "Temperatures")
      ->capture_default_str();
  command
      ->add_option("--sweep_round_trips",
                   texts->round_trips,
                   "What a round trip takes longer, in plain steps, which are "
                   "measured first; half of it in each direction")
      ->capture_default_str();
  command
      ->add_option("--sweep_run_lengths",
                   texts->run_lengths,
                   "Draft tokens in a proposal, in lock-step; auto is the "
                   "coordinator's choice of that and of who drafts")
      ->capture_default_str();
  command
      ->add_option("--sweep_link",
                   texts->link,
                   "Where the round trips lie: from the coordinator to the "
                   "draft node, to the verifier, or half on both")
      ->capture_default_str();
  command
      ->add_option("--sweep_jitter",
                   texts->jitter,
                   "Jitter of each direction, from 0 to so many of its delays")
      ->capture_default_str();
  command->add_option(
      "--svg", flags->svg, "Plots speed-ups into this file, as SVG");
  command
      ->add_option("--ready_timeout_s",
                   flags->ready_timeout_s,
                   "Give up if a cluster is not ready by then")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

}  // namespace

void AddSweepFlags(CLI::App* command, SweepFlags* flags) {
  CLI::Option* const sweep = command->add_flag(
      "--sweep",
      flags->sweep,
      "Starts clusters of its own on this machine, with the file --model, and "
      "measures the speed-up over run lengths, drafters, temperatures and "
      "round trips, beside what the parts of each should give");
  for (const char* name : kExcluded) {
    sweep->excludes(command->get_option(name));
  }
  const std::vector<CLI::Option*> before = command->get_options();
  AddGridFlags(command, flags);
  // That the nodes of an ended cluster lose each other is no news.
  flags->up.log_level = "error";
  AddNodeFlags(command, &flags->up);
  const std::vector<CLI::Option*> all = command->get_options();
  for (size_t i = before.size(); i < all.size(); ++i) {
    all[i]->needs(sweep);
    all[i]->group(kGroup);
  }
  sweep->group(kGroup);
}

int RunBenchSweep(const SweepFlags& flags,
                  const bench::Options& options,
                  bool json) {
  BlockSupervisorSignals();
  absl::StatusOr<PreparedSweep> prepared = Prepare(flags, options);
  if (!prepared.ok()) return FailUsage(prepared.status());
  const bench::Sweep sweep =
      bench::RunSweep(prepared->grid,
                      prepared->options,
                      prepared->questions,
                      prepared->up,
                      absl::Seconds(flags.ready_timeout_s));
  if (sweep.clusters.empty() && !sweep.status.ok()) {
    PrintError(sweep.status.message());
    return absl::IsInvalidArgument(sweep.status) ? kExitUsage : kExitFailed;
  }
  const std::string text =
      json ? DumpJson(
                 bench::SweepJson(sweep, prepared->options, prepared->grid)) +
                 "\n"
           : bench::SweepText(sweep);
  std::fputs(text.c_str(), stdout);
  if (prepared->svg.is_open()) {
    prepared->svg << bench::PlotsSvg(bench::SweepPlots(sweep, prepared->grid));
    prepared->svg.close();
    if (prepared->svg.fail()) {
      PrintError(absl::StrCat("--svg: cannot write ", flags.svg));
      return kExitFailed;
    }
  }
  const int written = FinishOutput();
  if (written != kExitDone) return written;
  if (sweep.interrupted) return kExitInterrupted;
  return sweep.HasFaults() || !sweep.status.ok() ? kExitFailed : kExitDone;
}

}  // namespace specwire::cli
