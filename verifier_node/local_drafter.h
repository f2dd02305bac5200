// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/drafting/drafter.h"
#include "common/drafting/suffix.h"

namespace specwire::verifier {

// What it costs at present to draft and to verify.
struct LocalPrices {
  // Tokens that the node commits in a second of its passes: what a second
  // spent on anything else costs.
  double tokens_per_second = 0;
  // Seconds that one more row adds to a pass.
  double row_seconds = 0;
  // Seconds that the first of them adds beyond that.
  double first_row_seconds = 0;
  // Sequences that decode side by side.
  int num_sequences = 1;
};

// How likely a token of a model is right if all before it in its run are: the
// first, which comes where the lookup finds little, and those behind it.
struct LocalChances {
  double first = 0;
  double next = 0;

  double& of(bool is_first) { return is_first ? first : next; }
};

// A local drafter's state for one sequence.
//
// Thread safety: the engine's thread only, destructor included.
// Lifetime: must not outlive its LocalDrafter.
class LocalSequence {
 public:
  // The model has something to do before the next step.
  bool has_work() const { return work_ != Work::kNone; }

 private:
  friend class LocalDrafter;
  enum class Work { kNone, kRead, kDraft };

  std::unique_ptr<SuffixSequence> lookup_;
  // Null: lookup alone.
  std::unique_ptr<DraftSequence> model_;
  int prompt_length_ = 0;
  // The model has computed so many of the committed tokens.
  int num_read_ = 0;
  // Of the model here.
  LocalChances chances_;
  Work work_ = Work::kNone;
};

// Where a sequence stands after a commit.
struct LocalPlace {
  // All committed tokens, at least one.
  absl::Span<const int32_t> log;
  // Draft tokens that its next step may verify.
  int max_tokens = 0;
  // Tokens that it may yet generate.
  int tokens_left = 0;
};

// What one sequence wants of the model before its next step.
struct LocalTask {
  // has_work().
  LocalSequence* sequence = nullptr;
  // All committed tokens, at least one.
  absl::Span<const int32_t> log;
  // Draft tokens, >= 1.
  int max_tokens = 1;
  // What it drafted; empty: nothing.
  DraftRun run = {};
};

// The drafter that a verifier keeps for itself: a lookup, and perhaps a small
// model for where the lookup finds little.
//
// The lookup answers at once, while a commit is on its way out. The model is
// asked only if it may be expected to bring more than the lookup's run does,
// after the price of its rows and of the time in which it holds up the passes
// of all sequences. Then it works between the commit, which has been sent by
// then, and the next pass: token after token, for all sequences in one pass of
// its own, as long as one more pays. It first reads what was committed without
// it; a long text a chunk before each step, and only once the sequence has gone
// on for long enough that this may pay.
//
// What it proposes decides how many rows a pass has, never which tokens are
// committed. Under the ratio rule, where a draft's length must not depend on
// time, there is only the lookup.
//
// Thread safety: the engine's thread, but name() from any.
// Lifetime: the clock must outlive it.
class LocalDrafter {
 public:
  // Without a model it is the lookup alone. REQUIRES: lookup is not null; the
  // model estimates survival, and its tokens are in the target's vocabulary.
  explicit LocalDrafter(std::unique_ptr<SuffixDrafter> lookup,
                        std::unique_ptr<Drafter> model = nullptr,
                        const Clock* clock = nullptr);

  // Its kind.
  const std::string& name() const { return name_; }
  std::unique_ptr<LocalSequence> NewSequence(const DraftSequenceParams& params);

  // What the lookup finds behind the committed tokens; a few microseconds, but
  // for the first time about 0.1 ms for each 1,000 tokens.
  DraftRun LookUp(absl::Span<const int32_t> log,
                  const DraftLimits& limits,
                  LocalSequence* sequence);
  // After LookUp: whether the model is to draft instead of what was found, or
  // to read. The accepted tokens to expect of it, less what drafting them
  // costs; 0: it does not draft, as where prices are not known yet.
  float Plan(const LocalPlace& place,
             const DraftRun& found,
             const LocalPrices& prices,
             LocalSequence* sequence);
  // Before a pass: does the work of these sequences, which have none then.
  void Draft(absl::Span<LocalTask> tasks, const LocalPrices& prices);

 private:
  // A task whose next token the model is to draft.
  struct Active {
    LocalTask* task = nullptr;
    // Committed tokens and the run.
    std::vector<int32_t> path = {};
    double survival = 1;
  };

  // Seconds of a pass of one row, as learnt.
  struct PassTime {
    double seconds = 0;
    int64_t num_seen = 0;

    void Learn(double measured);
    double For(int num_sequences) const;
  };

  // The first pass after one of the target, which finds nothing of the model in
  // the processor's caches, and those right behind it.
  PassTime& pass_time(bool first) { return first ? first_pass_ : next_pass_; }
  // Tokens that such a pass of the model costs.
  double PriceOf(bool first, int num_sequences, const LocalPrices& prices);
  // Whether the next token of these is worth a pass; those for whom it is not
  // worth a row are left out.
  bool Pays(bool first, const LocalPrices& prices, std::vector<Active>* active);
  // One pass of the model; those whose run goes on are left.
  void RunPass(bool first, std::vector<Active>* active);
  absl::Status CallModel(bool first, absl::Span<DraftTask> tasks);
  // Takes what came of a pass; false if the run is at its end.
  bool TakeToken(const DraftTask& result, Active* active);
  void LearnTime(bool first, const DraftPass& pass, absl::Duration time);

  const std::string name_;
  // Sequences hold on to both.
  const std::unique_ptr<SuffixDrafter> lookup_;
  const std::unique_ptr<Drafter> model_;
  const Clock* const clock_;
  PassTime first_pass_;
  PassTime next_pass_;
  // Of each row where there are many; 0: not measured yet.
  double read_row_seconds_ = 0;
  // Of all sequences.
  LocalChances chances_;
};

}  // namespace specwire::verifier
