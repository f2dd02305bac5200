// SPDX-License-Identifier: Apache-2.0
#include "draft_node/drafter_thread.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/draining.h"
#include "common/base/logging.h"
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
      batch_size_(registry->AddHistogram(metric::kDraftBatchSize,
                                         "Sequences in one pass of a drafter.",
                                         metric::kBatchSizeBuckets)),
      num_rows_(registry->AddCounter(metric::kNumRows,
                                     "Rows that the engine computed.",
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
    status = sequence->path.OnTune(
        tune->run_length, tune->window, tune->min_survival);
  } else {
    sequence->peer_done = true;
  }
  if (sequence->trace && !std::holds_alternative<DraftTune>(event)) {
    sequence->heard = std::chrono::steady_clock::now();
  }
  sequence->has_work = true;
  if (!status.ok()) End(sequence, std::move(status));
}

void DrafterThread::OnOpen(StreamId stream, OpenDraft open) {
  absl::StatusOr<DraftPath> path = DraftPath::Open(std::move(open.tokens),
                                                   open.prompt_length,
                                                   open.run_length,
                                                   open.window,
                                                   open.params.rule,
                                                   open.min_survival);
  if (!path.ok()) {
    worker_.Release(stream);
    open.sink->Finish(path.status());
    return;
  }
  // It queues up behind those who wait already, however many others come.
  sequences_[stream] = std::make_unique<Sequence>(
      Sequence{.stream = stream,
               .sink = std::move(open.sink),
               .path = *std::move(path),
               .drafter = drafter_->NewSequence(open.params),
               .turn = {.priority = open.priority, .last = ++num_turns_},
               .trace = open.trace,
               .heard = std::chrono::steady_clock::now()});
}

void DrafterThread::OnGone(StreamId stream) { Erase(stream); }

void DrafterThread::OnStop() {
  while (!sequences_.empty()) {
    End(sequences_.begin()->second.get(), DrainingError("shutting down"));
  }
}

absl::Duration DrafterThread::Work() {
  const std::vector<Sequence*> next = NextSequences();
  if (next.empty()) return absl::InfiniteDuration();
  std::vector<Sequence*> drafting;
  std::vector<DraftTask> tasks;
  for (Sequence* sequence : next) {
    sequence->turn.last = ++num_turns_;
    const std::optional<DraftLimits> limits = SendReady(sequence);
    if (!limits.has_value()) continue;
    drafting.push_back(sequence);
    tasks.push_back({.sequence = sequence->drafter.get(),
                     .path = sequence->path.path(),
                     .limits = *limits});
  }
  if (!tasks.empty()) {
    const auto start = std::chrono::steady_clock::now();
    Draft(absl::MakeSpan(tasks));
    const auto duration = std::chrono::steady_clock::now() - start;
    for (Sequence* sequence : drafting) sequence->drafting += duration;
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    OnResult(drafting[i], std::move(tasks[i]));
  }
  return absl::ZeroDuration();
}

std::vector<DrafterThread::Sequence*> DrafterThread::NextSequences() {
  std::vector<Sequence*> next;
  for (const auto& [stream, sequence] : sequences_) {
    if (sequence->has_work) next.push_back(sequence.get());
  }
  const size_t size = std::min(
      next.size(), static_cast<size_t>(std::max(drafter_->max_batch(), 1)));
  std::partial_sort(next.begin(),
                    next.begin() + static_cast<std::ptrdiff_t>(size),
                    next.end(),
                    [](const Sequence* a, const Sequence* b) {
                      return a->turn.GoesBefore(b->turn);
                    });
  next.resize(size);
  return next;
}

std::optional<DraftLimits> DrafterThread::SendReady(Sequence* sequence) {
  while (true) {
    DraftPath::Work work = sequence->path.NextWork();
    switch (work.kind) {
      case DraftPath::Work::Kind::kNone:
        sequence->has_work = false;
        if (sequence->peer_done) End(sequence, absl::OkStatus());
        return std::nullopt;
      case DraftPath::Work::Kind::kSend:
        if (sequence->trace) AddTrace(sequence, &work.proposal);
        if (!sequence->sink->Send(work.proposal)) {
          Erase(sequence->stream);
          return std::nullopt;
        }
        ++progress_;
        break;
      case DraftPath::Work::Kind::kDraft: {
        const int max_model_len = drafter_->max_model_len();
        if (max_model_len <= 0) return work.limits;
        const int room =
            max_model_len - static_cast<int>(sequence->path.path().size());
        if (room > 0) {
          return DraftLimits{
              .max_tokens = std::min(work.limits.max_tokens, room),
              .min_survival = work.limits.min_survival};
        }
        // Out of context is no error: there is nothing to propose.
        sequence->path.OnDrafted({});
        break;
      }
    }
  }
}

void DrafterThread::AddTrace(Sequence* sequence, Proposal* proposal) {
  proposal->trace = ProposalTrace{
      .chances = sequence->path.Chances(*proposal),
      .drafting = absl::FromChrono(std::exchange(sequence->drafting, {})),
      .held =
          absl::FromChrono(std::chrono::steady_clock::now() - sequence->heard)};
}

void DrafterThread::Draft(absl::Span<DraftTask> tasks) {
  absl::Status status = CallDrafter(tasks);
  ++progress_;
  if (status.ok()) return;
  // Whose fault it is shows when each is alone.
  for (DraftTask& task : tasks) {
    if (task.result.has_value()) continue;
    if (tasks.size() > 1) status = CallDrafter(absl::MakeSpan(&task, 1));
    if (!status.ok()) task.result = status;
  }
}

absl::Status DrafterThread::CallDrafter(absl::Span<DraftTask> tasks) {
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  DraftPass pass;
  try {
    pass = drafter_->Propose(tasks);
  } catch (const std::exception& error) {
    status =
        absl::InternalError(absl::StrCat("the drafter failed: ", error.what()));
  } catch (...) {
    status = absl::InternalError("the drafter failed");
  }
  draft_duration_->Observe(absl::ToDoubleSeconds(
      absl::FromChrono(std::chrono::steady_clock::now() - start)));
  if (pass.num_sequences > 0) {
    batch_size_->Observe(pass.num_sequences);
    num_rows_->Increment(pass.num_rows);
  }
  return status;
}

void DrafterThread::OnResult(Sequence* sequence, DraftTask task) {
  // There is more to compute, in its next turn.
  if (!task.result.has_value()) return;
  absl::StatusOr<DraftRun> run = *std::move(task.result);
  if (!run.ok()) return End(sequence, run.status());
  if (absl::Status status = CheckRun(*run, task.limits); !status.ok()) {
    return End(sequence, std::move(status));
  }
  sequence->path.OnDrafted(*std::move(run));
  SendReady(sequence);
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
