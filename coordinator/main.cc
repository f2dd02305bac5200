// SPDX-License-Identifier: Apache-2.0

// coordinator: what users call and nodes join.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/end_watchdog.h"
#include "common/base/logging.h"
#include "common/base/signals.h"
#include "common/base/standard_streams.h"
#include "common/base/status_macros.h"
#include "common/rpc/library_logs.h"
#include "common/rpc/node_main.h"
#include "common/rpc/pollers.h"
#include "coordinator/coordinator.h"
#include "coordinator/options.h"

namespace specwire::coordinator {
namespace {

constexpr char kProgram[] = "coordinator";
constexpr int kMaxRpcThreads = 1024;
constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);
constexpr absl::Duration kEndLimit = absl::Seconds(20);

// Flags as they were given; times in their units.
struct Flags {
  CoordinatorOptions options;
  // Absent: two proposals, and at least the default.
  std::optional<int> window;
  int64_t patience_us = 0;
  double drafter_deadline_s = 0;
  double stream_deadline_s = 0;
  double grace_s = 0;
  double client_stall_s = 0;
  double max_silence_s = 0;
  double max_stall_s = 0;
  std::string log_level = "info";
  bool no_reflection = false;
  std::string per_request_spec_decode_metrics = "summary";
  int rpc_threads = 1;
};

void AddFlags(CLI::App* app, Flags* flags) {
  CoordinatorOptions* options = &flags->options;
  flags->patience_us = absl::ToInt64Microseconds(options->speculation.patience);
  flags->drafter_deadline_s = absl::ToDoubleSeconds(options->drafter_deadline);
  flags->stream_deadline_s = absl::ToDoubleSeconds(options->stream_deadline);
  flags->grace_s = absl::ToDoubleSeconds(options->grace);
  flags->client_stall_s = absl::ToDoubleSeconds(options->client_stall);
  flags->max_silence_s = absl::ToDoubleSeconds(options->max_silence);
  flags->max_stall_s = absl::ToDoubleSeconds(options->max_stall);
  const auto add = [app](const char* name, auto* value, const char* help) {
    app->add_option(name, *value, help)->capture_default_str();
  };
  add("--listen",
      &options->listen,
      "HOST:PORT to serve on; port 0 takes a free one");
  app->add_option(
      "--http",
      options->http,
      "HOST:PORT for HTTP: the console at /, OpenAI's routes under /v1, all "
      "methods under /api, /health, /ready and /metrics. Without --http_tls, "
      "at an address that others reach, it serves only /health, /ready and "
      "/metrics and refuses all else with 403; --allow_insecure has it serve "
      "everything there, unencrypted (default: none)");
  app->add_flag("--http_tls",
                options->http_tls,
                "serve HTTP with TLS, with the same files as gRPC");
  AddAliasesFlag(app, &options->metrics_vllm_aliases);
  add("--run_length",
      &options->speculation.run_length,
      "draft tokens in one proposal, unless a request says otherwise");
  app->add_option("--window",
                  flags->window,
                  "how many tokens a drafter works ahead of the last commit "
                  "(default: two proposals, at least 8)");
  add("--patience_us",
      &flags->patience_us,
      "longest that a verifier waits for a proposal, in microseconds; -1 waits "
      "without limit");
  add("--drafter_deadline",
      &flags->drafter_deadline_s,
      "seconds after which a silent drafter is taken for lost");
  add("--stream_deadline",
      &flags->stream_deadline_s,
      "seconds after which a sequence goes on elsewhere whose node does not "
      "answer that it has it; a node waits twice as long for the coordinator");
  add("--max_requests",
      &options->max_concurrent_requests,
      "requests at once; one more is refused");
  add("--credit",
      &options->credit,
      "tokens that are computed ahead of a client that does not read");
  add("--client_stall",
      &flags->client_stall_s,
      "seconds after which a client that reads nothing is dropped");
  add("--max_silence",
      &flags->max_silence_s,
      "seconds after which a node that does not report is suspect: what runs "
      "on it goes on elsewhere");
  add("--max_stall",
      &flags->max_stall_s,
      "seconds after which a node that has work and makes no progress, not "
      "by a layer, is suspect");
  add("--workers", &options->num_workers, "threads that tokenize");
  add("--rpc_threads",
      &flags->rpc_threads,
      "threads that carry messages; 0: as many as gRPC starts, which costs "
      "more processor time for each message");
  add("--grace",
      &flags->grace_s,
      "seconds that running requests have to end at shutdown");
  add("--log_level",
      &flags->log_level,
      "least severity to log: debug, info, warning or error");
  app->add_flag(
      "--no_reflection", flags->no_reflection, "do not serve gRPC reflection");
  AddSecurityFlags(app, &options->security);
  app->add_option("--api_keys",
                  options->api_keys,
                  "file with the SHA-256 of each user's key, one a line, read "
                  "again when it changes (default: no keys are asked for)");
  add("--per_request_spec_decode_metrics",
      &flags->per_request_spec_decode_metrics,
      "what OpenAI's routes tell of each request's speculation: none, summary "
      "or, with the counts of each step, detailed");
  app->add_option("--operator_keys",
                  options->operator_keys,
                  "file like that of --api_keys, of those who may drain nodes "
                  "over HTTP (default: nobody may)");
}

absl::StatusOr<SpecDecodeMetrics> ParseSpecDecodeMetrics(
    const std::string& name) {
  if (name == "none") return SpecDecodeMetrics::kNone;
  if (name == "summary") return SpecDecodeMetrics::kSummary;
  if (name == "detailed") return SpecDecodeMetrics::kDetailed;
  return absl::InvalidArgumentError(
      absl::StrCat("--per_request_spec_decode_metrics: \"",
                   name,
                   "\" is none of none, summary, detailed"));
}

absl::StatusOr<CoordinatorOptions> CheckFlags(const Flags& flags) {
  CoordinatorOptions options = flags.options;
  for (const double seconds : {flags.drafter_deadline_s,
                               flags.stream_deadline_s,
                               flags.grace_s,
                               flags.client_stall_s,
                               flags.max_silence_s,
                               flags.max_stall_s}) {
    if (!std::isfinite(seconds)) {
      return absl::InvalidArgumentError(
          "--drafter_deadline, --stream_deadline, --grace, --client_stall, "
          "--max_silence, --max_stall: must be finite numbers of seconds");
    }
  }
  if (flags.rpc_threads < 0 || flags.rpc_threads > kMaxRpcThreads) {
    return absl::InvalidArgumentError(absl::StrCat("--rpc_threads: ",
                                                   flags.rpc_threads,
                                                   " is not between 0 and ",
                                                   kMaxRpcThreads));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      options.per_request_spec_decode_metrics,
      ParseSpecDecodeMetrics(flags.per_request_spec_decode_metrics));
  options.reflection = !flags.no_reflection;
  options.speculation.window = flags.window.value_or(
      std::max(options.speculation.window, 2 * options.speculation.run_length));
  options.drafter_deadline = absl::Seconds(flags.drafter_deadline_s);
  options.stream_deadline = absl::Seconds(flags.stream_deadline_s);
  options.grace = absl::Seconds(flags.grace_s);
  options.client_stall = absl::Seconds(flags.client_stall_s);
  options.max_silence = absl::Seconds(flags.max_silence_s);
  options.max_stall = absl::Seconds(flags.max_stall_s);
  options.speculation.patience = flags.patience_us == -1
                                     ? absl::InfiniteDuration()
                                     : absl::Microseconds(flags.patience_us);
  if (absl::Status status = ValidateOptions(options); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", status.message()));
  }
  if (options.stream_deadline <= options.drafter_deadline) {
    return absl::InvalidArgumentError(
        "--stream_deadline: must be longer than --drafter_deadline");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckServerSecurity(
      options.security, options.listen, kCoordinatorCertificate));
  return options;
}

// Takes no new requests, and lets running ones end until the grace is over or
// a second signal comes.
void Drain(absl::Duration grace, Coordinator* coordinator) {
  SPECWIRE_LOG(Info,
               "draining: a signal asked for it; ",
               coordinator->num_requests(),
               " requests run, ",
               absl::ToInt64Seconds(absl::Ceil(grace, absl::Seconds(1))),
               " s for them to end");
  coordinator->Drain();
  const SteadyClock clock;
  const absl::Time deadline = clock.Now() + grace;
  while (coordinator->num_requests() > 0 && clock.Now() < deadline) {
    if (!WaitForShutdownSignal(kLookPeriod).has_value()) continue;
    SPECWIRE_LOG(Info, "a second signal: what runs is ended now");
    return;
  }
}

absl::Status Serve(const CoordinatorOptions& options, int rpc_threads) {
  std::optional<Pollers> pollers;
  if (rpc_threads > 0) pollers.emplace(rpc_threads);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator,
                            Coordinator::Start(options));
  // For whoever started us with port 0.
  std::cout << "listening on " << coordinator->address() << std::endl;
  if (!options.http.empty()) {
    std::cout << "http on " << coordinator->http_address() << std::endl;
  }
  SPECWIRE_LOG(Info,
               "run_length ",
               options.speculation.run_length,
               ", window ",
               options.speculation.window,
               ", patience ",
               absl::FormatDuration(options.speculation.patience),
               ", drafter_deadline ",
               absl::FormatDuration(options.drafter_deadline),
               ", stream_deadline ",
               absl::FormatDuration(options.stream_deadline),
               ", max_requests ",
               options.max_concurrent_requests,
               ", credit ",
               options.credit,
               ", grace ",
               absl::FormatDuration(options.grace),
               ", max_silence ",
               absl::FormatDuration(options.max_silence),
               ", max_stall ",
               absl::FormatDuration(options.max_stall));

