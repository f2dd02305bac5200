// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/drafting/messages.h"
#include "common/sampling/params.h"
#include "coordinator/drafter_view.h"
#include "coordinator/request_trace.h"
#include "coordinator/speculation_control.h"

namespace specwire::coordinator {

// How a request speculates, every value in force.
struct SpeculationSettings {
  bool enabled = true;
  // Draft tokens in one proposal, 1 to kMaxRunLength. Not fixed: to begin with,
  // where the request adapts.
  int run_length = 4;
  bool fixed_run_length = true;
  // How far a drafter works ahead of the last commit, run_length to kMaxWindow.
  int window = 8;
  bool fixed_window = true;
  // How long a verifier waits for a proposal; InfiniteDuration is lock-step.
  absl::Duration patience = absl::Milliseconds(10);
  AcceptanceRule rule = AcceptanceRule::kCoupled;
};

// One sequence to generate.
struct RequestParams {
  std::vector<int32_t> prompt;
  // Completion tokens that the client has from an earlier call, at most
  // max_tokens: the sequence goes on behind them.
  std::vector<int32_t> resumed;
  // The last of them is this stop token, or completes a stop text: nothing is
  // left to do.
  std::optional<int32_t> resumed_stop;
  bool resumed_stop_text = false;
  SamplingParams sampling;
  // Completion tokens at most; set, and prompt + max_tokens fits the context.
  int max_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  SpeculationSettings speculation;
  // Who drafts, if anybody does: draft nodes, and the verifier for itself,
  // which looks up at most so many tokens a pass; 0: it does not. Under the
  // ratio rule one of the two.
  bool draft_nodes = true;
  int local_run_length = 0;
  // Set: how to draft, if at all, and when to wait for drafts is decided from
  // how they fare; `speculation.patience` is then the most that a step waits.
  // Not under the ratio rule.
  std::optional<SpeculationStart> adapt = std::nullopt;
  // The target's vocabulary; draft tokens outside it are a drafter's fault.
  int vocab_size = 0;
  // Tokens that a verifier may commit beyond what the client has taken.
  int credit = 128;
  // Verifiers that may be lost before the request fails.
  int max_moves = 2;
};

// Acceptance figures of one request, what came before a resume left out. See
// SpeculationStats in
// proto/specwire/v1/types.proto.
struct SpeculationFigures {
  int64_t num_passes = 0;
  int64_t num_spec_steps = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_draft_tokens = 0;
  // Entry j: steps that accepted exactly j.
  std::vector<int64_t> acceptance_histogram;
  // Entry i: verified draft tokens at place i of a pass, and accepted ones.
  std::vector<int64_t> draft_tokens_per_position;
  std::vector<int64_t> accepted_tokens_per_position;
  // Everything drafters sent: verified + overlapped + stale + trimmed + unused.
  int64_t num_drafted_tokens = 0;
  int64_t num_overlapped_tokens = 0;
  int64_t num_stale_tokens = 0;
  int64_t num_trimmed_tokens = 0;
  int64_t num_unused_tokens = 0;
  // Commits behind which draft tokens were outstanding that still agree, and
  // those that made such tokens worthless.
  int64_t num_ahead_hits = 0;
  int64_t num_ahead_misses = 0;
  // Of the steps, draft tokens and accepted ones: those of drafts that the
  // verifier looked up for itself.
  int64_t num_local_steps = 0;
  int64_t num_local_draft_tokens = 0;
  int64_t num_accepted_local_draft_tokens = 0;
  // Most tokens that a drafter was asked for in one proposal; 0: none was.
  int longest_run_length = 0;
  // Expected rate of tokens against plain decoding, averaged over passes; 0 if
  // the request does not adapt.
  double predicted_speedup = 0;
  // What a plain step takes; 0 if not known.
  absl::Duration plain_step;
  // From the end of the first pass to that of the last, by the verifiers'
  // clocks; without what moves to other verifiers took.
  absl::Duration passes_time;
};

// What a request machine wants done. Actions are carried out in order.

// Open a Decode stream on a verifier, not one of those lost before; answer with
// OnVerifierClosed(UNAVAILABLE) if there is none.
struct OpenVerifier {
  // Prompt and completion so far.
  std::vector<int32_t> tokens;
  int32_t source = 0;
  int decode_until = 0;
  absl::Duration patience;
  int max_draft_rows = 0;
  int local_run_length = 0;
  float local_enough = 0;
};
struct SendProposal {
  Proposal proposal;
};
struct SendDecodeTune {
  std::optional<absl::Duration> patience;
  std::optional<int> decode_until;
  std::optional<float> local_enough;
};
// Open a Draft stream, numbered `source`, on a draft node, not one of those
// lost before; answer with OnDrafterClosed if there is none.
struct OpenDrafter {
  int32_t source = 0;
  std::vector<int32_t> tokens;
  int run_length = 4;
  int window = 8;
  float min_survival = 0;
};
struct SendCommit {
  int32_t source = 0;
  int32_t position = 0;
  std::vector<int32_t> tokens;
};
struct SendRewind {
  int32_t source = 0;
  int32_t position = 0;
};
// What has changed of a drafter's settings.
struct SendDraftTune {
  int32_t source = 0;
  std::optional<int> run_length;
  std::optional<int> window;
  std::optional<float> min_survival;
};
// Cancel the streams; what they still say is not for this request.
struct CloseVerifier {};
struct CloseDrafter {
  int32_t source = 0;
  // It failed: it is not to be opened again for this request.
  bool lost = true;
};
// Call OnDrafterTimeout(source, owed) if it is still owed after the drafter
// deadline.
struct ArmDrafterTimer {
  int32_t source = 0;
  int64_t owed = 0;
};
// Tokens for the client: completion tokens first_index, first_index + 1, ...;
// the first num_accepted of them are accepted draft tokens.
struct EmitTokens {
  int32_t first_index = 0;
  std::vector<int32_t> tokens;
  int32_t num_accepted = 0;
  // For each of tokens, if the commit had them; else empty.
  std::vector<PositionLogprobs> logprobs = {};
  // Of a traced request: the pass that chose them.
  std::shared_ptr<const TracedPass> trace = nullptr;
};
// The request has ended; last action. An error status fails the call.
struct FinishRequest {
  absl::Status status;
  FinishReason reason = FinishReason::kNone;
  std::optional<int32_t> stop_token_id;
  // The judge stopped it.
  bool stop_text = false;
  // Of a traced request: what is left to tell.
  std::shared_ptr<const TracedPass> trace = nullptr;
};

using Action = std::variant<OpenVerifier,
                            SendProposal,
                            SendDecodeTune,
                            OpenDrafter,
                            SendCommit,
                            SendRewind,
                            SendDraftTune,
                            CloseVerifier,
                            CloseDrafter,
                            ArmDrafterTimer,
                            EmitTokens,
                            FinishRequest>;

// Judges stop texts, which take a tokenizer: called once for each completion
// token that was not resumed, in order. True: the token completes a stop text
// and is the last. Tokens that end the request by themselves (EOS, a stop
// token) it is not asked about.
using TokenJudge = std::function<bool(int32_t token)>;

// The coordinator's half of the token protocol for one sequence: it holds the
// token log, the only truth, and moves the sequence between nodes. Pure code:
// events in, actions out; no clock, no sockets, no choice of nodes. See
// docs/design.md.
//
// Every On... method returns what is to be done now. After FinishRequest all
// events are ignored.
//
// Thread safety: one thread at a time.
class RequestMachine {
 public:
  // `judge` may be null: no text stops the request. So may `trace`, which looks
  // on and outlives it.
  explicit RequestMachine(RequestParams params,
                          TokenJudge judge = nullptr,
                          RequestTrace* trace = nullptr);

