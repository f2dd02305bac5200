// SPDX-License-Identifier: Apache-2.0
#include "draft_node/draft_time.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace specwire::draft {
namespace {

// Ids that every vocabulary has, but for the lowest, which are often special.
constexpr int32_t kFirstId = 8;
constexpr int32_t kPathLength = 32;
constexpr int kRunLength = 4;
constexpr int kMaxRuns = 8;
constexpr absl::Duration kMaxTime = absl::Milliseconds(100);

int64_t Nanoseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

absl::StatusOr<int64_t> MeasureDraftTokenNs(Drafter* drafter) {
  if (drafter->synthetic()) return 0;
  std::vector<int32_t> path;
  for (int32_t i = 0; i < kPathLength; ++i) path.push_back(kFirstId + i);
  DraftSequenceParams params;
  params.sampling.temperature = 0;
  params.context.prompt_length = kPathLength;
  params.vocab_size = kFirstId + kPathLength;
  const std::unique_ptr<DraftSequence> sequence = drafter->NewSequence(params);
  // Takes up the path, which is not to be counted.
  SPECWIRE_RETURN_IF_ERROR(
      sequence->Propose(path, {.max_tokens = kRunLength}).status());
  int64_t fastest = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kMaxRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (i > 0 && start - begin > absl::ToChronoNanoseconds(kMaxTime)) break;
    SPECWIRE_ASSIGN_OR_RETURN(
        const DraftRun run,
        sequence->Propose(path, {.max_tokens = kRunLength}));
    const int64_t tokens =
        std::max<int64_t>(static_cast<int64_t>(run.tokens.size()), 1);
    const int64_t time =
        Nanoseconds(std::chrono::steady_clock::now() - start) / tokens;
    if (i == 0 || time < fastest) fastest = time;
  }
  // 0 would say that it was not measured.
  return std::max<int64_t>(fastest, 1);
}

}  // namespace specwire::draft