  WaitForShutdownSignal();
  Drain(options.grace, coordinator.get());
  // Signals stay blocked: none of them makes this any quicker.
  const EndWatchdog watchdog(kEndLimit);
  SPECWIRE_LOG(Info,
               "shutting down, ",
               coordinator->num_requests(),
               " requests are running");
  if (const absl::Status ended = coordinator->Shutdown(absl::ZeroDuration());
      !ended.ok()) {
    // Handlers still use what the destructors would destroy.
    SPECWIRE_LOG(Error, "shutdown: ", ended.message());
    std::_Exit(1);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Serves users and brings nodes together.", kProgram);
  Flags flags;
  AddFlags(&app, &flags);
  if (const auto code = ParseFlags(&app, argc, argv)) return *code;
  const absl::StatusOr<CoordinatorOptions> options = CheckFlags(flags);
  if (!options.ok()) {
    return ExitWithError(kProgram, options.status(), /*usage=*/true);
  }
  LogLevel log_level = LogLevel::kInfo;
  if (!ParseLogLevel(flags.log_level, &log_level)) {
    return ExitWithError(kProgram,
                         absl::InvalidArgumentError(absl::StrCat(
                             "--log_level: \"",
                             flags.log_level,
                             "\" is none of debug, info, warning, error")),
                         /*usage=*/true);
  }
  InitLogging(kProgram, log_level);
  RouteLibraryLogs();
  if (absl::Status status = Serve(*options, flags.rpc_threads); !status.ok()) {
    return ExitWithError(kProgram, status, /*usage=*/false);
  }
  return 0;
}

}  // namespace
}  // namespace specwire::coordinator

int main(int argc, char** argv) {
  specwire::ReserveStandardStreams();
  specwire::BlockShutdownSignals();
  return specwire::coordinator::Main(argc, argv);
}
