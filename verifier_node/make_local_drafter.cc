// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/make_local_drafter.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/suffix.h"
#include "common/model_drafting/model_drafter.h"
#include "common/text/tokenizer.h"

namespace specwire::verifier {
namespace {

// Whether the draft model was made for the target's vocabulary.
absl::Status CheckVocabulary(const LocalDrafterOptions& options,
                             const Drafter& model,
                             const Engine& target) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(target.tokenizer_model()));
  if (model.vocabulary_fingerprint() == tokenizer->fingerprint()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--local_draft_model: ",
                   options.model,
                   " has the vocabulary ",
                   model.vocabulary_fingerprint(),
                   ", and ",
                   target.info().name,
                   " has ",
                   tokenizer->fingerprint()));
}

absl::StatusOr<std::unique_ptr<Drafter>> LoadModel(
    const LocalDrafterOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.allow_draft_model = true;
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                            LoadEngine(options.model, engine_options));
  const std::string model_name = engine->info().name;
  SPECWIRE_ASSIGN_OR_RETURN(
      std::unique_ptr<ModelDrafter> model,
      ModelDrafter::Create(std::move(engine), ModelDrafterOptions()));
  SPECWIRE_LOG(Info,
               "local draft model ",
               model_name,
               ", digest ",
               model->model_digest(),
               ", max_model_len ",
               model->max_model_len(),
               ", ",
               model->kv_blocks_total(),
               " KV blocks");
  return model;
}

}  // namespace

absl::Status CheckLocalDrafterOptions(const LocalDrafterOptions& options) {
  if (options.name == kHybridDrafter) {
    if (!options.model.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--local_draft_model: the local drafter ",
                     kHybridDrafter,
                     " needs a model file"));
  }
  if (options.name != kSuffixDrafter && options.name != kNoDrafter) {
    return absl::InvalidArgumentError(absl::StrCat("--local_drafter: \"",
                                                   options.name,
                                                   "\" is unknown; known: ",
                                                   kSuffixDrafter,
                                                   ", ",
                                                   kHybridDrafter,
                                                   ", ",
                                                   kNoDrafter));
  }
  if (options.model.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--local_draft_model: the local drafter ",
                   options.name,
                   " has no model"));
}

absl::StatusOr<std::unique_ptr<Drafter>> LoadLocalDraftModel(
    const LocalDrafterOptions& options) {
  if (options.name != kHybridDrafter) return nullptr;
  absl::StatusOr<std::unique_ptr<Drafter>> model = LoadModel(options);
  if (model.ok()) return model;
  const absl::string_view why = model.status().message();
  return absl::Status(model.status().code(),
                      absl::StrCat("--local_draft_model: ",
                                   absl::StrContains(why, options.model)
                                       ? ""
                                       : absl::StrCat(options.model, ": "),
                                   why));
}

absl::StatusOr<std::unique_ptr<LocalDrafter>> MakeLocalDrafter(
    const LocalDrafterOptions& options,
    std::unique_ptr<Drafter> model,
    const Engine& target,
    const Clock* clock) {
  if (options.name == kNoDrafter) return nullptr;
  if (model != nullptr) {
    SPECWIRE_RETURN_IF_ERROR(CheckVocabulary(options, *model, target));
  }
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<SuffixDrafter> lookup,
                            SuffixDrafter::Create(SuffixOptions()));
  return std::make_unique<LocalDrafter>(
      std::move(lookup), std::move(model), clock);
}

}  // namespace specwire::verifier
