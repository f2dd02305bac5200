// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/stream_worker.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/drafter.h"
#include "common/metrics/metrics.h"
#include "draft_node/draft_events.h"

namespace specwire::draft {

struct DrafterThreadOptions {
  // Sequences at once; one more is refused.
  int max_num_sequences = 256;
  // Events of one sequence that may wait.
  size_t max_events = 1024;
};

// The thread that owns the drafter and all sequences. It takes turns between
// the sequences that have something to draft, those of the highest priority
// first, as many in a turn as the drafter works for at once. A turn is one call
// of the drafter: a proposal of a lookup, a step of a model, whose proposals
// leave as each is complete. Between two turns it takes in all commits, so it
// never drafts what is known to be wrong, and frees what streams held that have
// gone. Whatever goes wrong in one sequence ends that one only.
//
// Thread safety: any thread.
// Lifetime: drafter and registry must outlive it. Between Start() and Stop()
// nobody else may use the drafter's thread-bound methods.
class DrafterThread final : private StreamWorker<DraftEvent>::Client {
 public:
  using StreamId = StreamWorker<DraftEvent>::StreamId;

  DrafterThread(Drafter* drafter,
                DrafterThreadOptions options,
                MetricsRegistry* registry);
  ~DrafterThread() override;
  DrafterThread(const DrafterThread&) = delete;
  DrafterThread& operator=(const DrafterThread&) = delete;

  void Start();
  // Ends all sequences with UNAVAILABLE and waits for the thread.
  void Stop();

  // Where streams post their events.
  StreamWorker<DraftEvent>* worker() { return &worker_; }

  int num_sequences() const { return worker_.num_streams(); }
  // None waits for room.
  static int num_waiting() { return 0; }
  // Grows with every turn, every proposal, and within long turns.
  int64_t progress() const { return progress_ + drafter_->progress(); }

 private:
  struct Sequence {
    StreamId stream = 0;
    std::shared_ptr<DraftSink> sink;
    DraftPath path;
    std::unique_ptr<DraftSequence> drafter;
    Turn turn;
    // If it is traced: when it took in the latest open, commit or rewind, and
    // what was computed for it since its latest proposal.
    bool trace = false;
    std::chrono::steady_clock::time_point heard = {};
    std::chrono::steady_clock::duration drafting = {};
    // Something has happened since it last had nothing to do.
    bool has_work = true;
    bool peer_done = false;
  };

  void OnEvent(StreamId stream, DraftEvent event) override;
  void OnGone(StreamId stream) override;
  absl::Duration Work() override;
  void OnStop() override;

  void OnOpen(StreamId stream, OpenDraft open);
  // Those whose turn it is.
  std::vector<Sequence*> NextSequences();
  // Sends what there is to send, and returns within which limits there is to be
  // drafted then; none if nothing, and then the sequence may have gone.
  std::optional<DraftLimits> SendReady(Sequence* sequence);
  // Adds how a traced sequence's proposal came about.
  static void AddTrace(Sequence* sequence, Proposal* proposal);
  // Has the drafter work for the tasks. One that throws fails those only whose
  // tasks make it throw.
  void Draft(absl::Span<DraftTask> tasks);
  // One call of the drafter. Never throws.
  absl::Status CallDrafter(absl::Span<DraftTask> tasks);
  void OnResult(Sequence* sequence, DraftTask task);
  // Frees what the sequence holds, then ends its stream.
  void End(Sequence* sequence, absl::Status status);
  void Erase(StreamId stream);

  Drafter* const drafter_;
  Histogram* const draft_duration_;
  Histogram* const batch_size_;
  Counter* const num_rows_;
  std::atomic<int64_t> progress_{0};

  // The rest belongs to the thread.
  absl::btree_map<StreamId, std::unique_ptr<Sequence>> sequences_;
  int64_t num_turns_ = 0;

  // Last, so that the thread ends before what it uses.
  StreamWorker<DraftEvent> worker_;
};

}  // namespace specwire::draft
