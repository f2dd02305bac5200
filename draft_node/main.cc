// SPDX-License-Identifier: Apache-2.0

// draft_node: proposes draft tokens.

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/signals.h"
#include "common/base/standard_streams.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"
#include "common/rpc/node_main.h"
#include "draft_node/drafter_thread.h"
#include "draft_node/make_drafter.h"
#include "draft_node/service.h"

namespace specwire::draft {
namespace {

constexpr char kProgram[] = "draft_node";
constexpr int kMaxSequences = 4096;

struct Flags {
  NodeFlags node;
  DrafterOptions drafter;
  int max_num_sequences = DrafterThreadOptions().max_num_sequences;
};

void AddFlags(CLI::App* app, Flags* flags) {
  AddNodeFlags(app, &flags->node);
  app->add_option(
         "--drafter",
         flags->drafter.name,
         "what drafts: ngram (prompt lookup), model (a causal LM); for "
         "tests: oracle, adversarial (the target's own file), random")
      ->required();
  app->add_option("--draft_model",
                  flags->drafter.model,
                  "the drafter's GGUF file, for those that have a model");
  app->add_option("--draft_layers",
                  flags->drafter.engine.num_layers,
                  "only the first N layers of the model, with its own final "
                  "norm and head; 0: all")
      ->capture_default_str();
  app->add_option("--min_confidence",
                  flags->drafter.min_confidence,
                  "model: end a run before a token less likely than this")
      ->capture_default_str();
  app->add_option("--kv_cache_mib",
                  flags->drafter.engine.kv_cache_mib,
                  "size of the drafter's KV cache in MiB")
      ->capture_default_str();
  app->add_option("--max_num_sequences",
                  flags->max_num_sequences,
                  "sequences at once; one more is refused")
      ->capture_default_str();
}

absl::Status CheckFlags(const Flags& flags) {
  if (flags.max_num_sequences < 1 || flags.max_num_sequences > kMaxSequences) {
    return absl::InvalidArgumentError(absl::StrCat("--max_num_sequences: ",
                                                   flags.max_num_sequences,
                                                   " is not between 1 and ",
                                                   kMaxSequences));
  }
  return CheckDrafterOptions(flags.drafter);
}

void AddGauges(MetricsRegistry* registry,
               const Drafter* drafter,
               const DrafterThread* thread) {
  registry->AddCallbackGauge(
      metric::kNumRequestsRunning, "Sequences that are open.", {}, [thread] {
        return thread->num_sequences();
      });
  if (drafter->kv_blocks_total() == 0) return;
  registry->AddCallbackGauge(
      metric::kKvCacheUsage, "Used part of the KV cache.", {}, [drafter] {
        return static_cast<double>(drafter->kv_blocks_used()) /
               static_cast<double>(drafter->kv_blocks_total());
      });
}

absl::Status Serve(const Flags& flags, const NodeOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckAddressesFree(options));
  DrafterOptions drafter_options = flags.drafter;
  drafter_options.engine.num_threads = options.num_threads;
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Drafter> drafter,
                            MakeDrafter(drafter_options));
  SPECWIRE_LOG(Info,
               "drafter ",
               drafter->name(),
               ", max_num_sequences ",
               flags.max_num_sequences);

  MetricsRegistry registry(MetricLabels{{metric::kNodeRole, "draft"}});
  AddBuildInfo(&registry);
  DrafterThread thread(
      drafter.get(), {.max_num_sequences = flags.max_num_sequences}, &registry);
  AddGauges(&registry, drafter.get(), &thread);
  DraftServiceImpl service(*drafter, &thread);
  thread.Start();

  NodeParts parts;
  parts.role = v1::NODE_ROLE_DRAFT;
  parts.service_name = v1::DraftService::service_full_name();
  parts.service = &service;
  parts.metrics = &registry;
  parts.load = [&] {
    v1::NodeLoad load;
    load.set_num_sequences(thread.num_sequences());
    load.set_kv_blocks_used(drafter->kv_blocks_used());
    load.set_kv_blocks_total(drafter->kv_blocks_total());
    load.set_progress(thread.progress());
    return load;
  };
  parts.working_for = [&] { return thread.worker()->working_for(); };
  parts.stop = [&] { thread.Stop(); };
  return RunNode(options, parts);
}

int Main(int argc, char** argv) {
  CLI::App app("Proposes draft tokens.", kProgram);
  Flags flags;
  AddFlags(&app, &flags);
  if (const auto code = ParseFlags(&app, argc, argv)) return *code;
  if (absl::Status status = CheckFlags(flags); !status.ok()) {
    return ExitWithError(kProgram, status, /*usage=*/true);
  }
  const absl::StatusOr<NodeOptions> options =
      CheckNodeFlags(flags.node, "draft");
  if (!options.ok()) {
    return ExitWithError(kProgram, options.status(), /*usage=*/true);
  }
  InitLogging(kProgram, options->log_level);
  if (absl::Status status = Serve(flags, *options); !status.ok()) {
    return ExitWithError(kProgram, status, /*usage=*/false);
  }
  return 0;
}

}  // namespace
}  // namespace specwire::draft

int main(int argc, char** argv) {
  specwire::ReserveStandardStreams();
  specwire::BlockShutdownSignals();
  return specwire::draft::Main(argc, argv);
}
