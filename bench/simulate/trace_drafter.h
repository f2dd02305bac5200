// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "bench/simulate/trace.h"
#include "common/drafting/drafter.h"

namespace specwire::simulate {

// The tokens of a simulated text: which they are says where they stand and
// whether the target would choose them, and nothing else.
inline constexpr int kTraceVocabulary = 1 << 18;
inline int32_t RightToken(int position) { return position; }
inline int32_t WrongToken(int position) {
  return kTraceVocabulary / 2 + position;
}
// Prompt and completion.
std::vector<int32_t> TraceText(const Trace& trace);

// Proposes what a trace says. Behind a draft token that is wrong it goes on
// with the rest of the run that it was part of, as a lookup does, and then with
// runs as long as those that the trace has there, all wrong.
//
// Thread safety: one thread at a time.
// Lifetime: the trace outlives it.
class TraceDrafter {
 public:
  explicit TraceDrafter(const Trace* trace) : trace_(trace) {}

  struct Result {
    DraftRun run;
    // Tokens that a model computed for it.
    int model_tokens = 0;
  };
  // As DraftSequence::Propose.
  Result Propose(absl::Span<const int32_t> path, const DraftLimits& limits);

 private:
  const TracePosition* At(int position) const;

  const Trace* const trace_;
  // Where the latest run began whose path was right; -1: none has.
  int start_ = -1;
};

}  // namespace specwire::simulate
