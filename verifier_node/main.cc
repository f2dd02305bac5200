// SPDX-License-Identifier: Apache-2.0

// verifier_node: holds the target model and verifies draft tokens.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/synthetic.h"
#include "common/metrics/names.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/rpc_bytes.h"
#include "common/model/engine.h"
#include "common/model/engine_names.h"
#include "common/model/thread_pool.h"
#include "common/rpc/node_main.h"
#include "verifier_node/engine_thread.h"
#include "verifier_node/inspect_service.h"
#include "verifier_node/make_local_drafter.h"
#include "verifier_node/service.h"
#include "verifier_node/step_costs.h"
#include "verifier_node/synthetic_engine.h"
#include "verifier_node/verifier_metrics.h"

namespace specwire::verifier {
namespace {

// What only the synthetic engine has.
struct SyntheticFlags {
  bool allowed = false;
  int64_t step_us = 0;
  int64_t row_us = 0;
  int vocab_size = kDefaultSyntheticVocab;
  // For tests; see SyntheticHang.
  int64_t hang_after = -1;
  int64_t hang_ms = -1;
  // For tests; see SyntheticEngineOptions.
  int64_t fail_after = -1;
};

constexpr int kMaxQueuedSequences = 65536;
constexpr double kDefaultGraceS = 30;
constexpr double kMaxGraceS = 24 * 3600;
constexpr int kExitBroken = 1;
// The draft model's KV cache is smaller than the target's by this: a model that
// pays has fewer layers still.
constexpr int64_t kPartForDrafts = 8;

struct Flags {
  std::string model;
  EngineOptions engine;
  SyntheticFlags synthetic;
  int max_num_sequences = EngineThreadOptions().max_num_sequences;
  int max_queued_sequences = EngineThreadOptions().max_queued_sequences;
  // Empty: the default.
  std::string local_drafter;
  std::string local_draft_model;
  double grace_s = kDefaultGraceS;
  bool inspect = false;
};

void AddSyntheticFlags(CLI::App* app, SyntheticFlags* flags) {
  app->add_flag("--allow_synthetic",
                flags->allowed,
                "allow --engine synthetic, whose tokens are made up");
  app->add_option("--synthetic_step_us",
                  flags->step_us,
                  "synthetic: microseconds that a pass takes")
      ->capture_default_str();
  app->add_option("--synthetic_row_us",
                  flags->row_us,
                  "synthetic: microseconds that each of its rows adds")
      ->capture_default_str();
  app->add_option("--synthetic_vocab",
                  flags->vocab_size,
                  "synthetic: tokens in the vocabulary")
      ->capture_default_str();
  // An empty group: not in --help.
  app->add_option("--synthetic_hang_after", flags->hang_after)->group("");
  app->add_option("--synthetic_hang_ms", flags->hang_ms)->group("");
  app->add_option("--synthetic_fail_after", flags->fail_after)->group("");
}

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--model",
                  flags->model,
                  "the model: a GGUF file or a Hugging Face folder");
  app->add_option("--engine",
                  flags->engine.engine,
                  "how to compute: " + EngineNames() +
                      "; synthetic: not at all, for load tests")
      ->capture_default_str();
  AddSyntheticFlags(app, &flags->synthetic);
  app->add_option("--dtype",
                  flags->engine.dtype,
                  "what the reference engine keeps weights and computes their "
                  "products in: float32, bfloat16")
      ->capture_default_str();
  app->add_option("--device",
                  flags->engine.device,
                  "where the reference engine computes these products: cpu, "
                  "cuda")
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
                  "sequences that compute at once; more wait")
      ->capture_default_str();
  app->add_option("--max_queued_sequences",
                  flags->max_queued_sequences,
                  "sequences that may wait; one more is refused")
      ->capture_default_str();
  app->add_option("--local_drafter",
                  flags->local_drafter,
                  "drafter that it keeps for itself: suffix (lookup), hybrid "
                  "(lookup, and a model where that pays) or none (default: "
                  "suffix; with the engine synthetic none)")
      ->check([](const std::string& name) {
        return name.empty() ? "is empty; use none" : "";
      });
  app->add_option(
      "--local_draft_model",
      flags->local_draft_model,
      "the model for --local_drafter hybrid: a GGUF file or a Hugging "
      "Face folder");
  app->add_flag("--inspect",
                flags->inspect,
                "let users look into the model: attention, distributions, "
                "work that the KV cache saves (InspectService)");
  app->add_option("--grace",
                  flags->grace_s,
                  "seconds that running sequences have to end when the node "
                  "drains; then they go on elsewhere")
      ->capture_default_str();
}

