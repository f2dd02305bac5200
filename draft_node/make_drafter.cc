// SPDX-License-Identifier: Apache-2.0
#include "draft_node/make_drafter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram.h"
#include "common/drafting/random.h"
#include "draft_node/model_drafter.h"

namespace specwire::draft {
namespace {

constexpr absl::string_view kNgram = "ngram";
constexpr absl::string_view kRandom = "random";
constexpr absl::string_view kModel = "model";
constexpr absl::string_view kNames[] = {
    kNgram, kModel, "oracle", kRandom, "adversarial"};

bool HasModel(absl::string_view name) {
  return name != kNgram && name != kRandom;
}

}  // namespace

std::string DrafterNames() { return absl::StrJoin(kNames, ", "); }

absl::Status CheckDrafterOptions(const DrafterOptions& options) {
  if (std::find(std::begin(kNames), std::end(kNames), options.name) ==
      std::end(kNames)) {
    return absl::InvalidArgumentError(absl::StrCat("--drafter: \"",
                                                   options.name,
                                                   "\" is unknown; known: ",
                                                   DrafterNames()));
  }
  if (options.engine.num_layers < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_layers: ", options.engine.num_layers, " is negative"));
  }
  if (options.engine.num_layers > 0 && options.name != kModel) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--draft_layers: belongs to the drafter model, not to ", options.name));
  }
  if (!(options.min_confidence >= 0 && options.min_confidence < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_confidence: ", options.min_confidence, " is not in [0, 1)"));
  }
  if (options.min_confidence > 0 && options.name != kModel) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_confidence: belongs to the drafter model, not to ",
                     options.name));
  }
  if (!HasModel(options.name)) {
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

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const DrafterOptions& options) {
  if (options.name == kNgram) return NgramDrafter::Create(NgramOptions());
  if (options.name == kRandom) return std::make_unique<RandomDrafter>();
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                            LoadEngine(options.model, options.engine));
  SPECWIRE_LOG(Info,
               "model ",
               engine->info().name,
               ", ",
               engine->info().num_layers,
               " layers, digest ",
               engine->info().model_digest,
               ", max_model_len ",
               engine->info().max_model_len,
               ", ",
               engine->kv_blocks_total(),
               " KV blocks of ",
               engine->kv_block_size(),
               " tokens");
  return ModelDrafter::Create(
      std::move(engine),
      {.name = options.name, .min_confidence = options.min_confidence});
}

}  // namespace specwire::draft