  // Once, first. Opens the verifier, and a drafter if speculation is on; ends
  // at once if nothing is left to generate.
  std::vector<Action> Start();

  // From the Decode stream that the latest OpenVerifier opened. A commit with a
  // gap, or one that contradicts the log, loses the verifier.
  std::vector<Action> OnCommit(const Commit& commit,
                               const PassTimes& times = {});
  // The stream ended, or could not be opened. UNAVAILABLE, INTERNAL, UNKNOWN,
  // ABORTED and CANCELLED move the request to another verifier, at most
  // max_moves times, those with the mark of a node that drains
  // (common/base/draining.h) not counted; other codes fail it, and so does
  // UNAVAILABLE before
  // anything was opened
  // (`could_open` false: there is no verifier to try).
  std::vector<Action> OnVerifierClosed(const absl::Status& status,
                                       bool could_open);

  // The verifier had no room for the sequence: another is tried. Not a loss.
  // REQUIRES: !committed_here().
  std::vector<Action> OnVerifierRefused();

  // From the Draft stream numbered `source`; those of earlier streams are
  // dropped and counted. A malformed proposal, or a flood, loses the drafter.
  std::vector<Action> OnProposal(const Proposal& proposal);
  // `could_open` false: no draft node is left; the request goes on plain.
  std::vector<Action> OnDrafterClosed(int32_t source,
                                      const absl::Status& status,
                                      bool could_open);
  // A draft node has joined: a plain request that wants one may try again.
  std::vector<Action> OnDrafterAvailable();
  std::vector<Action> OnDrafterTimeout(int32_t source, int64_t owed);

  // The client has taken completion tokens up to index `count`.
  std::vector<Action> OnClientTook(int count);
  // The client has gone, or its deadline has passed.
  std::vector<Action> OnClientGone(const absl::Status& status);

  // Prompt and completion.
  absl::Span<const int32_t> log() const { return log_; }
  bool finished() const { return finished_; }
  // The present verifier has committed something.
  bool committed_here() const { return committed_here_; }
  // What the present verifier has been told of how to go on, all of it.
  SendDecodeTune verifier_settings() const;
  // Complete once finished.
  const SpeculationFigures& figures() const { return figures_; }
  // How drafts fared; nothing unless it adapts.
  std::optional<SpeculationEstimates> estimates() const;

