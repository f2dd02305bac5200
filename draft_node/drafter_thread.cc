// SPDX-License-Identifier: Apache-2.0
#include "draft_node/drafter_thread.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"

namespace specwire::draft {
namespace {

// Longest sequence, drafters without a context limit included.
constexpr size_t kMaxPathTokens = 1 << 20;

}  // namespace

DrafterThread::DrafterThread(Drafter* drafter,
                             DrafterThreadOptions options,
                             MetricsRegistry* registry)
    : drafter_(drafter),
      draft_duration_(registry->AddHistogram(metric::kStepDuration,
                                             "Time of one step.",
                                             metric::kStepDurationBuckets,
                                             {{metric::kStage, "draft"}})),
      worker_({.thread_name = "drafter",
               .max_streams = options.max_num_sequences,
               .max_events = options.max_events}) {}

DrafterThread::~DrafterThread() { Stop(); }

void DrafterThread::Start() { worker_.Start(this); }

void DrafterThread::Stop() { worker_.Stop(); }

void DrafterThread::OnEvent(StreamId stream, DraftEvent event) {
  if (auto* open = std::get_if<OpenDraft>(&event)) {
    OnOpen(stream, std::move(*open));
    return;
  }
  const auto it = sequences_.find(stream);
  if (it == sequences_.end()) return;
  Sequence* const sequence = it->second.get();
  absl::Status status;
  if (const auto* commit = std::get_if<CommittedTokens>(&event)) {
    status = sequence->path.OnCommit(commit->position, commit->tokens);
    if (status.ok() && sequence->path.path().size() > kMaxPathTokens) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "commit.tokens: the sequence is longer than ", kMaxPathTokens));
    }
  } else if (const auto* rewind = std::get_if<Rewind>(&event)) {
    status = sequence->path.OnRewind(rewind->position);
  } else if (const auto* tune = std::get_if<DraftTune>(&event)) {
    status = sequence->path.OnTune(tune->run_length, tune->window);
  } else {
    sequence->peer_done = true;
  }
  sequence->has_work = true;
  if (!status.ok()) End(sequence, std::move(status));
}

void DrafterThread::OnOpen(StreamId stream, OpenDraft open) {
  absl::StatusOr<DraftPath> path = DraftPath::Open(std::move(open.tokens),
                                                   open.prompt_length,
                                                   open.run_length,
                                                   open.window,
                                                   open.params.rule);
  if (!path.ok()) {
    worker_.Release(stream);
    open.sink->Finish(path.status());
    return;
  }
  sequences_[stream] = std::make_unique<Sequence>(
      Sequence{.stream = stream,
               .sink = std::move(open.sink),
               .path = *std::move(path),
               .drafter = drafter_->NewSequence(open.params),
               .turn = {.priority = open.priority}});
}

void DrafterThread::OnGone(StreamId stream) { Erase(stream); }

void DrafterThread::OnStop() {
  while (!sequences_.empty()) {
    End(sequences_.begin()->second.get(),
        absl::UnavailableError("shutting down"));
  }
}

absl::Duration DrafterThread::Work() {
  Sequence* next = nullptr;
  for (const auto& [stream, sequence] : sequences_) {
    if (sequence->has_work &&
        (next == nullptr || sequence->turn.GoesBefore(next->turn))) {
      next = sequence.get();
    }
  }
  if (next == nullptr) return absl::InfiniteDuration();
  next->turn.last = ++num_turns_;
  TakeTurn(next);
  return absl::ZeroDuration();
}

void DrafterThread::TakeTurn(Sequence* sequence) {
  bool drafted = false;
  while (true) {
    const DraftPath::Work work = sequence->path.NextWork();
    switch (work.kind) {
      case DraftPath::Work::Kind::kNone:
        sequence->has_work = false;
        if (sequence->peer_done) End(sequence, absl::OkStatus());
        return;
      case DraftPath::Work::Kind::kSend:
        if (!sequence->sink->Send(work.proposal)) {
          return Erase(sequence->stream);
        }
        ++progress_;
        break;
      case DraftPath::Work::Kind::kDraft: {
        // A second draft is for another turn, after the events of meanwhile.
        if (drafted) return;
        drafted = true;
        absl::StatusOr<DraftRun> run = Draft(sequence, work.max_tokens);
        if (!run.ok()) return End(sequence, run.status());
        sequence->path.OnDrafted(*std::move(run));
        break;
      }
    }
  }
}

absl::StatusOr<DraftRun> DrafterThread::Draft(Sequence* sequence,
                                              int max_tokens) {
  const absl::Span<const int32_t> path = sequence->path.path();
  if (const int max_model_len = drafter_->max_model_len(); max_model_len > 0) {
    // Out of context is no error: there is nothing to propose.
    max_tokens =
        std::min(max_tokens, max_model_len - static_cast<int>(path.size()));
    if (max_tokens < 1) return DraftRun();
  }
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<DraftRun> run;
  try {
    run = sequence->drafter->Propose(path, max_tokens);
  } catch (const std::exception& error) {
    run =
        absl::InternalError(absl::StrCat("the drafter failed: ", error.what()));
  } catch (...) {
    run = absl::InternalError("the drafter failed");
  }
  draft_duration_->Observe(absl::ToDoubleSeconds(
      absl::FromChrono(std::chrono::steady_clock::now() - start)));
  if (run.ok() && run->tokens.size() > static_cast<size_t>(max_tokens)) {
    return absl::InternalError(
        absl::StrCat("the drafter proposed ",
                     run->tokens.size(),
                     " tokens where it was asked for at most ",
                     max_tokens));
  }
  if (run.ok() && !run->q.empty() && run->q.size() != run->tokens.size()) {
    return absl::InternalError(absl::StrCat("the drafter gave ",
                                            run->q.size(),
                                            " distributions for ",
                                            run->tokens.size(),
                                            " tokens"));
  }
  return run;
}

void DrafterThread::End(Sequence* sequence, absl::Status status) {
  if (!status.ok()) {
    SPECWIRE_LOG(
        Debug, "sequence ", sequence->stream, " ends: ", status.message());
  }
  const std::shared_ptr<DraftSink> sink = sequence->sink;
  Erase(sequence->stream);
  sink->Finish(std::move(status));
}

void DrafterThread::Erase(StreamId stream) {
  sequences_.erase(stream);
  worker_.Release(stream);
}

}  // namespace specwire::draft
