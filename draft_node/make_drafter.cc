// SPDX-License-Identifier: Apache-2.0
#include "draft_node/make_drafter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram.h"
#include "draft_node/oracle_drafter.h"

namespace specwire::draft {
namespace {

constexpr char kNgram[] = "ngram";
constexpr char kOracle[] = "oracle";

}  // namespace

absl::Status CheckDrafterOptions(const DrafterOptions& options) {
  if (options.name != kNgram && options.name != kOracle) {
    return absl::InvalidArgumentError(absl::StrCat("--drafter: \"",
                                                   options.name,
                                                   "\" is unknown; known: ",
                                                   kNgram,
                                                   ", ",
                                                   kOracle));
  }
  if (options.num_layers != 0) {
    return absl::InvalidArgumentError(
        "--draft_layers: belongs to the drafter \"model\", which is not there "
        "yet");
  }
  if (options.name == kNgram) {
    if (options.model.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--draft_model: the drafter ngram has no model");
  }
  if (options.model.empty()) {
    return absl::InvalidArgumentError(
        "--draft_model: the drafter oracle needs the target's model file");
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
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                            LoadEngine(options.model, options.engine));
  SPECWIRE_LOG(Info,
               "model ",
               engine->info().name,
               ", digest ",
               engine->info().model_digest,
               ", max_model_len ",
               engine->info().max_model_len,
               ", ",
               engine->kv_blocks_total(),
               " KV blocks of ",
               engine->kv_block_size(),
               " tokens");
  return OracleDrafter::Create(std::move(engine));
}

}  // namespace specwire::draft
