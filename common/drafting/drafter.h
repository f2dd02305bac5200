// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/history.h"
#include "common/sampling/params.h"
#include "common/sampling/ratio.h"

namespace specwire {

// What a drafter is told of a sequence when it opens.
struct DraftSequenceParams {
  // How the target draws its tokens; the drafter uses the same noise.
  SamplingParams sampling;
  // What the sampler must know of the sequence beside that.
  SequenceContext context;
  // Index of this sample among the request's n.
  int32_t choice = 0;
  // Tokens in the target's vocabulary; 0 if that was not told.
  int vocab_size = 0;
  AcceptanceRule rule = AcceptanceRule::kCoupled;
  // Separates what a drafter remembers of tenants.
  std::string tenant_salt;
};

// Where a run ends at the latest.
struct DraftLimits {
  // Tokens, >= 1.
  int max_tokens = 1;
  // Before the first token whose estimated survival is lower, in [0, 1); see
  // DraftRun::survival. A drafter that makes no estimate takes no notice.
  float min_survival = 0;
};

// What a drafter proposes.
struct DraftRun {
  // Follow the path; fewer than asked for where the drafter is unsure, none if
  // it has nothing to say.
  std::vector<int32_t> tokens;
  // For each of tokens the estimated chance that it and all before it in the
  // run are accepted, in [0, 1], never rising; empty if it makes no estimate.
  std::vector<float> survival = {};
  // Ratio rule: what each of tokens was drawn from, by noise that nothing else
  // uses. Empty: each follows from the path alone, so it was certain. Whether a
  // place has a token must not depend on the token drawn there.
  std::vector<DraftDistribution> q = {};
  // Fewer tokens than asked for, but not for want of more: the path grew while
  // they were made, and they end where they were to end before that.
  bool more = false;
};

// A drafter's state for one sequence. Commits, rewinds and rollbacks do not
// reach it: it is handed the whole path each time and finds for itself how much
// of what it has cached still holds.
//
// Thread safety: the drafter's thread only, destructor included.
// Lifetime: must not outlive its Drafter.
class DraftSequence {
 public:
  virtual ~DraftSequence() = default;
  // Tokens that may follow `path` (committed tokens, then the drafter's own
  // earlier ones), within `limits`. An error ends the sequence's draft stream.
  // REQUIRES: path is not empty.
  virtual absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                           const DraftLimits& limits) = 0;
};

// What one sequence is asked for in a batch.
struct DraftTask {
  DraftSequence* sequence = nullptr;
  // As DraftSequence::Propose says.
  absl::Span<const int32_t> path;
  DraftLimits limits;
  // The answer, as of DraftSequence::Propose. None yet: there is more to
  // compute, so the task is to be put again. Its path may have changed by then.
  std::optional<absl::StatusOr<DraftRun>> result = std::nullopt;
};

// What an engine pass computed for a batch; nothing where none was needed.
struct DraftPass {
  int num_sequences = 0;
  int num_rows = 0;
};

// Makes draft tokens for many sequences.
//
// Thread safety: NewSequence on the drafter's thread; the rest from any.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // For example "ngram".
  virtual const std::string& name() const = 0;
  // Fingerprint of the vocabulary it was made for; empty: serves any.
  virtual const std::string& vocabulary_fingerprint() const = 0;
  // Digest of its model; empty if it has none.
  virtual const std::string& model_digest() const = 0;
  // Longest path it drafts for, in tokens; 0: no limit.
  virtual int max_model_len() const = 0;
  // Its proposals are made up, by a given law of acceptance.
  virtual bool synthetic() const { return false; }
  virtual std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) = 0;

  // Tasks that one Propose may have. 1 where they gain nothing from each other,
  // so that each proposal leaves at once.
  virtual int max_batch() const { return 1; }
  // Works for all tasks, which are of different sequences, at once; those that
  // come first go first where there is no room for all. What fails in one shows
  // in its result only. One call is short, a pass of a model at most; each
  // brings its tasks nearer to their results. By default it runs them one by
  // one, to their ends.
  // REQUIRES: 1 to max_batch() tasks without results; the drafter's thread.
  virtual DraftPass Propose(absl::Span<DraftTask> tasks) {
    for (DraftTask& task : tasks) {
      task.result = task.sequence->Propose(task.path, task.limits);
    }
    return {};
  }

  // KV blocks in the pool and in use; both 0 without a cache.
  virtual int64_t kv_blocks_total() const { return 0; }
  virtual int64_t kv_blocks_used() const { return 0; }
  // Blocks that are kept for their prefixes only.
  virtual int64_t kv_blocks_cached() const { return 0; }
  // As Engine::progress: counts up within a Propose that gets on.
  virtual int64_t progress() const { return 0; }
};

}  // namespace specwire
