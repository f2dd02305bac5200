// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/supervisor.h"
#include "cli/up_plan.h"
#include "common/base/logging.h"
#include "common/base/processors.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/synthetic.h"
#include "common/model/engine_names.h"

namespace specwire::cli {
namespace {

struct UpFlags {
  UpOptions options;
  int ready_timeout_s = 300;
};

int RunUp(const UpFlags& flags) {
  // Blocked before any thread exists, as the other signals are.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);

  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    PrintError("cannot tell where this program lies: /proc is not mounted");
    return kExitFailed;
  }
  UpOptions options = flags.options;
  options.num_processors = UsableProcessors();
  absl::StatusOr<UpPlan> plan =
      MakeUpPlan(options, program.parent_path().string());
  if (!plan.ok()) {
    PrintError(plan.status().message());
    return absl::IsInvalidArgument(plan.status()) ? kExitUsage : kExitFailed;
  }
  SPECWIRE_LOG(Info,
               "engine ",
               options.engine,
               ", drafter ",
               options.drafter,
               "; ",
               plan->threads);
  return Supervisor(*std::move(plan), absl::Seconds(flags.ready_timeout_s))
      .Run();
}

void AddSyntheticFlags(CLI::App* command, UpOptions* options) {
  command->add_flag("--allow_synthetic",
                    options->allow_synthetic,
                    "Allow --engine synthetic and --drafter synthetic, whose "
                    "tokens are made up: for load tests");
  command->add_option("--synthetic_step_us",
                      options->synthetic_step_us,
                      "Synthetic engine: microseconds that a pass takes");
  command->add_option("--synthetic_row_us",
                      options->synthetic_row_us,
                      "Synthetic engine: microseconds that each row adds");
  command->add_option("--synthetic_acceptance",
                      options->synthetic_acceptance,
                      "Synthetic drafter: probability that the token at each "
                      "place of a run is right, P,P,...");
  command->add_option("--synthetic_delay_us",
                      options->synthetic_delay_us,
                      "Synthetic drafter: microseconds that a proposal takes");
  command->add_option("--synthetic_vocab",
                      options->synthetic_vocab,
                      "Both: tokens in the vocabulary");
}

void AddUpFlags(CLI::App* command, UpFlags* flags) {
  UpOptions* options = &flags->options;
  std::vector<std::string> drafters = DrafterNames();
  drafters.emplace_back(kNoDrafter);
  std::vector<std::string> engines(std::begin(kEngineNames),
                                   std::end(kEngineNames));
  engines.emplace_back(kSynthetic);
  command
      ->add_option("--engine",
                   options->engine,
                   "How verifiers, and drafters with a model, compute")
      ->check(CLI::IsMember(engines))
      ->capture_default_str();
  command->add_option("--drafter", options->drafter, "What drafts")
      ->check(CLI::IsMember(drafters))
      ->capture_default_str();
  command->add_option("--verifiers", options->num_verifiers, "Verifier nodes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--draft_nodes", options->num_draft_nodes, "Draft nodes")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      ->add_option("--threads",
                   options->num_threads,
                   "Threads of each verifier (default: an equal share of the "
                   "processors, less one for each draft node with a model)")
      ->check(CLI::Range(1, kMaxThreads));
  command
      ->add_option("--listen",
                   options->listen,
                   "HOST:PORT of the coordinator; port 0 takes a free one")
      ->capture_default_str();
  command
      ->add_option("--http",
                   options->http,
                   "HOST:PORT for /health and /metrics; port 0 takes a free "
                   "one, 'none' serves none")
      ->capture_default_str();
  command->add_option("--metrics",
                      options->metrics,
                      "HOST:PORT for the first node's /metrics; the others "
                      "take the ports after it");
  command->add_option("--model",
                      options->model,
                      "The target's file (default: SmolLM2-135M-Instruct in "
                      "models/)");
  command->add_option("--draft_model",
                      options->draft_model,
                      "The drafter's file (default: the target's, for model, "
                      "oracle and adversarial)");
  command->add_option("--draft_layers",
                      options->draft_layers,
                      "model: only the first N layers of its file (default: 4 "
                      "of the target's, all of another)");
  command->add_option("--max_model_len",
                      options->max_model_len,
                      "Longest sequence in tokens (default: the model's)");
  command->add_option("--kv_cache_mib",
                      options->kv_cache_mib,
                      "KV cache of each node that has a model");
  command->add_option("--max_num_sequences",
                      options->max_num_sequences,
                      "Sequences at once, for each node");
  command->add_option(
      "--max_queued_sequences",
      options->max_queued_sequences,
      "Sequences that may wait beyond these, for each verifier");
  AddSyntheticFlags(command, options);
  command->add_option("--log_level", options->log_level, "For all processes")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  command
      ->add_option("--ready_timeout_s",
                   flags->ready_timeout_s,
                   "Give up if the cluster is not ready by then")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

}  // namespace

void AddUpCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "up",
      "A whole cluster on this machine, until Ctrl-C; prints READY once it "
      "serves");
  auto flags = std::make_shared<UpFlags>();
  AddUpFlags(command, flags.get());
  AddEnvironmentNames(command);
  command->callback([command, flags, runner] {
    // The children get what they need as flags; the same variables would mean
    // something else to them.
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_envname().empty()) {
        unsetenv(option->get_envname().c_str());
      }
    }
    *runner = [flags] { return RunUp(*flags); };
  });
}

}  // namespace specwire::cli
