// SPDX-License-Identifier: Apache-2.0

// The engine thread's queue: who is admitted, who starts, who must make room.

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "common/base/round_up.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

// How long a sequence may go without credit while others want its place.
constexpr absl::Duration kLongIdle = absl::Seconds(1);
// More room for each time a sequence was preempted, so that it is not started
// only to be preempted again.
constexpr int64_t kBlocksPerPreemption = 2;
// Told to those that are refused before any sequence has left.
constexpr absl::Duration kUnknownDelay = absl::Seconds(1);
constexpr absl::Duration kLeastDelay = absl::Milliseconds(100);
// Half of all estimates are too short. Whoever comes too late has cost the
// others his time, whoever is refused has not.
constexpr double kWaitMargin = 1.4;

}  // namespace

int64_t EngineThread::BlocksFor(int64_t num_tokens) const {
  return DivideUp(num_tokens, engine_->kv_block_size());
}

int64_t EngineThread::FreeBlocks() const {
  return engine_->kv_blocks_total() - engine_->kv_blocks_used();
}

absl::Status EngineThread::CheckSize(const EngineSequence& sequence) const {
  const int64_t needed = BlocksFor(sequence.num_to_compute());
  const int64_t total = engine_->kv_blocks_total();
  if (needed <= total) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("KV cache: ",
                                                   sequence.num_to_compute(),
                                                   " tokens need ",
                                                   needed,
                                                   " blocks of ",
                                                   engine_->kv_block_size(),
                                                   " tokens, the cache has ",
                                                   total,
                                                   "; they can never fit"));
}

void EngineThread::ForEachRunning(
    absl::FunctionRef<void(EngineSequence*)> visit) const {
  for (const auto& [stream, sequence] : sequences_) {
    if (sequence->running()) visit(sequence.get());
  }
}

void EngineThread::ForEachQueued(
    absl::FunctionRef<void(EngineSequence*)> visit) const {
  for (const auto& [stream, sequence] : sequences_) {
    if (!sequence->running()) visit(sequence.get());
  }
}

int EngineThread::num_running() const {
  int count = 0;
  ForEachRunning([&](EngineSequence*) { ++count; });
  return count;
}

void EngineThread::StartQueued(absl::Time now, absl::Duration* pause) {
  while (true) {
    EngineSequence* next = nullptr;
    ForEachQueued([&](EngineSequence* sequence) {
      // One without credit could only hold what others need.
      if (sequence->IsBlocked(now)) return;
      if (next == nullptr ||
          sequence->standing(user_shares_, tenant_shares_)
              .GoesBefore(next->standing(user_shares_, tenant_shares_))) {
        next = sequence;
      }
    });
    if (next == nullptr) break;
    if (num_running() < options_.max_num_sequences && TryStart(next)) {
      OnStarted(next, now);
      continue;
    }
    EngineSequence* const idle = FindIdle(now, pause);
    if (idle == nullptr) break;
    Preempt(idle, now);
  }
  PublishQueue();
}

bool EngineThread::TryStart(EngineSequence* sequence) {
  // What others that have started have yet to take for what they have.
  int64_t promised = 0;
  bool alone = true;
  ForEachRunning([&](EngineSequence* other) {
    alone = false;
    promised +=
        BlocksFor(other->num_to_compute()) - BlocksFor(other->kv->length());
  });
  const int64_t unpromised = FreeBlocks() - promised;
  if (unfit_ == sequence->stream && unpromised <= unfit_blocks_ && !alone) {
    return false;
  }
  std::unique_ptr<KvSequence> kv = engine_->NewSequence();
  int cached = 0;
  // What is cached has no logits.
  const bool reuses = sequence->decoding != nullptr &&
                      sequence->wanted.begin >= sequence->wanted.end;
  if (reuses) {
    cached = kv->ReusePrefix(sequence->cache_salt, sequence->tokens());
  }
  const int64_t needed = BlocksFor(sequence->num_to_compute()) -
                         BlocksFor(cached) + 1 +
                         sequence->num_preemptions * kBlocksPerPreemption;
  if (!alone && needed > FreeBlocks() - promised) {
    unfit_ = sequence->stream;
    unfit_blocks_ = unpromised;
    return false;
  }
  unfit_ = 0;
  sequence->kv = std::move(kv);
  if (Decoding* const decoding = sequence->decoding.get();
      decoding != nullptr && !decoding->responded) {
    decoding->cached_prompt_tokens =
        std::min(cached, decoding->verify.prompt_length());
  }
  if (reuses && sequence->num_preemptions == 0) {
    metrics_->OnPrefixQuery(sequence->num_to_compute(), cached);
  }
  return true;
}

