// SPDX-License-Identifier: Apache-2.0
#include "draft_node/make_drafter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/ngram.h"
#include "common/drafting/random.h"
#include "common/drafting/suffix.h"
#include "common/model/engine_names.h"
#include "common/model_drafting/model_drafter.h"
#include "common/text/tokenizer.h"
#include "draft_node/hybrid_drafter.h"

namespace specwire::draft {

absl::Status CheckDrafterOptions(const DrafterOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckDrafterName(options.name, "--drafter"));
  const DrafterKind& kind = *FindDrafterKind(options.name);
  SPECWIRE_RETURN_IF_ERROR(CheckEngineName(options.engine.engine, "--engine"));
  if (options.engine.num_layers < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_layers: ", options.engine.num_layers, " is negative"));
  }
  if (options.engine.num_layers > 0 && !kind.takes_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_layers: belongs to the drafters model and hybrid, not to ",
        options.name));
  }
  if (options.name == kSyntheticDrafter) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckSyntheticAllowed(options.allow_synthetic, "--drafter synthetic"));
    SPECWIRE_RETURN_IF_ERROR(CheckSyntheticDrafterOptions(options.synthetic));
  } else if (options.synthetic.acceptance !=
             SyntheticDrafterOptions().acceptance) {
    return absl::InvalidArgumentError(
        absl::StrCat("--synthetic_acceptance: belongs to the drafter ",
                     kSyntheticDrafter,
                     ", not to ",
                     options.name));
  }
  if (!kind.has_model) {
    if (options.model.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_model: the drafter ", options.name, " has no model"));
  }
  if (options.model.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_model: the drafter ", options.name, " needs a model file"));
  }
  if (options.engine.kv_cache_mib < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kv_cache_mib: ", options.engine.kv_cache_mib, " is less than 1"));
  }
  return absl::OkStatus();
}

namespace {

// A drafter of the loaded model, named `name`; errors name the file.
absl::StatusOr<std::unique_ptr<ModelDrafter>> MakeModelDrafter(
    const std::string& file,
    std::unique_ptr<Engine> engine,
    const std::string& name) {
  absl::StatusOr<std::unique_ptr<ModelDrafter>> drafter =
      ModelDrafter::Create(std::move(engine), {.name = name});
  if (drafter.ok()) return drafter;
  return absl::Status(
      drafter.status().code(),
      absl::StrCat("--draft_model: ", file, ": ", drafter.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const DrafterOptions& options) {
  if (options.name == kNgramDrafter) {
    return NgramDrafter::Create(NgramOptions());
  }
  if (options.name == kSuffixDrafter) {
    return SuffixDrafter::Create(SuffixOptions());
  }
  if (options.name == kRandomDrafter) {
    return std::make_unique<RandomDrafter>();
  }
  if (options.name == kSyntheticDrafter) {
    SyntheticDrafterOptions synthetic = options.synthetic;
    SPECWIRE_ASSIGN_OR_RETURN(
        const std::unique_ptr<Tokenizer> tokenizer,
        Tokenizer::Create(SyntheticLanguage(synthetic.vocab_size).Tokenizer()));
    synthetic.vocabulary_fingerprint = tokenizer->fingerprint();
    return std::make_unique<SyntheticDrafter>(std::move(synthetic));
  }
  EngineOptions engine_options = options.engine;
  engine_options.allow_draft_model = true;
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                            LoadEngine(options.model, engine_options));
  SPECWIRE_LOG(Info,
               "model ",
               engine->info().name,
               ", ",
               engine->info().num_layers,
               " layers, engine ",
               engine->info().engine,
               ", threads ",
               options.engine.num_threads,
               ", digest ",
               engine->info().model_digest,
               ", max_model_len ",
               engine->info().max_model_len,
               ", ",
               engine->kv_blocks_total(),
               " KV blocks of ",
               engine->kv_block_size(),
               " tokens");
  if (options.name != kHybridDrafter) {
    return MakeModelDrafter(options.model, std::move(engine), options.name);
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      std::unique_ptr<ModelDrafter> model,
      MakeModelDrafter(options.model, std::move(engine), kModelDrafter));
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<SuffixDrafter> lookup,
                            SuffixDrafter::Create(SuffixOptions()));
  return std::make_unique<HybridDrafter>(std::move(lookup), std::move(model));
}

}  // namespace specwire::draft
