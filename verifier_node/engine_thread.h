// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/stream_worker.h"
#include "common/model/engine.h"
#include "common/sampling/logprobs.h"
#include "verifier_node/admission.h"
#include "verifier_node/batch_planner.h"
#include "verifier_node/decode_events.h"
#include "verifier_node/engine_sequence.h"
#include "verifier_node/local_drafter.h"
#include "verifier_node/pass_cost.h"
#include "verifier_node/slowdown.h"
#include "verifier_node/step_costs.h"
#include "verifier_node/verifier_metrics.h"

namespace specwire::verifier {

struct EngineThreadOptions {
  // Sequences that compute at once, and that may wait beyond these; one more is
  // refused.
  int max_num_sequences = 64;
  int max_queued_sequences = 256;
  // Rows of prompts and scored texts in one pass, at most.
  int prefill_rows = 256;
  // Events of one sequence that may wait.
  size_t max_events = 1024;
  // What passes were measured to take.
  std::vector<StepCost> step_costs = {};
  // Called on the thread when the engine is found to be broken: passes fail,
  // and so do those of nobody's tokens. Null: it goes on.
  std::function<void(const absl::Status&)> on_fatal = nullptr;
};

// The thread that owns the model, its KV cache and all sequences. It does pass
// after pass, each for all sequences that can run: those that decode have a row
// and draft tokens in it, prompts and scored texts a chunk (see
// batch_planner.h). One that waits for a proposal holds up nobody: it joins a
// pass that others begin. What a cancelled one holds is free before the next
// pass.
//
// Sequences wait in a queue until there is a place and room for what they have;
// the KV cache is not reserved ahead. One that finds it full in mid-text makes
// another give up its blocks, which goes back to the queue and computes its
// text anew later (see admission.h). Whatever goes wrong in one sequence ends
// that one only. After a pass that fails the engine has to compute one of its
// own, which tells a bad sequence from an engine that is broken.
//
// Between two passes it computes a piece of an inspection (see inspection.h),
// of which there is one at a time: it gives way to whoever needs its blocks.
//
// It may have a drafter of its own, which finds draft tokens for those
// sequences that want them: it looks them up before the first step and after
// each commit, and, if it has a model, may draft before the next pass.
//
// Thread safety: any thread.
// Lifetime: engine, clock and metrics must outlive it. Between Start() and
// Stop() nobody else may use the engine's thread-bound methods.
class EngineThread final : private StreamWorker<DecodeEvent>::Client {
 public:
  using StreamId = StreamWorker<DecodeEvent>::StreamId;

  // `local_drafter` may be null.
  EngineThread(Engine* engine,
               EngineThreadOptions options,
               const Clock* clock,
               VerifierMetrics* metrics,
               std::unique_ptr<LocalDrafter> local_drafter = nullptr);
  ~EngineThread() override;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void Start();
  // Ends all sequences with UNAVAILABLE and waits for the thread.
  void Stop();

  // Where streams post their events.
  StreamWorker<DecodeEvent>* worker() { return &worker_; }
  const EngineThreadOptions& options() const { return options_; }
  // Kind of its own drafter; empty: none.
  absl::string_view local_drafter() const {
    return local_drafter_ == nullptr ? absl::string_view()
                                     : local_drafter_->name();
  }

  // Whether a sequence may come now: to be asked before its stream is opened,
  // so that it is refused at once and not after the pass under way.
  // RESOURCE_EXHAUSTED, with a delay (common/base/retry_delay.h), if the queue
  // is full or the wait in it, and what `num_tokens` usually take after it,
  // would likely outlast the deadline.
  absl::Status CheckAdmission(int32_t priority,
                              absl::Time deadline,
                              int64_t num_tokens) const;

  // Sequences that are open, and of them those that wait in the queue.
  int num_sequences() const { return worker_.num_streams(); }
  int num_waiting() const { return num_waiting_; }
  // See Slowdown.
  double slowdown() const { return told_slowdown_; }
  // Grows with every pass, and within long ones.
  int64_t progress() const { return progress_ + engine_->progress(); }

