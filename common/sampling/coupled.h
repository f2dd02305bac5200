// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/row_maxima.h"

namespace specwire {

// Chooses tokens under the coupled rule (Gumbel-max with shared noise; Daliri,
// Musco, Suresh, arXiv 2408.07978): the token at position t is
//   argmax_v (l_t(v) + g(seed, t, v))
// over the tokens that survive the pipeline, where l is the log-probability and
// g Gumbel noise keyed by seed, position, token and choice; lowest id on a tie.
// At temperature 0 it is the arg-max of the processed logits. Target and
// drafter use the same class, each on its own logits, so a draft token is right
// if it is equal.
//
// One for each sequence. What it chooses is a pure function of logits, history
// and parameters; it remembers counts and memory only to be quick.
//
// Thread safety: one thread at a time.
class CoupledSampler {
 public:
  // `choice` is the index of this sample among the request's n.
  CoupledSampler(SamplingParams params,
                 int32_t choice,
                 SequenceContext context = {});

  // The token at history.position() given the target's logits there,
  // [vocab_size] f32; -1 if no logit is above -infinity. REQUIRES: logits is
  // not empty.
  int32_t Choose(absl::Span<const float> logits, const TokenHistory& history);

  // True if Choose() at this position is the arg-max of the raw logits, which
  // then need not be written down.
  bool IsPlainArgMax(int position) const {
    return pipeline_.greedy() && !pipeline_.ProcessesAt(position);
  }

  const SamplingParams& params() const { return pipeline_.params(); }

 private:
  class Race;

  // Enters all that could win without looking at all.
  void EnterUncut(absl::Span<const float> row, Race* race);
  void EnterLikeliest(absl::Span<const float> row, Race* race);
  // Enters those of groups [begin, end) whose noise could suffice.
  void EnterGroups(absl::Span<const float> row,
                   size_t begin,
                   size_t end,
                   Race* race);

  Pipeline pipeline_;
  int32_t choice_;
  double temperature_;
  RowMaxima maxima_;
  // Scratch.
  std::vector<uint32_t> groups_;
  std::vector<uint32_t> thresholds_;
  std::vector<uint32_t> hits_;
};

}  // namespace specwire
