// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {

using Kind = VerifySequence::Next::Kind;

inline constexpr int kVocabulary = 100;
inline constexpr VerifyLimits kLimits = {kVocabulary, 64};

inline absl::Time Ms(int64_t t) { return absl::FromUnixMillis(t); }

// A prompt of three tokens, room for 20 more, no stops, lock-step.
inline VerifyParams Params() {
  VerifyParams params;
  params.tokens = {1, 2, 3};
  params.prompt_length = 3;
  params.max_tokens = 20;
  params.source = 1;
  params.decode_until = 1000;
  params.patience = absl::InfiniteDuration();
  return params;
}

inline VerifySequence MakeSequence(const VerifyParams& params = Params()) {
  absl::StatusOr<VerifySequence> sequence =
      VerifySequence::Open(params, kLimits);
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return *std::move(sequence);
}

inline Proposal MakeRun(int position,
                        int based_on,
                        std::vector<int32_t> tokens,
                        int source = 1) {
  Proposal proposal;
  proposal.source = source;
  proposal.position = position;
  proposal.based_on = based_on;
  proposal.tokens = std::move(tokens);
  return proposal;
}

// One step whose target tokens are `target`; the rows that it verifies are as
// many as `target` has, less one.
inline Commit Step(VerifySequence* sequence,
                   const std::vector<int32_t>& target) {
  const auto rows = sequence->BeginStep(static_cast<int>(target.size()) - 1);
  EXPECT_EQ(rows.size() + 1, target.size());
  return sequence->FinishStep(target, Ms(0));
}

// A sequence whose log is 1 2 3 | 10 11, fence 3, nothing pending.
inline VerifySequence AtFive() {
  VerifySequence sequence = MakeSequence();
  Step(&sequence, {10});
  Step(&sequence, {11});
  return sequence;
}

inline Kind NextKind(const VerifySequence& sequence, int64_t now = 0) {
  return sequence.NextAt(Ms(now)).kind;
}

}  // namespace specwire::verifier