bool IsSynthetic(const Flags& flags) {
  return flags.engine.engine == kSynthetic;
}

absl::Status CheckModelFlags(const Flags& flags) {
  if (IsSynthetic(flags)) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckSyntheticAllowed(flags.synthetic.allowed, "--engine synthetic"));
    if (flags.model.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--model: the engine synthetic has no model");
  }
  if (flags.model.empty()) {
    return absl::InvalidArgumentError("--model is required");
  }
  return CheckEngineName(flags.engine.engine, "--engine");
}

LocalDrafterOptions ToLocalDrafterOptions(const Flags& flags,
                                          std::shared_ptr<ThreadPool> threads) {
  LocalDrafterOptions options;
  options.name = flags.local_drafter;
  if (options.name.empty()) {
    options.name = IsSynthetic(flags) ? kNoDrafter : kSuffixDrafter;
  }
  options.model = flags.local_draft_model;
  options.engine.engine = flags.engine.engine;
  options.engine.thread_pool = std::move(threads);
  options.engine.kv_cache_mib =
      std::max<int64_t>(flags.engine.kv_cache_mib / kPartForDrafts, 1);
  return options;
}

absl::Status CheckLocalDrafter(const Flags& flags) {
  const LocalDrafterOptions options = ToLocalDrafterOptions(flags, nullptr);
  SPECWIRE_RETURN_IF_ERROR(CheckLocalDrafterOptions(options));
  if (IsSynthetic(flags) && options.name != kNoDrafter) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--local_drafter: the engine synthetic makes tokens up, which are no "
        "text to look anything up in; use ",
        kNoDrafter));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const Flags& flags) {
  SPECWIRE_RETURN_IF_ERROR(CheckModelFlags(flags));
  SPECWIRE_RETURN_IF_ERROR(CheckLocalDrafter(flags));
  SPECWIRE_RETURN_IF_ERROR(CheckFormat(
      flags.engine.engine, flags.engine.dtype, flags.engine.device));
  if (flags.engine.kv_cache_mib < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv_cache_mib: ", flags.engine.kv_cache_mib, " is less than 1"));
  }
  if (flags.engine.max_model_len < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_model_len: ", flags.engine.max_model_len, " is negative"));
  }
  if (flags.max_queued_sequences < 0 ||
      flags.max_queued_sequences > kMaxQueuedSequences) {
    return absl::InvalidArgumentError(absl::StrCat("--max_queued_sequences: ",
                                                   flags.max_queued_sequences,
                                                   " is not between 0 and ",
                                                   kMaxQueuedSequences));
  }
  if (!(flags.grace_s >= 0 && flags.grace_s <= kMaxGraceS)) {
    return absl::InvalidArgumentError(absl::StrCat("--grace: ",
                                                   flags.grace_s,
                                                   " is not between 0 and ",
                                                   kMaxGraceS,
                                                   " seconds"));
  }
  return CheckMaxNumSequences(flags.max_num_sequences);
}