void EngineThread::OnStarted(EngineSequence* sequence, absl::Time now) {
  sequence->queued_for += now - sequence->queued_at;
  if (sequence->num_preemptions == 0) {
    metrics_->OnStarted(now - sequence->queued_at);
    sequence->started_at = now;
  }
  if (Decoding* const decoding = sequence->decoding.get()) {
    decoding->previous_step_end = now;
    decoding->FindDraft({}, local_drafter_.get());
    if (sequence->num_uncomputed() == 1) {
      MarkPrefilled(sequence->num_to_compute(), decoding);
    }
  } else if (sequence->num_uncomputed() == 0) {
    // Nothing precedes the first token, so a text of one has no rows.
    metrics_->OnPrefilled(1);
    End(sequence, absl::OkStatus());
  }
}

void EngineThread::Preempt(EngineSequence* sequence, absl::Time now) {
  sequence->kv.reset();
  ++sequence->num_preemptions;
  sequence->queued_at = now;
  metrics_->OnPreempted();
  PublishQueue();
}

EngineSequence* EngineThread::FindVictim(absl::Time now) const {
  std::vector<EngineSequence*> running;
  std::vector<VictimCandidate> candidates;
  ForEachRunning([&](EngineSequence* sequence) {
    running.push_back(sequence);
    candidates.push_back(sequence->victim(now));
  });
  const std::optional<size_t> victim = ChooseVictim(candidates);
  return victim.has_value() ? running[*victim] : nullptr;
}

EngineSequence* EngineThread::FindIdle(absl::Time now,
                                       absl::Duration* pause) const {
  EngineSequence* found = nullptr;
  ForEachRunning([&](EngineSequence* sequence) {
    if (found != nullptr || !sequence->IsBlocked(now)) return;
    const absl::Duration left =
        sequence->decoding->previous_step_end + kLongIdle - now;
    if (left <= absl::ZeroDuration()) {
      found = sequence;
    } else {
      *pause = std::min(*pause, left);
    }
  });
  return found;
}

void EngineThread::PublishQueue() {
  QueueView view;
  view.num_sequences = static_cast<int>(sequences_.size());
  ForEachQueued([&](EngineSequence* sequence) {
    view.priorities.push_back(sequence->priority);
  });
  std::sort(view.priorities.begin(), view.priorities.end(), std::greater<>());
  wait_estimate_.OnWaiting(!view.priorities.empty(), clock_->Now());
  view.interval = wait_estimate_.interval();
  view.service = service_estimate_;
  num_waiting_ = static_cast<int>(view.priorities.size());
  MutexLock lock(&mutex_);
  queue_view_ = std::move(view);
}

absl::Duration EngineThread::RetryDelay(const QueueView& view) const {
  return std::max(view.interval.value_or(kUnknownDelay), kLeastDelay);
}

absl::Status EngineThread::RefuseFull(const QueueView& view) const {
  return WithRetryDelay(absl::ResourceExhaustedError(absl::StrCat(
                            "the queue is full: max_num_sequences: ",
                            options_.max_num_sequences,
                            ", max_queued_sequences: ",
                            options_.max_queued_sequences,
                            ", open: ",
                            num_sequences(),
                            "; retry when one has ended")),
                        RetryDelay(view));
}

absl::Status EngineThread::CheckWait(const QueueView& view,
                                     int num_before,
                                     absl::Time deadline,
                                     int64_t num_tokens) const {
  if (!view.interval.has_value() || deadline == absl::InfiniteFuture()) {
    return absl::OkStatus();
  }
  const absl::Duration wait = *view.interval * (num_before + 1);
  const absl::Duration service = view.service.Expect(num_tokens);
  const absl::Duration left = deadline - clock_->Now();
  if (kWaitMargin * (wait + service) <= left) return absl::OkStatus();
  return WithRetryDelay(
      absl::ResourceExhaustedError(absl::StrCat(
          "the wait in the queue would be about ",
          absl::FormatDuration(absl::Trunc(wait, absl::Milliseconds(1))),
          ", behind ",
          num_before,
          " others, and the service take ",
          absl::FormatDuration(absl::Trunc(service, absl::Milliseconds(1))),
          "; the deadline leaves ",
          absl::FormatDuration(absl::Trunc(left, absl::Milliseconds(1))))),
      std::max(kWaitMargin * (wait + service) - left, kLeastDelay));
}

absl::Status EngineThread::CheckAdmission(int32_t priority,
                                          absl::Time deadline,
                                          int64_t num_tokens) const {
  QueueView view;
  {
    MutexLock lock(&mutex_);
    view = queue_view_;
  }
  // Some may have come since the thread looked last.
  const int open = num_sequences();
  if (open >= options_.max_num_sequences + options_.max_queued_sequences) {
    return RefuseFull(view);
  }
  const int unseen = std::max(open - view.num_sequences, 0);
  if (open < options_.max_num_sequences && view.priorities.empty()) {
    return absl::OkStatus();
  }
  const auto before = std::count_if(
      view.priorities.begin(), view.priorities.end(), [&](int32_t other) {
        return other >= priority;
      });
  return CheckWait(
      view, static_cast<int>(before) + unseen, deadline, num_tokens);
}

}  // namespace specwire::verifier
