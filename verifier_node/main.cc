// SPDX-License-Identifier: Apache-2.0

// verifier_node: holds the target model and verifies draft tokens.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"
#include "common/model/engine.h"
#include "common/model/engine_names.h"
#include "common/rpc/node_main.h"
#include "verifier_node/engine_thread.h"
#include "verifier_node/service.h"
#include "verifier_node/step_costs.h"
#include "verifier_node/verifier_metrics.h"

namespace specwire::verifier {
namespace {

struct Flags {
  std::string model;
  std::string device = "cpu";
  EngineOptions engine;
  int max_num_sequences = EngineThreadOptions().max_num_sequences;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--model", flags->model, "the model's GGUF file")->required();
  app->add_option(
         "--engine", flags->engine.engine, "how to compute: " + EngineNames())
      ->capture_default_str();
  app->add_option("--device", flags->device, "where to compute: cpu")
      ->capture_default_str();
  app->add_option("--kv_cache_mib",
                  flags->engine.kv_cache_mib,
                  "size of the KV cache in MiB")
      ->capture_default_str();
  app->add_option("--max_model_len",
                  flags->engine.max_model_len,
                  "longest sequence in tokens (default: the model's)");
  app->add_option("--served_model_name",
                  flags->engine.served_model_name,
                  "name of the model for users (default: the file's)");
  app->add_option("--max_num_sequences",
                  flags->max_num_sequences,
                  "sequences at once; one more is refused")
      ->capture_default_str();
}

absl::Status CheckFlags(const Flags& flags) {
  if (flags.model.empty()) {
    return absl::InvalidArgumentError("--model: is empty");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckEngineName(flags.engine.engine, "--engine"));
  if (flags.device == "cuda") {
    return absl::InvalidArgumentError(
        "--device: cuda is not there yet; use cpu");
  }
  if (flags.device != "cpu") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device: \"", flags.device, "\" is unknown; known: cpu"));
  }
  if (flags.engine.kv_cache_mib < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv_cache_mib: ", flags.engine.kv_cache_mib, " is less than 1"));
  }
  if (flags.engine.max_model_len < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_model_len: ", flags.engine.max_model_len, " is negative"));
  }
  return CheckMaxNumSequences(flags.max_num_sequences);
}

void AddGauges(MetricsRegistry* registry, const EngineThread* thread) {
  registry->AddCallbackGauge(
      metric::kNumRequestsRunning, "Sequences that decode.", {}, [thread] {
        return std::max(thread->num_sequences() - thread->num_waiting(), 0);
      });
  registry->AddCallbackGauge(metric::kNumRequestsWaiting,
                             "Sequences whose prompt is not computed yet.",
                             {},
                             [thread] { return thread->num_waiting(); });
}

absl::StatusOr<std::vector<StepCost>> MeasureAndLog(Engine* engine) {
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<StepCost> costs,
                            MeasureStepCosts(engine, {1, 4, 8}));
  for (const StepCost& cost : costs) {
    SPECWIRE_LOG(Info,
                 "a pass of ",
                 cost.num_rows,
                 " rows takes ",
                 absl::FormatDuration(cost.duration));
  }
  return costs;
}

absl::Status Serve(const Flags& flags, const NodeOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckAddressesFree(options));
  EngineOptions engine_options = flags.engine;
  engine_options.num_threads = options.num_threads;
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                            LoadEngine(flags.model, engine_options));
  const ModelInfo& model = engine->info();
  SPECWIRE_LOG(Info,
               "model ",
               model.name,
               ", engine ",
               model.engine,
               ", digest ",
               model.model_digest,
               ", max_model_len ",
               model.max_model_len,
               ", ",
               engine->kv_blocks_total(),
               " KV blocks of ",
               engine->kv_block_size(),
               " tokens, max_num_sequences ",
               flags.max_num_sequences,
               ", threads ",
               options.num_threads);
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<StepCost> costs,
                            MeasureAndLog(engine.get()));

  MetricsRegistry registry(
      {{metric::kNodeRole, "verifier"}, {metric::kModelName, model.name}});
  AddBuildInfo(&registry);
  VerifierMetrics metrics(&registry);
  const SteadyClock clock;
  EngineThread thread(engine.get(),
                      {.max_num_sequences = flags.max_num_sequences},
                      &clock,
                      &metrics);
  AddGauges(&registry, &thread);
  AddKvCacheGauge(engine.get(), &registry);
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<VerifierServiceImpl> service,
      VerifierServiceImpl::Create(*engine, costs, &thread));
  thread.Start();

  NodeParts parts;
  parts.role = v1::NODE_ROLE_VERIFIER;
  parts.service_name = v1::VerifierService::service_full_name();
  parts.service = service.get();
  parts.metrics = &registry;
  SetThread(&thread, engine.get(), &parts);
  return RunNode(options, parts);
}

int Main(int argc, char** argv) {
  Flags flags;
  return NodeMain(
      {.name = "verifier_node",
       .description = "Verifies draft tokens with the target model.",
       .role = "verifier",
       .add_flags = [&](CLI::App* app) { AddFlags(app, &flags); },
       .check_flags = [&] { return CheckFlags(flags); },
       .serve =
           [&](const NodeOptions& options) { return Serve(flags, options); }},
      argc,
      argv);
}

}  // namespace
}  // namespace specwire::verifier

int main(int argc, char** argv) { return specwire::verifier::Main(argc, argv); }