 private:
  // One sequence's part in a pass under way.
  struct PassRun {
    EngineSequence* sequence = nullptr;
    PlannedRun plan;
    std::vector<int32_t> tokens;
    // If it decides tokens: the draft tokens it verifies, and the target's
    // token for each of them and one beyond.
    absl::Span<const int32_t> draft;
    std::vector<int32_t> target;
    // Whether the arg-max of each row is all that is wanted.
    bool plain = false;
    int num_logits = 0;
    // What the pass gave.
    absl::Status status;
    LogprobRun given;
    Commit commit;
  };
  // What others may know of the queue.
  struct QueueView {
    // Descending.
    std::vector<int32_t> priorities;
    int num_sequences = 0;
    std::optional<absl::Duration> interval;
    ServiceEstimate service;
  };

  void OnEvent(StreamId stream, DecodeEvent event) override;
  void OnGone(StreamId stream) override;
  absl::Duration Work() override;
  void OnStop() override;

  // Life of a sequence: engine_thread.cc.
  void OnOpen(StreamId stream, OpenSequence open);
  void OnOpenScore(StreamId stream, OpenScore open);
  void Add(std::unique_ptr<EngineSequence> sequence, absl::Time deadline);
  // An error if the sequence has no credit and will get none.
  absl::Status CheckCredit(const EngineSequence& sequence) const;
  // ABORTED if the sequence waits for a proposal that does not come.
  absl::Status CheckLockStep(EngineSequence* sequence) const;
  // Brings the metrics up to what the sequence has counted.
  void CountUnverified(Decoding* decoding);
  // Frees what the sequence holds, then ends its stream.
  void End(EngineSequence* sequence, absl::Status status);
  void Erase(StreamId stream);

  // Inspections: engine_thread_inspect.cc.
  void OnOpenInspection(StreamId stream, OpenInspection open);
  // A piece of the inspection; false if there is none.
  bool StepInspection();
  void EndInspection(absl::Status status);

  // The queue, and room in the cache: engine_thread_queue.cc.
  int64_t BlocksFor(int64_t num_tokens) const;
  int64_t FreeBlocks() const;
  // Whether it could ever run.
  absl::Status CheckSize(const EngineSequence& sequence) const;
  // Starts those in the queue whose turn it is, while they fit; `pause` becomes
  // at most the time until that may change by itself.
  void StartQueued(absl::Time now, absl::Duration* pause);
  // False if the cache has no room for it.
  bool TryStart(EngineSequence* sequence);
  void OnStarted(EngineSequence* sequence, absl::Time now);
  // Has a sequence give up its blocks and wait.
  void Preempt(EngineSequence* sequence, absl::Time now);
  // The one to preempt before others; null if there is none.
  EngineSequence* FindVictim(absl::Time now) const;
  // One that has waited long for credit; null if there is none.
  EngineSequence* FindIdle(absl::Time now, absl::Duration* pause) const;
  void ForEachRunning(absl::FunctionRef<void(EngineSequence*)> visit) const;
  void ForEachQueued(absl::FunctionRef<void(EngineSequence*)> visit) const;
  int num_running() const;
  // Tells others of the queue.
  void PublishQueue();
  absl::Duration RetryDelay(const QueueView& view) const;
  absl::Status RefuseFull(const QueueView& view) const;
  absl::Status CheckWait(const QueueView& view,
                         int num_before,
                         absl::Time deadline,
                         int64_t num_tokens) const;