 private:
  using Actions = std::vector<Action>;

  // INTERNAL saying why, if a verifier that keeps the protocol could not have
  // sent this.
  absl::Status CheckCommit(const Commit& commit) const;
  absl::Status CheckCommitCounts(const Commit& commit, size_t num_new) const;
  // How many of a commit's new tokens there are up to and including the one at
  // which the judge stops the request; nothing if it does not.
  std::optional<size_t> JudgedEnd(absl::Span<const int32_t> added,
                                  FinishReason finish);
  // What there is to tell of a pass, if the request is traced.
  std::shared_ptr<const TracedPass> Traced(const Commit& commit,
                                           const PassTimes& times,
                                           const RequestTrace::Share& share);
  // Counts a pass of whose tokens those from `first` on are new; the first
  // num_accepted of these are accepted draft tokens.
  void CountPass(const Commit& commit, int first, int num_accepted);
  void TakeCounters(const DecodeCounters& counters);
  // Times of a pass, not the one that a prompt was computed in.
  void TimePass(const Commit& commit, const PassTimes& times);
  // Tells the drafter, unless it is left alone or the next step has no use for
  // a proposal, of a commit, of which the last `size` tokens of the log were
  // new.
  void TellDrafter(const Commit& commit, size_t size, Actions* actions);
  // Takes a pass into account: begins or ends to leave the drafter alone,
  // changes its settings and patience.
  void Adapt(const Commit& commit, size_t size, Actions* actions);
  // Tells the drafter of what was kept from it.
  void CatchUp(Actions* actions);
  // Settings that control has chosen since the drafter was told.
  void TuneDrafter(Actions* actions);
  // What control says of a proposal's answer.
  void ObserveAnswer(const Proposal& proposal,
                     const DrafterView::Verdict& verdict);
  // How long a step should wait while a drafter serves.
  absl::Duration WantedPatience() const;
  // Most draft tokens in one pass.
  int MaxDraftRows() const;
  // Opens a Decode stream with the log so far; nothing was sent on it yet.
  void OpenVerifierStream(Actions* actions);
  // The same in place of another, of which the drafter is told.
  void ReopenVerifier(Actions* actions);
  // A verifier was lost for the reason given.
  void MoveVerifier(const absl::Status& status, Actions* actions);
  void OpenNextDrafter(Actions* actions);
  // The current drafter was lost, its stream is closed.
  void ReplaceDrafter(Actions* actions);
  void SetPatience(absl::Duration patience, Actions* actions);
  // The same with what a local draft must be expected to bring.
  void SetWaiting(absl::Duration patience,
                  float local_enough,
                  Actions* actions);
  // Arms a timer if the drafter has come to owe something new.
  void ArmTimer(Actions* actions);
  void Finish(const absl::Status& status,
              FinishReason reason,
              std::optional<int32_t> stop_token_id,
              Actions* actions);
  void Finish(FinishRequest finish, Actions* actions);
  int CompletionLength() const;

  RequestParams params_;
  const TokenJudge judge_;
  RequestTrace* const trace_;
  std::vector<int32_t> log_;
  bool finished_ = false;
  SpeculationFigures figures_;

  // The Decode stream; open from Start() on.
  bool verifier_open_ = false;
  bool committed_here_ = false;
  int verifiers_lost_ = 0;
  absl::Duration patience_;
  float local_enough_ = 0;
  int64_t decode_until_ = 0;
  // Draft tokens that it was sent, verified and reported.
  int64_t sent_tokens_ = 0;
  int64_t verified_tokens_ = 0;
  DecodeCounters counters_;

  // The Draft stream.
  bool drafter_open_ = false;
  int32_t source_ = 0;
  int drafters_lost_ = 0;
  DrafterView drafter_;
  int64_t armed_ = 0;

  // Whether drafts are worth it; absent: they are.
  std::optional<SpeculationControl> control_;
  // The drafter is left alone: commits are kept from it, and none is opened.
  bool withholding_ = false;
  // Length of the log that the drafter has been told, and its settings.
  size_t told_ = 0;
  ChosenSettings told_settings_;
  // Lengths of the log after the commits.
  std::vector<int> commit_ends_;
  // How long the verifier waits for a draft before the next pass, as far as is
  // known; 0 too if it has something to verify.
  absl::Duration due_patience_;
  // The drafter has spoken since the latest commit, with nothing outstanding.
  bool answered_ = false;
  // It has had nothing to do since, so the next pass is not slowed by it.
  bool drafter_idle_ = true;
  // The latest commit said that no local draft was enough for the next pass.
  bool open_ = true;
  // Plain steps that waited for nothing, and their time.
  int64_t num_plain_steps_ = 0;
  absl::Duration plain_time_;
  // Tokens, and the time that was predicted for them in plain passes.
  double predicted_tokens_ = 0;
  double predicted_time_ = 0;
};

}  // namespace specwire::coordinator
