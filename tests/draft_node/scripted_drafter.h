// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/drafting/drafter.h"
#include "draft_node/drafter_thread.h"

namespace specwire::draft {

// A drafter for tests of whoever calls it: it proposes the numbers that follow
// the path's last token, works for several tasks at once, remembers its calls,
// and stops in one when it is told to. A path's first token names its sequence;
// its last one may be a wish.
//
// Thread safety: as Drafter says; the rest from any thread.
class ScriptedDrafter final : public Drafter {
 public:
  // Wishes: an error; a throw; more tokens than asked for.
  static constexpr int32_t kFailing = 1000;
  static constexpr int32_t kThrowing = 1001;
  static constexpr int32_t kTalkative = 1002;

  // A task of a call.
  struct Call {
    int32_t sequence = 0;
    std::vector<int32_t> path;
    int max_tokens = 0;
    // Sequences that lived then.
    int num_alive = 0;
  };

  // Each proposal takes `calls_per_run` calls.
  explicit ScriptedDrafter(int max_batch, int calls_per_run = 1)
      : max_batch_(max_batch), calls_per_run_(calls_per_run) {}

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  int max_batch() const override { return max_batch_; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& /*params*/) override {
    return std::make_unique<Sequence>(&num_alive_);
  }

  DraftPass Propose(absl::Span<DraftTask> tasks) override {
    std::vector<Call> call;
    for (const DraftTask& task : tasks) {
      call.push_back({task.path.front(),
                      {task.path.begin(), task.path.end()},
                      task.limits.max_tokens,
                      num_alive_});
    }
    {
      MutexLock lock(&mutex_);
      calls_.push_back(std::move(call));
      waiting_ = true;
      changed_.NotifyAll();
      while (paused_) changed_.Wait(&mutex_);
      waiting_ = false;
    }
    for (const DraftTask& task : tasks) {
      if (task.path.back() == kThrowing) throw std::runtime_error("thrown");
    }
    for (DraftTask& task : tasks) {
      auto* const sequence = static_cast<Sequence*>(task.sequence);
      if (++sequence->num_calls % calls_per_run_ != 0) continue;
      task.result = sequence->Propose(task.path, task.limits);
    }
    const int size = static_cast<int>(tasks.size());
    return {.num_sequences = size, .num_rows = 2 * size};
  }

  // While it is paused, Propose waits.
  void Pause() {
    MutexLock lock(&mutex_);
    paused_ = true;
  }
  void Resume() {
    MutexLock lock(&mutex_);
    paused_ = false;
    changed_.NotifyAll();
  }
  // Waits until a Propose waits; false if none does in time.
  [[nodiscard]] bool WaitUntilPaused() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (!(paused_ && waiting_)) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mutex_, left);
    }
    return true;
  }

  std::vector<std::vector<Call>> calls() const {
    MutexLock lock(&mutex_);
    return calls_;
  }
  // Sequences that live.
  int num_alive() const { return num_alive_; }

 private:
  class Sequence final : public DraftSequence {
   public:
    explicit Sequence(std::atomic<int>* num_alive) : num_alive_(num_alive) {
      ++*num_alive_;
    }
    ~Sequence() override { --*num_alive_; }

    absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                     const DraftLimits& limits) override {
      int max_tokens = limits.max_tokens;
      if (path.back() == kFailing) return absl::InternalError("failed");
      if (path.back() == kTalkative) ++max_tokens;
      DraftRun run;
      for (int i = 1; i <= max_tokens; ++i) {
        run.tokens.push_back(path.back() + i);
      }
      return run;
    }

    int num_calls = 0;

   private:
    std::atomic<int>* const num_alive_;
  };

  const int max_batch_;
  const int calls_per_run_;
  const std::string name_ = "scripted";
  const std::string none_;
  std::atomic<int> num_alive_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::vector<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

// Keeps what a drafter thread sends.
// Thread safety: any thread.
class RecordingSink final : public DraftSink {
 public:
  bool Send(const Proposal& proposal) override {
    MutexLock lock(&mutex_);
    proposals_.push_back(proposal);
    return !closed_;
  }
  void Finish(absl::Status status) override {
    MutexLock lock(&mutex_);
    status_ = std::move(status);
  }

  // Send is false from now on.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  std::vector<Proposal> proposals() const {
    MutexLock lock(&mutex_);
    return proposals_;
  }
  size_t num_proposals() const {
    MutexLock lock(&mutex_);
    return proposals_.size();
  }
  // Once the stream has ended.
  std::optional<absl::Status> status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Proposal> proposals_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specwire::draft
