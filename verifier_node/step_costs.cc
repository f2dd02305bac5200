// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/step_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "common/base/status_macros.h"

namespace specwire::verifier {
namespace {

constexpr int kContextLength = 16;
constexpr size_t kPasses = 3;

absl::Status Compute(Engine* engine, KvSequence* kv, int num_rows) {
  // Which tokens they are makes no difference to the time.
  const std::vector<int32_t> tokens(static_cast<size_t>(num_rows), 0);
  const ForwardRun run = {.kv = kv, .tokens = tokens, .num_logits = num_rows};
  return engine->Forward(absl::MakeConstSpan(&run, 1)).status();
}

}  // namespace

absl::StatusOr<std::vector<StepCost>> MeasureStepCosts(
    Engine* engine, absl::Span<const int> rows) {
  const int64_t in_cache = engine->kv_blocks_total() * engine->kv_block_size();
  const int64_t room =
      std::min<int64_t>(in_cache, engine->info().max_model_len);
  const std::unique_ptr<KvSequence> kv = engine->NewSequence();
  std::vector<StepCost> costs;
  for (const int num_rows : rows) {
    if (kContextLength + num_rows > room) continue;
    // The first pass also warms up.
    if (kv->length() == 0) {
      SPECWIRE_RETURN_IF_ERROR(Compute(engine, kv.get(), kContextLength));
    }
    std::array<absl::Duration, kPasses> durations;
    for (absl::Duration& duration : durations) {
      const auto start = std::chrono::steady_clock::now();
      SPECWIRE_RETURN_IF_ERROR(Compute(engine, kv.get(), num_rows));
      duration = absl::FromChrono(std::chrono::steady_clock::now() - start);
      kv->Truncate(kContextLength);
    }
    std::sort(durations.begin(), durations.end());
    costs.push_back({.num_rows = num_rows,
                     .context_length = kContextLength,
                     .duration = durations[kPasses / 2]});
  }
  return costs;
}

}  // namespace specwire::verifier
