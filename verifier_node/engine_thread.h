// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/stream_worker.h"
#include "common/model/engine.h"
#include "common/sampling/logprobs.h"
#include "verifier_node/decode_events.h"
#include "verifier_node/target_sampler.h"
#include "verifier_node/verifier_metrics.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::verifier {

struct EngineThreadOptions {
  // Sequences at once; one more is refused.
  int max_num_sequences = 64;
  // Rows of a prompt that are computed before others have a turn.
  int prefill_rows = 64;
  // Rows of a scored text that are computed before others have a turn, if there
  // are others.
  int score_rows = 16;
  // Events of one sequence that may wait.
  size_t max_events = 1024;
};

// The thread that owns the model, its KV cache and all sequences. It takes
// turns between the sequences that can run, those of the highest priority
// first: a turn is one forward pass, a chunk of the prompt or a verify step, or
// a chunk of a text that is scored.
// So a long prompt does not hold up running streams, and what a cancelled one
// holds is free before the next pass.
//
// The KV cache is not reserved ahead: a sequence is admitted if its prompt fits
// beside those that are being computed, and one that finds the cache full in
// mid-text ends with RESOURCE_EXHAUSTED. Whatever goes wrong in one sequence
// ends that one only.
//
// Thread safety: any thread.
// Lifetime: engine, clock and metrics must outlive it. Between Start() and
// Stop() nobody else may use the engine's thread-bound methods.
class EngineThread final : private StreamWorker<DecodeEvent>::Client {
 public:
  using StreamId = StreamWorker<DecodeEvent>::StreamId;

  EngineThread(Engine* engine,
               EngineThreadOptions options,
               const Clock* clock,
               VerifierMetrics* metrics);
  ~EngineThread() override;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void Start();
  // Ends all sequences with UNAVAILABLE and waits for the thread.
  void Stop();

  // Where streams post their events.
  StreamWorker<DecodeEvent>* worker() { return &worker_; }

  // Sequences that are open, and of them those whose prompt is not computed.
  int num_sequences() const { return worker_.num_streams(); }
  int num_waiting() const { return num_waiting_; }
  // Grows with every pass.
  int64_t progress() const { return progress_; }

 private:
  struct Sequence {
    StreamId stream = 0;
    std::shared_ptr<DecodeSink> sink;
    VerifySequence verify;
    TargetSampler sampler;
    std::unique_ptr<KvSequence> kv;
    Turn turn;
    absl::Time last_step_end;
    // See OpenSequence.
    std::optional<int> logprobs = std::nullopt;
    std::optional<int> prompt_logprobs = std::nullopt;
    // What the metrics have of its counters.
    DecodeCounters counted = {};
    bool prefilled = false;
    bool peer_done = false;
  };

  // A text that is scored.
  struct Score {
    StreamId stream = 0;
    OpenScore open;
    std::unique_ptr<KvSequence> kv;
    Turn turn;
  };
  // The positions of given tokens, [begin, end), whose log-probabilities are
  // wanted; begin >= 1.
  struct WantedLogprobs {
    int begin = 1;
    int end = 0;
    int top = 0;
  };

  void OnEvent(StreamId stream, DecodeEvent event) override;
  void OnGone(StreamId stream) override;
  absl::Duration Work() override;
  void OnStop() override;

  void OnOpen(StreamId stream, OpenSequence open);
  // Whether the cache has room for a prompt of `num_tokens`.
  absl::Status CheckRoom(int num_tokens) const;
  int64_t BlocksFor(int num_tokens) const;

  // An error if the sequence has no credit and will get none.
  absl::Status CheckCredit(const Sequence& sequence) const;

  // Whether the sequence can run now; if it can later, `pause` becomes at most
  // that long.
  bool IsReady(const Sequence& sequence,
               absl::Time now,
               absl::Duration* pause) const;
  // Computes the next chunk of the prompt.
  void Prefill(Sequence* sequence);
  // Computes the next of `tokens`, at most `max_rows` and all but the last, and
  // returns what is wanted of the positions that follow them.
  absl::StatusOr<LogprobRun> ForwardChunk(absl::Span<const int32_t> tokens,
                                          int max_rows,
                                          const WantedLogprobs& wanted,
                                          KvSequence* kv);
  // Fills in commit->logprobs off the pass that chose its tokens.
  void ReadLogprobs(const Sequence& sequence, Commit* commit);

  void OnOpenScore(StreamId stream, OpenScore open);
  // Computes the next chunk of a scored text.
  void StepScore(Score* score);
  // Frees what it holds, then ends its stream.
  void EndScore(StreamId stream, absl::Status status);

  // Verifies what is proposed, or decodes one token.
  void Step(Sequence* sequence);
  // Draft tokens that a step can compute without filling the cache.
  int RowsWithRoom(const Sequence& sequence) const;
  // One pass over `tokens`, which follow what the sequence has cached. Never
  // throws.
  absl::StatusOr<absl::Span<const float>> Forward(const ForwardRun& run);
  // Computes tokens_, the last of which are `draft`, and returns the target's
  // token for each of the draft, the first of which stands at the end of the
  // sequence's log, and one beyond. Those behind a wrong one mean nothing.
  absl::StatusOr<std::vector<int32_t>> ComputeTarget(
      absl::Span<const int32_t> draft, Sequence* sequence);
  void MarkPrefilled(Sequence* sequence);
  // Brings the metrics up to what the sequence has counted.
  void CountUnverified(Sequence* sequence);
  // Frees what the sequence holds, then ends its stream.
  void End(Sequence* sequence, absl::Status status);
  void Erase(StreamId stream);
  void UpdateWaiting();

  Engine* const engine_;
  const EngineThreadOptions options_;
  const Clock* const clock_;
  VerifierMetrics* const metrics_;
  std::atomic<int64_t> progress_{0};
  std::atomic<int> num_waiting_{0};

  // The rest belongs to the thread.
  absl::btree_map<StreamId, std::unique_ptr<Sequence>> sequences_;
  absl::btree_map<StreamId, std::unique_ptr<Score>> scores_;
  int64_t num_turns_ = 0;
  LogprobReader logprob_reader_;
  // Logits of the latest verify pass, [rows, V]; empty if they were not needed.
  absl::Span<const float> step_logits_;
  // Scratch: the tokens of a pass.
  std::vector<int32_t> tokens_;

  // Last, so that the thread ends before what it uses.
  StreamWorker<DecodeEvent> worker_;
};

}  // namespace specwire::verifier
