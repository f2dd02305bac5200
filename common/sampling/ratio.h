// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/sampling/pipeline.h"

// The ratio rule (Leviathan, Kalman, Matias: "Fast Inference from Transformers
// via Speculative Decoding", 2023), as pure functions. Let p be the target's
// distribution at a position and q the one that a drafter drew its token x
// from. The token is
//   x, with probability min(1, p(x) / q(x)), else
//   drawn from the positive part of p - q, normalised;
// after a run whose tokens were all accepted, and where there is no proposal,
// it is drawn from p. Then it is distributed as p, whatever q is, provided that
// x was drawn from exactly this q.
//
// Every draw takes one noise word, keyed by seed, position and choice and by
// what it decides (NoiseStream), and turns it into u = (word + 1/2) / 2^32. A
// draw from a distribution takes the first token, in the order of ids, at which
// the sum of probabilities exceeds u times the sum of all; sums are doubles in
// that order. All of it is the same on every machine.
//
// Thread safety: all functions from any thread.

namespace specwire {

// Most tokens in a draft distribution.
inline constexpr int kMaxDraftDistribution = 4096;

// What a drafter drew a token from, as it crosses the wire: the probability of
// token i is probabilities[i] / (their sum), which both sides compute from the
// same floats, so rounding them biases nothing.
struct DraftDistribution {
  // Ascending.
  std::vector<int32_t> token_ids;
  // As many as token_ids.
  std::vector<float> probabilities;
};

// Names the noise of a sequence's draws at one position.
struct DrawKey {
  uint64_t seed = 0;
  int position = 0;
  // Index of the sample among the request's n.
  int32_t choice = 0;
};

// Whether a draft token and the distribution sent with it can be verified:
// 1 to kMaxDraftDistribution tokens, ids ascending, each in [0, vocab_size);
// as many probabilities, each in (0, 1]; a sum within 1e-3 of 1; the token
// among them. INVALID_ARGUMENT naming the field and its limit.
//
// The tolerance lets probabilities through that were rounded to half precision
// (2^-11 = 4.9e-4) and stops those that are of something else. It is no slack
// in the rule, since both sides divide by the sum.
absl::Status ValidateDraft(const DraftDistribution& q,
                           int32_t token,
                           int vocab_size);

// The probability of a token under a distribution that ValidateDraft let pass;
// 0 if it is not among its tokens.
double DraftProbability(const DraftDistribution& q, int32_t token);

// The `max_tokens` most likely tokens of a distribution, lower ids first on a
// tie, as floats: what a drafter should draw from and send. Tokens whose
// probability is no positive float are left out. REQUIRES: max_tokens >= 1.
DraftDistribution TruncateForDraft(const TokenDistribution& distribution,
                                   int max_tokens);

// The drafter's token. REQUIRES: q is one that TruncateForDraft made, not
// empty.
int32_t DrawDraft(const DraftDistribution& q, const DrawKey& key);

struct DraftVerdict {
  bool accepted = false;
  // The draft token, or its correction.
  int32_t token = -1;
};

// Judges a draft token. REQUIRES: p is not empty, ValidateDraft(q, token, ...)
// is OK.
DraftVerdict VerifyDraft(const TokenDistribution& p,
                         const DraftDistribution& q,
                         int32_t token,
                         const DrawKey& key);

// The token after a run that was accepted as a whole, and the token at a
// position that has no proposal. REQUIRES: p is not empty.
int32_t DrawBonus(const TokenDistribution& p, const DrawKey& key);
int32_t DrawPlain(const TokenDistribution& p, const DrawKey& key);

}  // namespace specwire
