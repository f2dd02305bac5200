// SPDX-License-Identifier: Apache-2.0

// draft_node: proposes draft tokens.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/rpc_bytes.h"
#include "common/model/engine_names.h"
#include "common/rpc/node_main.h"
#include "draft_node/draft_time.h"
#include "draft_node/drafter_thread.h"
#include "draft_node/make_drafter.h"
#include "draft_node/service.h"

namespace specwire::draft {
namespace {

struct Flags {
  DrafterOptions drafter;
  int64_t synthetic_delay_us = 0;
  // For tests; see SyntheticHang.
  int64_t hang_after = -1;
  int64_t hang_ms = -1;
  int max_num_sequences = DrafterThreadOptions().max_num_sequences;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option(
         "--drafter",
         flags->drafter.name,
         "what drafts: ngram (prompt lookup), suffix (lookup with counts, in "
         "earlier output too), model (a causal LM), hybrid (suffix or model, "
         "whichever may be expected to do better); for tests: oracle, "
         "adversarial (the target's own file), random, "
         "synthetic (made up)")
      ->required();
  app->add_option(
      "--draft_model",
      flags->drafter.model,
      "the drafter's model: a GGUF file or a Hugging Face folder, for "
      "those that have one: a draft model, or any model of the "
      "target's vocabulary");
  app->add_option("--engine",
                  flags->drafter.engine.engine,
                  "how a model computes: " + EngineNames())
      ->capture_default_str();
  app->add_option("--draft_layers",
                  flags->drafter.engine.num_layers,
                  "only the first N layers of the model, with its own final "
                  "norm and head; 0: all")
      ->capture_default_str();
  app->add_option("--kv_cache_mib",
                  flags->drafter.engine.kv_cache_mib,
                  "size of the drafter's KV cache in MiB")
      ->capture_default_str();
  app->add_flag("--allow_synthetic",
                flags->drafter.allow_synthetic,
                "allow --drafter synthetic, whose tokens are made up");
  app->add_option("--synthetic_acceptance",
                  flags->drafter.synthetic.acceptance,
                  "synthetic: probability that the token at each place of a "
                  "run is right, P,P,...; the last holds for all later places")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--synthetic_delay_us",
                  flags->synthetic_delay_us,
                  "synthetic: microseconds that a proposal takes")
      ->capture_default_str();
  app->add_option("--synthetic_vocab",
                  flags->drafter.synthetic.vocab_size,
                  "synthetic: tokens in the vocabulary, as the verifier's")
      ->capture_default_str();
  // An empty group: not in --help.
  app->add_option("--synthetic_hang_after", flags->hang_after)->group("");
  app->add_option("--synthetic_hang_ms", flags->hang_ms)->group("");
  app->add_option("--max_num_sequences",
                  flags->max_num_sequences,
                  "sequences at once; one more is refused")
      ->capture_default_str();
}

absl::Status CheckFlags(const Flags& flags) {
  SPECWIRE_RETURN_IF_ERROR(CheckMaxNumSequences(flags.max_num_sequences));
  SPECWIRE_RETURN_IF_ERROR(
      CheckSyntheticWait(flags.synthetic_delay_us, "--synthetic_delay_us"));
  return CheckDrafterOptions(flags.drafter);
}

absl::Status Serve(const Flags& flags, const NodeOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckAddressesFree(options));
  DrafterOptions drafter_options = flags.drafter;
  drafter_options.engine.num_threads = options.num_threads;
  drafter_options.synthetic.delay =
      absl::Microseconds(flags.synthetic_delay_us);
  drafter_options.synthetic.hang =
      SyntheticHang::FromFlags(flags.hang_after, flags.hang_ms);
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Drafter> drafter,
                            MakeDrafter(drafter_options));
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t draft_token_ns,
                            MeasureDraftTokenNs(drafter.get()));
  SPECWIRE_LOG(Info,
               "drafter ",
               drafter->name(),
               ", max_num_sequences ",
               flags.max_num_sequences,
               ", nanoseconds per draft token ",
               draft_token_ns);

  MetricsRegistry registry(
      {{metric::kNodeRole, "draft"}, {metric::kModelName, drafter->name()}});
  if (options.metrics_vllm_aliases) registry.RepeatForVllm();
  AddBuildInfo(&registry);
  AddProcessMetrics(&registry);
  DrafterThread thread(
      drafter.get(), {.max_num_sequences = flags.max_num_sequences}, &registry);
  registry.AddCallbackGauge(
      metric::kNumRequestsRunning, "Sequences that are open.", {}, [&thread] {
        return thread.num_sequences();
      });
  AddKvCacheGauges(drafter.get(), &registry);
  DraftServiceImpl service(*drafter,
                           &thread,
                           draft_token_ns,
                           AddRpcBytes(&registry, "Draft", metric::kResponse));
  thread.Start();

  NodeParts parts;
  parts.role = v1::NODE_ROLE_DRAFT;
  parts.service_name = v1::DraftService::service_full_name();
  parts.services = {&service};
  parts.metrics = &registry;
  SetThread(&thread, drafter.get(), &parts);
  return RunNode(options, parts);
}

int Main(int argc, char** argv) {
  Flags flags;
  return NodeMain(
      {.name = "draft_node",
       .description = "Proposes draft tokens.",
       .role = "draft",
       .add_flags = [&](CLI::App* app) { AddFlags(app, &flags); },
       .check_flags = [&] { return CheckFlags(flags); },
       .serve =
           [&](const NodeOptions& options) { return Serve(flags, options); }},
      argc,
      argv);
}

}  // namespace
}  // namespace specwire::draft

int main(int argc, char** argv) { return specwire::draft::Main(argc, argv); }
