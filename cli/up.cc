// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/supervisor.h"
#include "cli/up_flags.h"
#include "cli/up_plan.h"
#include "common/base/logging.h"
#include "common/base/processors.h"
#include "common/drafting/drafter_names.h"

namespace specwire::cli {
namespace {

struct UpFlags {
  UpOptions options;
  int ready_timeout_s = 300;
};

int RunUp(const UpFlags& flags) {
  BlockSupervisorSignals();
  const absl::StatusOr<std::string> folder = ProgramFolder();
  if (!folder.ok()) {
    PrintError(folder.status().message());
    return kExitFailed;
  }
  UpOptions options = flags.options;
  options.num_processors = UsableProcessors();
  absl::StatusOr<UpPlan> plan = MakeUpPlan(options, *folder);
  if (!plan.ok()) {
    PrintError(plan.status().message());
    return absl::IsInvalidArgument(plan.status()) ? kExitUsage : kExitFailed;
  }
  SPECWIRE_LOG(Info,
               "engine ",
               options.engine,
               ", drafter ",
               plan->drafter,
               "; ",
               plan->threads);
  return Supervisor(*std::move(plan), absl::Seconds(flags.ready_timeout_s))
      .Run();
}

void AddUpFlags(CLI::App* command, UpFlags* flags) {
  UpOptions* options = &flags->options;
  std::vector<std::string> drafters = DrafterNames();
  drafters.emplace_back(kNoDrafter);
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
      ->add_option("--listen",
                   options->listen,
                   "HOST:PORT of the coordinator; port 0 takes a free one")
      ->capture_default_str();
  command
      ->add_option(
          "--http",
          options->http,
          "HOST:PORT for HTTP: the console at /, OpenAI's routes under /v1, "
          "all methods under /api, /health, /ready and /metrics; port 0 takes "
          "a free one, 'none' serves none")
      ->capture_default_str();
  command->add_option("--metrics",
                      options->metrics,
                      "HOST:PORT for the first node's /metrics; the others "
                      "take the ports after it");
  command->add_flag("--metrics_vllm_aliases",
                    options->metrics_vllm_aliases,
                    "Repeat the metrics that vLLM has too under its names, in "
                    "all processes");
  command->add_option("--model",
                      options->model,
                      "The target, a GGUF file or a Hugging Face folder "
                      "(default: SmolLM2-135M-Instruct in models/)");
  command->add_option("--served_model_name",
                      options->served_model_name,
                      "What users call the model (default: the name of the "
                      "file or folder)");
  command
      ->add_option("--per_request_spec_decode_metrics",
                   options->per_request_spec_decode_metrics,
                   "What OpenAI's routes tell of each request's speculation: "
                   "none, summary (default) or, with the counts of each step, "
                   "detailed")
      ->check(CLI::IsMember({"none", "summary", "detailed"}));
  command->add_option("--tls_cert",
                      options->tls.cert,
                      "File with a certificate for all processes (PEM)");
  command->add_option("--tls_key",
                      options->tls.key,
                      "File with the certificate's private key (PEM)");
  command->add_option("--tls_ca",
                      options->tls.ca,
                      "File with the roots that others' certificates must come "
                      "from (PEM)");
  command->add_flag("--http_tls",
                    options->http_tls,
                    "Serve HTTP with TLS, with the same files");
  command->add_option("--operator_keys",
                      options->operator_keys,
                      "File with the keys of those who may drain nodes over "
                      "HTTP, see coordinator --help");
  command->add_option("--api_keys",
                      options->api_keys,
                      "File with the SHA-256 of each user's key, one a line "
                      "(default: no keys are asked for)");
  command->add_flag("--allow_insecure",
                    options->allow_insecure,
                    "Serve without TLS on a --listen that others can reach");
  AddNodeFlags(command, options);
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
    ClearEnvironment(command);
    // Of clients alone.
    unsetenv("SPECWIRE_API_KEY");
    *runner = [flags] { return RunUp(*flags); };
  });
}

}  // namespace specwire::cli
