// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/step_costs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "common/base/status_macros.h"
#include "verifier_node/check_logits.h"

namespace specwire::verifier {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kContextLength = 256;
constexpr int kLeastTurns = 3;
constexpr int kMostTurns = 15;
constexpr Clock::duration kTime = std::chrono::seconds(1);
// Where turns are long: after this even fewer of them must do, but for the
// first. Nobody is served meanwhile.
constexpr Clock::duration kLongestTime = std::chrono::seconds(3);

absl::StatusOr<absl::Span<const float>> Compute(Engine* engine,
                                                KvSequence* kv,
                                                int num_rows) {
  // Which tokens they are makes no difference to the time.
  const std::vector<int32_t> tokens(static_cast<size_t>(num_rows), 0);
  const ForwardRun run = {.kv = kv, .tokens = tokens, .num_logits = num_rows};
  return engine->Forward(absl::MakeConstSpan(&run, 1));
}

// Positions of one sequence.
int Room(const Engine& engine) {
  const int64_t in_cache = engine.kv_blocks_total() * engine.kv_block_size();
  return static_cast<int>(
      std::min<int64_t>(in_cache, engine.info().max_model_len));
}

absl::Duration Median(std::vector<absl::Duration> durations) {
  std::sort(durations.begin(), durations.end());
  return durations[durations.size() / 2];
}

}  // namespace

absl::StatusOr<std::vector<StepCost>> MeasureStepCosts(
    Engine* engine, absl::Span<const int> rows) {
  const int room = Room(*engine);
  const int context = std::min(kContextLength, room / 2);
  std::vector<StepCost> costs;
  for (const int num_rows : rows) {
    if (context + num_rows > room) continue;
    costs.push_back(
        {.num_rows = num_rows, .context_length = context, .duration = {}});
  }
  const std::unique_ptr<KvSequence> kv = engine->NewSequence();
  // Warms up, too.
  if (context > 0) {
    SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                              Compute(engine, kv.get(), context));
    // A broken model is better told of now than to the first caller.
    SPECWIRE_RETURN_IF_ERROR(CheckLogits(logits));
  }
  std::vector<std::vector<absl::Duration>> durations(costs.size());
  const Clock::time_point begin = Clock::now();
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const Clock::duration spent = Clock::now() - begin;
    if (spent > (turn < kLeastTurns ? kLongestTime : kTime)) break;
    for (size_t i = 0; i < costs.size(); ++i) {
      const Clock::time_point start = Clock::now();
      SPECWIRE_RETURN_IF_ERROR(
          Compute(engine, kv.get(), costs[i].num_rows).status());
      durations[i].push_back(absl::FromChrono(Clock::now() - start));
      kv->Truncate(context);
    }
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    costs[i].duration = Median(std::move(durations[i]));
  }
  return costs;
}

}  // namespace specwire::verifier