void AddGauges(MetricsRegistry* registry, const EngineThread* thread) {
  registry->AddCallbackGauge(
      metric::kNumRequestsRunning, "Sequences that compute.", {}, [thread] {
        return std::max(thread->num_sequences() - thread->num_waiting(), 0);
      });
  registry->AddCallbackGauge(metric::kNumRequestsWaiting,
                             "Sequences that wait for a place or for room.",
                             {},
                             [thread] { return thread->num_waiting(); });
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(
    const Flags& flags, std::shared_ptr<ThreadPool> threads) {
  if (IsSynthetic(flags)) {
    return SyntheticEngine::Create(
        {.vocab_size = flags.synthetic.vocab_size,
         .step_time = absl::Microseconds(flags.synthetic.step_us),
         .row_time = absl::Microseconds(flags.synthetic.row_us),
         .max_model_len = flags.engine.max_model_len,
         .kv_cache_mib = flags.engine.kv_cache_mib,
         .served_model_name = flags.engine.served_model_name,
         .hang = SyntheticHang::FromFlags(flags.synthetic.hang_after,
                                          flags.synthetic.hang_ms),
         .fail_after = flags.synthetic.fail_after});
  }
  EngineOptions options = flags.engine;
  options.thread_pool = std::move(threads);
  return LoadEngine(flags.model, options);
}

// What passes of a synthetic engine take is given: it need not be measured,
// which would take a dozen of them.
std::vector<StepCost> GivenStepCosts(const SyntheticFlags& flags) {
  std::vector<StepCost> costs;
  for (const int num_rows : kStepCostRows) {
    costs.push_back({.num_rows = num_rows,
                     .context_length = 0,
                     .duration = absl::Microseconds(flags.step_us) +
                                 num_rows * absl::Microseconds(flags.row_us)});
  }
  return costs;
}

absl::StatusOr<std::vector<StepCost>> MeasureAndLog(const Flags& flags,
                                                    Engine* engine) {
  std::vector<StepCost> costs;
  if (IsSynthetic(flags)) {
    costs = GivenStepCosts(flags.synthetic);
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(costs, MeasureStepCosts(engine, kStepCostRows));
  }
  for (const StepCost& cost : costs) {
    SPECWIRE_LOG(Info,
                 "a pass of ",
                 cost.num_rows,
                 " rows takes ",
                 absl::FormatDuration(cost.duration));
  }
  return costs;
}

// Nothing can be served, so nothing is to be waited for: whoever has a sequence
// here moves it at once, and a supervisor starts the process anew.
void EndBroken(const absl::Status& reason) {
  SPECWIRE_LOG(Error, "the engine is broken: ", reason.ToString());
  std::_Exit(kExitBroken);
}

absl::Status Serve(const Flags& flags, const NodeOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckAddressesFree(options));
  // One for target and drafts: a second one's workers would have to be woken
  // between all passes, and would stand in each other's way.
  const auto threads = std::make_shared<ThreadPool>(options.num_threads);
  const LocalDrafterOptions local_options =
      ToLocalDrafterOptions(flags, threads);
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> draft_model,
                            LoadLocalDraftModel(local_options));
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                            MakeEngine(flags, threads));
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
               ", max_queued_sequences ",
               flags.max_queued_sequences,
               ", local drafter ",
               local_options.name,
               ", threads ",
               options.num_threads);
  const SteadyClock clock;
  SPECWIRE_ASSIGN_OR_RETURN(
      std::unique_ptr<LocalDrafter> local_drafter,
      MakeLocalDrafter(local_options, std::move(draft_model), *engine, &clock));
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<StepCost> costs,
                            MeasureAndLog(flags, engine.get()));

  MetricsRegistry registry(
      {{metric::kNodeRole, "verifier"}, {metric::kModelName, model.name}});
  if (options.metrics_vllm_aliases) registry.RepeatForVllm();
  AddBuildInfo(&registry);
  AddProcessMetrics(&registry);
  VerifierMetrics metrics(&registry);
  EngineThread thread(engine.get(),
                      {.max_num_sequences = flags.max_num_sequences,
                       .max_queued_sequences = flags.max_queued_sequences,
                       .step_costs = costs,
                       .on_fatal = EndBroken},
                      &clock,
                      &metrics,
                      std::move(local_drafter));
  AddGauges(&registry, &thread);
  AddKvCacheGauges(engine.get(), &registry);
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<VerifierServiceImpl> service,
      VerifierServiceImpl::Create(
          *engine,
          costs,
          &thread,
          AddRpcBytes(&registry, "Decode", metric::kResponse)));
  std::unique_ptr<InspectServiceImpl> inspect;
  if (flags.inspect) {
    SPECWIRE_ASSIGN_OR_RETURN(inspect,
                              InspectServiceImpl::Create(*engine, &thread));
  }
  thread.Start();

  NodeParts parts;
  parts.role = v1::NODE_ROLE_VERIFIER;
  parts.service_name = v1::VerifierService::service_full_name();
  parts.services.push_back(service.get());
  if (inspect != nullptr) parts.services.push_back(inspect.get());
  parts.metrics = &registry;
  SetThread(&thread, engine.get(), &parts);
  parts.load = [load = std::move(parts.load), &thread] {
    v1::NodeLoad told = load();
    told.set_slowdown(thread.slowdown());
    return told;
  };
  parts.grace = absl::Seconds(flags.grace_s);
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
