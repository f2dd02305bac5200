// SPDX-License-Identifier: Apache-2.0
#include "cli/up_flags.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "common/base/processors.h"
#include "common/drafting/synthetic.h"
#include "common/model/engine_names.h"

namespace specwire::cli {
namespace {

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

}  // namespace

void AddNodeFlags(CLI::App* command, UpOptions* options) {
  std::vector<std::string> engines(std::begin(kEngineNames),
                                   std::end(kEngineNames));
  engines.emplace_back(kSynthetic);
  command
      ->add_option("--engine",
                   options->engine,
                   "How verifiers, and drafters with a model, compute")
      ->check(CLI::IsMember(engines))
      ->capture_default_str();
  command
      ->add_option("--threads",
                   options->num_threads,
                   "Threads of each verifier (default: an equal share of the "
                   "processors)")
      ->check(CLI::Range(1, kMaxThreads));
  command->add_option("--draft_model",
                      options->draft_model,
                      "What a drafter with a model computes, a GGUF file or a "
                      "Hugging Face folder: a draft model, or any model of the "
                      "target's vocabulary (default: the draft model that "
                      "comes with the project, if it fits the target, else the "
                      "target)");
  command->add_option(
      "--draft_layers",
      options->draft_layers,
      "Only the first N layers of the drafter's model, which is "
      "the target's then if no other is named (default: 4 of "
      "the target's, all of another)");
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
  command->add_flag("--inspect",
                    options->inspect,
                    "Let users look into the model: what the console's page "
                    "Explain shows");
  AddSyntheticFlags(command, options);
  command->add_option("--log_level", options->log_level, "For all processes")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

void ClearEnvironment(const CLI::App* command) {
  for (const CLI::Option* option : command->get_options()) {
    if (!option->get_envname().empty()) {
      unsetenv(option->get_envname().c_str());
    }
  }
}

absl::StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        "cannot tell where this program lies: /proc is not mounted");
  }
  return program.parent_path().string();
}

}  // namespace specwire::cli
