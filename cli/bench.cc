// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/bench/dataset.h"
#include "cli/bench/figures.h"
#include "cli/bench/options.h"
#include "cli/bench/report.h"
#include "cli/bench/runner.h"
#include "cli/bench_sweep.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/up_flags.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

// A connection carries more, but not many more.
constexpr int kStreamsPerConnection = 1000;

constexpr char kDefinitions[] =
    "Times count from the moment a request was meant to be sent. Time per "
    "further token: (last token - first token) / (tokens - 1) of each request, "
    "however many tokens a message brought. Tokens/s: tokens of completed "
    "requests by wall time, from the start of a block to its last end. "
    "With both modes the requests are cut into blocks, each of which is run in "
    "one mode and then in the other; the tail of a block, where some workers "
    "have nothing left to do, counts in both alike. Ratios are geometric means "
    "over these pairs (of tokens/s, and of the median time to first token), "
    "the interval is Student's t on their logarithms. Those of single streams "
    "are all tokens by all time of requests that completed in both modes, over "
    "the same of plain decoding; the interval is a bootstrap over requests. "
    "EXPECTED and MEASURED are means of what replies tell. With --sweep: IDEAL "
    "is the best speed-up that survival, draft time and pass times allow "
    "without any round trip, MODEL the same with the point's, ETA and ETA NET "
    "the share of them that was reached by decoding (SPEED-UP). Exit code 1: a "
    "request failed for another reason than load, or token ids differ.";

struct BenchFlags {
  ClientFlags client;
  bench::Options options;
  std::string modes = "plain,speculative";
  std::string goodput;
  std::string raw;
  bool json = false;
  SweepFlags sweep;
};

// All that the flags name, ready to run.
struct Bench {
  bench::Options options;
  std::vector<bench::Question> questions;
  std::optional<bench::RequestMaker> maker;
  std::ofstream raw;
};

absl::StatusOr<Bench> Prepare(const BenchFlags& flags) {
  Bench bench;
  bench.options = flags.options;
  SPECWIRE_ASSIGN_OR_RETURN(bench.options.modes,
                            bench::ParseModes(flags.modes));
  if (!flags.goodput.empty()) {
    SPECWIRE_ASSIGN_OR_RETURN(bench.options.limits,
                              bench::ParseLimits(flags.goodput));
  }
  SPECWIRE_RETURN_IF_ERROR(bench::CheckOptions(bench.options));
  SPECWIRE_RETURN_IF_ERROR(ParseCoordinators(flags.client).status());
  SPECWIRE_ASSIGN_OR_RETURN(bench.questions,
                            bench::ReadQuestionFile(bench.options.dataset));
  bench.questions = bench::TakeTurns(bench.questions);
  // Checks texts only; the questions move with the result.
  SPECWIRE_RETURN_IF_ERROR(
      bench::RequestMaker::Create(bench.options, nullptr).status());
  if (!flags.raw.empty()) {
    bench.raw.open(flags.raw, std::ios::out | std::ios::trunc);
    if (!bench.raw) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--raw: cannot write ", flags.raw, ": ", std::strerror(errno)));
    }
  }
  return bench;
}

// The coordinator of the first connection, as often as the streams need.
absl::StatusOr<std::vector<std::unique_ptr<Client>>> Connect(
    const BenchFlags& flags, int num_streams) {
  std::vector<std::unique_ptr<Client>> clients(1);
  SPECWIRE_ASSIGN_OR_RETURN(clients[0], Client::Connect(flags.client));
  while (static_cast<int>(clients.size()) * kStreamsPerConnection <
         num_streams) {
    SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                              Client::ConnectTo(clients[0]->address(),
                                                kConnectTimeout,
                                                clients[0]->channel_options()));
    clients.push_back(std::move(client));
  }
  return clients;
}

// False if the file cannot be written.
bool WriteRaw(const bench::RunResult& run, Bench* bench) {
  if (!bench->raw.is_open()) return true;
  for (const bench::Record& record : run.records) {
    bench->raw << DumpJson(bench::RecordJson(record,
                                             bench->questions[record.question]))
               << '\n';
  }
  bench->raw.close();
  return !bench->raw.fail();
}

int ExitCode(const bench::Report& report, const bench::RunResult& run) {
  if (run.interrupted) return kExitInterrupted;
  const bool differ = report.ids && !report.ids->equal();
  return report.HasFaults() || run.gave_up || differ ? kExitFailed : kExitDone;
}