  // Passes: engine_thread_pass.cc.
  // The sequences that can have part in a pass now, and what they have to
  // compute; empty if none is ready. `pause` becomes at most the time until one
  // is.
  std::vector<EngineSequence*> FindReady(absl::Time now,
                                         std::vector<PassCandidate>* candidates,
                                         absl::Duration* pause) const;
  // Plans a pass, making room as needed; empty if there is nothing to do.
  std::vector<PassRun> PlanNextPass(absl::Time now, absl::Duration* pause);
  void RunPass(absl::Span<PassRun> runs);
  void Prepare(PassRun* run);
  // One pass over the runs. Never throws.
  absl::Status Compute(absl::Span<PassRun> runs);
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const ForwardRun> runs);
  // What the logits, [num_logits, V] unless plain, tell of the run's tokens.
  absl::Status Decide(absl::Span<const float> logits, PassRun* run);
  absl::Status DecideTarget(absl::Span<const float> logits, PassRun* run);
  void ReadGiven(absl::Span<const float> logits, PassRun* run);
  void CountPass(absl::Span<PassRun> runs, absl::Duration duration);
  void MarkPrefilled(int num_tokens, Decoding* decoding);
  // Sends a run's results. May erase its sequence.
  void Deliver(PassRun* run, absl::Time start, absl::Time end);
  void DeliverCommit(PassRun* run, const StepReport& report);

  // The engine's own faults: engine_thread_check.cc.
  // Why a run failed, but for want of room; OK if none did.
  static absl::Status FindFault(absl::Span<const PassRun> runs);
  // A pass that no sequence has part in.
  absl::Status SelfCheck();
  // After a fault.
  void CheckEngine(const absl::Status& fault, absl::Time now);
  // Whether or not anybody comes meanwhile.
  void RepeatCheck(absl::Time now, absl::Duration* pause);

  // Local drafts: engine_thread_drafts.cc.
  // Has the local drafter's model work for those of `ready` that can step;
  // false if there was nothing to do.
  bool DraftLocally(absl::Span<EngineSequence* const> ready,
                    absl::Span<const PassCandidate> candidates);
  LocalPrices PricesNow() const;
  // Observes a pass's tokens, and how much longer than predicted it took.
  void ObserveRate(absl::Span<const PassRun> runs,
                   absl::Duration duration,
                   double excess_seconds);

  Engine* const engine_;
  const EngineThreadOptions options_;
  const Clock* const clock_;
  VerifierMetrics* const metrics_;
  // Before the sequences, which use it.
  const std::unique_ptr<LocalDrafter> local_drafter_;
  std::atomic<int64_t> progress_{0};
  std::atomic<int> num_waiting_{0};
  std::atomic<double> told_slowdown_{1};
  mutable Mutex mutex_;
  QueueView queue_view_ ABSL_GUARDED_BY(mutex_);

  // The rest belongs to the thread.
  absl::btree_map<StreamId, std::unique_ptr<EngineSequence>> sequences_;
  int64_t num_arrivals_ = 0;
  int64_t num_passes_ = 0;
  FairShare user_shares_;
  FairShare tenant_shares_;
  WaitEstimate wait_estimate_;
  ServiceEstimate service_estimate_;
  PassCost pass_cost_;
  Slowdown slowdown_;
  // Of the present pass, the time in which tokens were decided.
  absl::Duration accept_time_;
  // Tokens, steps, passes and their seconds, lately; passes that read prompts
  // are left out.
  struct {
    double tokens = 0;
    double sequences = 0;
    double passes = 0;
    double seconds = 0;
  } lately_;
  // Context of a sequence, lately.
  int context_ = 0;
  // How much longer than predicted passes take, without and with draft tokens.
  struct {
    double plain = 0;
    double drafts = 0;
  } excess_seconds_;
  LogprobReader logprob_reader_;
  // The inspection under way; its stream is 0 if there is none.
  StreamId inspection_stream_ = 0;
  OpenInspection inspection_;
  // In a row.
  int num_failed_checks_ = 0;
  absl::Time next_check_;
  // Who did not fit at the head of the queue, and the blocks that nobody needed
  // then: there is no use in trying again before there are more.
  StreamId unfit_ = 0;
  int64_t unfit_blocks_ = 0;

  // Last, so that the thread ends before what it uses.
  StreamWorker<DecodeEvent> worker_;
};

}  // namespace specwire::verifier