int RunBench(const BenchFlags& flags) {
  absl::StatusOr<Bench> bench = Prepare(flags);
  if (!bench.ok()) return FailUsage(bench.status());
  const absl::StatusOr<std::vector<std::unique_ptr<Client>>> clients =
      Connect(flags, bench->options.max_in_flight());
  if (!clients.ok()) return FailConnect(clients.status());
  std::vector<bench::LoadGenerator::Stub*> stubs;
  for (const std::unique_ptr<Client>& client : *clients) {
    stubs.push_back(client->generation());
  }
  absl::StatusOr<bench::RequestMaker> maker =
      bench::RequestMaker::Create(bench->options, &bench->questions);
  if (!maker.ok()) return FailUsage(maker.status());
  const bench::RunResult run = bench::RunBlocks(
      bench->options, bench->questions, stubs, *std::move(maker));
  const bench::Report report =
      bench::MakeReport(run, bench->options, bench->questions);
  const std::string text =
      flags.json
          ? DumpJson(bench::ReportJson(
                report, run, bench->options, bench->questions)) +
                "\n"
          : bench::ReportText(report, run, bench->options, bench->questions);
  std::fputs(text.c_str(), stdout);
  if (!WriteRaw(run, &*bench)) {
    PrintError(absl::StrCat("--raw: cannot write ", flags.raw));
    return kExitFailed;
  }
  const int written = FinishOutput();
  return written != kExitDone ? written : ExitCode(report, run);
}

void AddLoadFlags(CLI::App* command, BenchFlags* flags) {
  bench::Options* options = &flags->options;
  command
      ->add_option("--dataset",
                   options->dataset,
                   "Questions, one JSON object a line: question_id, category, "
                   "turns; the first turn is asked")
      ->required();
  command->add_option("--num",
                      options->num,
                      "Requests of each mode; questions are asked again and "
                      "again, all categories in turns (default: each question "
                      "once, with --sweep 12 at each point)");
  command->add_option("--concurrency",
                      options->concurrency,
                      "Closed loop: so many workers, each with one request at "
                      "a time (default 1)");
  command->add_option("--rate",
                      options->rate,
                      "Open loop instead: arrivals a second; latency counts "
                      "from the time a request was meant to be sent");
  command->add_option("--burstiness",
                      options->burstiness,
                      "Shape of the gaps between arrivals: 1 is Poisson, less "
                      "comes in bursts, more is even (default 1)");
  command->add_option("--max_concurrency",
                      options->max_concurrency,
                      "With --rate: most requests in flight; later ones wait");
  command->add_option(
      "--duration",
      options->duration_s,
      "Seconds after which no request (of two modes: no pair of blocks) "
      "starts; without --num the only end");
  command
      ->add_option("--warmup",
                   options->warmup,
                   "Requests of each mode before it, not counted")
      ->capture_default_str();
  command->add_option("--deadline_ms",
                      options->deadline_ms,
                      "Deadline of each request; being late is then no fault");
  command->add_flag("--share_prefixes",
                    options->share_prefixes,
                    "Let requests of the same mode share cached prompts "
                    "(default: none does)");
}

void AddDecodingFlags(CLI::App* command, BenchFlags* flags) {
  bench::Options* options = &flags->options;
  command
      ->add_option("--modes",
                   flags->modes,
                   "plain, speculative or both, which run in turns and are "
                   "compared")
      ->capture_default_str();
  command
      ->add_option("--model",
                   options->model,
                   "Name of the model; needed only if several are served. "
                   "With --sweep: the target's file (default: "
                   "SmolLM2-135M-Instruct in models/)")
      ->envname("SPECWIRE_MODEL_NAME");
  command->add_option("--max_tokens", options->max_tokens, "Of each request")
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "0 is greedy")
      ->capture_default_str();
  command
      ->add_option("--seed",
                   options->seed,
                   "Of the first request and of the arrivals; request i has "
                   "seed + i in both modes")
      ->capture_default_str();
  command->add_option(
      "--drafter", options->drafter, "Only this drafter, in mode speculative");
  command->add_option("--max_draft_tokens",
                      options->max_draft_tokens,
                      "Most draft tokens in a proposal, 1 to 32");
  command->add_option("--patience_us",
                      options->patience_us,
                      "How long a verifier waits for a proposal, in "
                      "microseconds; 0 not at all, -1 without limit");
  command->add_option("--window",
                      options->window,
                      "How many tokens a drafter works ahead of the last "
                      "commit");
  command->add_flag("--ignore_eos",
                    options->ignore_eos,
                    "Treat EOS as any other token: equal lengths compare");
}

}  // namespace

void AddBenchCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "bench",
      "Measures a running cluster under load, plain and speculative decoding "
      "in turns: tokens a second, latencies, their ratio, equal texts");
  command->footer(kDefinitions);
  auto flags = std::make_shared<BenchFlags>();
  AddClientFlags(command, &flags->client);
  AddLoadFlags(command, flags.get());
  AddDecodingFlags(command, flags.get());
  command->add_option("--goodput",
                      flags->goodput,
                      "ttft_ms:X,itl_ms:Y,e2e_ms:Z: counts requests and tokens "
                      "within all of these limits");
  command->add_option(
      "--raw", flags->raw, "Writes every request to this file, a line each");
  command->add_flag("--json", flags->json, "One JSON object instead of tables");
  // Those of a sweep's clusters have none: the same variables are `up`'s.
  AddEnvironmentNames(command);
  AddSweepFlags(command, &flags->sweep);
  command->callback([command, flags, runner] {
    if (!flags->sweep.sweep) {
      *runner = [flags] { return RunBench(*flags); };
      return;
    }
    ClearEnvironment(command);
    *runner = [flags] {
      return RunBenchSweep(flags->sweep, flags->options, flags->json);
    };
  });
}

}  // namespace specwire::cli
