// SPDX-License-Identifier: Apache-2.0

// The life of sequences. Their queue is in engine_thread_queue.cc, their passes
// in engine_thread_pass.cc.

#include "verifier_node/engine_thread.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/draining.h"
#include "common/base/logging.h"

namespace specwire::verifier {
namespace {

// Streams beyond what may run and wait: those that came while others did, to be
// refused with a delay, and those that have gone and are not cleared away yet.
constexpr int kSpareStreams = 64;

// What `total` has more than `counted`.
DecodeCounters Difference(const DecodeCounters& total,
                          const DecodeCounters& counted) {
  return {.overlapped = total.overlapped - counted.overlapped,
          .stale = total.stale - counted.stale,
          .trimmed = total.trimmed - counted.trimmed};
}

}  // namespace

EngineThread::EngineThread(Engine* engine,
                           EngineThreadOptions options,
                           const Clock* clock,
                           VerifierMetrics* metrics,
                           std::unique_ptr<LocalDrafter> local_drafter)
    : engine_(engine),
      options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      local_drafter_(std::move(local_drafter)),
      pass_cost_(options_.step_costs),
      slowdown_(options_.step_costs),
      worker_({.thread_name = "engine",
               .max_streams = options_.max_num_sequences +
                              options_.max_queued_sequences + kSpareStreams,
               .max_events = options_.max_events}) {}

EngineThread::~EngineThread() { Stop(); }

void EngineThread::Start() { worker_.Start(this); }

void EngineThread::Stop() { worker_.Stop(); }

void EngineThread::OnEvent(StreamId stream, DecodeEvent event) {
  if (auto* open = std::get_if<OpenSequence>(&event)) {
    OnOpen(stream, std::move(*open));
    return;
  }
  if (auto* score = std::get_if<OpenScore>(&event)) {
    OnOpenScore(stream, std::move(*score));
    return;
  }
  if (auto* inspection = std::get_if<OpenInspection>(&event)) {
    OnOpenInspection(stream, std::move(*inspection));
    return;
  }
  const auto it = sequences_.find(stream);
  if (it == sequences_.end() || it->second->decoding == nullptr) return;
  EngineSequence* const sequence = it->second.get();
  Decoding* const decoding = sequence->decoding.get();
  absl::Status status;
  if (const auto* proposal = std::get_if<Proposal>(&event)) {
    status = decoding->verify.OnProposal(*proposal);
    if (decoding->trace && !proposal->tokens.empty()) {
      decoding->last_received = clock_->Now();
    }
  } else if (const auto* tune = std::get_if<VerifyTune>(&event)) {
    status = decoding->verify.OnTune(*tune);
    if (status.ok()) status = CheckLockStep(sequence);
  } else {
    // No proposal can come any more, so there is none to wait for.
    decoding->peer_done = true;
    VerifyTune no_patience;
    no_patience.patience = absl::ZeroDuration();
    status = decoding->verify.OnTune(no_patience);
    if (status.ok()) status = CheckCredit(*sequence);
  }
  if (!status.ok()) End(sequence, std::move(status));
}

void EngineThread::OnOpen(StreamId stream, OpenSequence open) {
  const ModelInfo& model = engine_->info();
  const AcceptanceRule rule = open.params.rule;
  const int prompt_length = open.params.prompt_length;
  const bool trace = open.params.trace;
  const bool drafts =
      local_drafter_ != nullptr && open.params.local_run_length > 0;
  absl::StatusOr<VerifySequence> verify = VerifySequence::Open(
      std::move(open.params),
      {.vocab_size = model.vocab_size, .max_model_len = model.max_model_len});
  if (!verify.ok()) {
    worker_.Release(stream);
    open.sink->Finish(verify.status());
    return;
  }
  auto sequence = std::make_unique<EngineSequence>();
  sequence->stream = stream;
  sequence->priority = open.priority;
  sequence->cache_salt = std::move(open.cache_salt);
  sequence->user = std::move(open.user);
  if (open.prompt_logprobs.has_value()) {
    sequence->wanted = {.end = prompt_length, .top = *open.prompt_logprobs};
  }
  sequence->decoding = std::make_unique<Decoding>(Decoding{
      .sink = std::move(open.sink),
      .verify = *std::move(verify),
      .sampler = TargetSampler(rule, open.sampling, open.choice, open.context),
      .logprobs = open.logprobs,
      .trace = trace,
      .max_silence = open.max_silence,
  });
  if (drafts) {
    sequence->decoding->local =
        local_drafter_->NewSequence({.sampling = std::move(open.sampling),
                                     .context = std::move(open.context),
                                     .choice = open.choice,
                                     .vocab_size = model.vocab_size,
                                     .rule = rule,
                                     .tenant_salt = sequence->cache_salt});
  }
  Add(std::move(sequence), open.deadline);
}

void EngineThread::OnOpenScore(StreamId stream, OpenScore open) {
  auto sequence = std::make_unique<EngineSequence>();
  sequence->stream = stream;
  sequence->wanted = {.begin = std::max(open.num_context, 1),
                      .end = static_cast<int>(open.tokens.size()),
                      .top = open.top};
  const absl::Time deadline = open.deadline;
  sequence->user = std::move(open.user);
  sequence->score = std::make_unique<OpenScore>(std::move(open));
  Add(std::move(sequence), deadline);
}

void EngineThread::Add(std::unique_ptr<EngineSequence> added,
                       absl::Time deadline) {
  const absl::Time now = clock_->Now();
  EngineSequence* const sequence = added.get();
  sequence->arrival = ++num_arrivals_;
  sequence->queued_at = now;
  // A salt that others have, too, is another tenant.
  sequence->tenant = absl::StrCat(
      sequence->user, absl::string_view("\0", 1), sequence->cache_salt);
  user_shares_.Enter(sequence->user);
  tenant_shares_.Enter(sequence->tenant);
  sequences_[sequence->stream] = std::move(added);
  if (absl::Status status = CheckSize(*sequence); !status.ok()) {
    return End(sequence, std::move(status));
  }
  const StreamId stream = sequence->stream;
  absl::Duration pause;
  StartQueued(now, &pause);
  // A score of nothing has ended already.
  if (!sequences_.contains(stream) || sequence->running()) return;
  QueueView view;
  {
    MutexLock lock(&mutex_);
    view = queue_view_;
  }
  if (static_cast<int>(view.priorities.size()) >
      options_.max_queued_sequences) {
    return End(sequence, RefuseFull(view));
  }
  const auto before = std::count_if(
      view.priorities.begin(), view.priorities.end(), [&](int32_t priority) {
        return priority >= sequence->priority;
      });
  const int64_t num_tokens =
      sequence->decoding == nullptr
          ? 0
          : sequence->decoding->verify.max_length() -
                static_cast<int64_t>(sequence->tokens().size());
  // It is among them.
  if (absl::Status status =
          CheckWait(view, static_cast<int>(before) - 1, deadline, num_tokens);
      !status.ok()) {
    End(sequence, std::move(status));
  }
}

absl::Status EngineThread::CheckCredit(const EngineSequence& sequence) const {
  if (!sequence.decoding->peer_done || !sequence.IsBlocked(clock_->Now())) {
    return absl::OkStatus();
  }
  // A coordinator closes nothing half: the mark that did was altered on its
  // way, or the caller has given up.
  return absl::AbortedError(
      absl::StrCat("decode_until: reached at ",
                   sequence.tokens().size(),
                   ", and nothing can raise it: the stream was half-closed"));
}

absl::Status EngineThread::CheckLockStep(EngineSequence* sequence) const {
  Decoding& decoding = *sequence->decoding;
  const absl::Time now = clock_->Now();
  const VerifySequence::Next next = decoding.verify.NextAt(now);
  const size_t length = decoding.verify.log().size();
  const bool waits = sequence->running() && sequence->num_uncomputed() == 1 &&
                     next.kind == VerifySequence::Next::Kind::kWait &&
                     next.at == absl::InfiniteFuture();
  if (!waits || decoding.waits_at != length) {
    decoding.waits_at = waits ? length : 0;
    decoding.waits_since = now;
    return absl::OkStatus();
  }
  if (now - decoding.waits_since <= decoding.max_silence) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("no proposal has come for ",
                   absl::FormatDuration(decoding.max_silence),
                   " though the step waits for one"));
}

void EngineThread::OnGone(StreamId stream) { Erase(stream); }

void EngineThread::OnStop() {
  EndInspection(DrainingError("shutting down"));
  while (!sequences_.empty()) {
    End(sequences_.begin()->second.get(), DrainingError("shutting down"));
  }
}

absl::Duration EngineThread::Work() {
  const absl::Time now = clock_->Now();
  absl::Duration pause = absl::InfiniteDuration();
  RepeatCheck(now, &pause);
  StartQueued(now, &pause);
  std::vector<PassRun> runs = PlanNextPass(now, &pause);
  if (!runs.empty()) RunPass(absl::MakeSpan(runs));
  // Behind it: the pass was planned with the blocks that are free now.
  const bool inspected = StepInspection();
  if (runs.empty() && !inspected) return pause;
  ++progress_;
  return absl::ZeroDuration();
}

void EngineThread::CountUnverified(Decoding* decoding) {
  const DecodeCounters& counters = decoding->verify.counters();
  metrics_->OnUnverified(Difference(counters, decoding->counted), 0);
  decoding->counted = counters;
}

void EngineThread::End(EngineSequence* sequence, absl::Status status) {
  if (!status.ok()) {
    SPECWIRE_LOG(
        Debug, "sequence ", sequence->stream, " ends: ", status.message());
  }
  const auto it = sequences_.find(sequence->stream);
  if (it == sequences_.end()) return;
  // What it holds is free, and its place as well, before that is told.
  const auto decode_sink = sequence->decoding != nullptr
                               ? sequence->decoding->sink
                               : std::shared_ptr<DecodeSink>();
  const auto score_sink = sequence->score != nullptr
                              ? sequence->score->sink
                              : std::shared_ptr<ScoreSink>();
  Erase(sequence->stream);
  if (decode_sink != nullptr) decode_sink->Finish(std::move(status));
  if (score_sink != nullptr) score_sink->Finish(std::move(status));
}

void EngineThread::Erase(StreamId stream) {
  const auto it = sequences_.find(stream);
  if (it == sequences_.end()) return;
  EngineSequence* const sequence = it->second.get();
  if (sequence->decoding != nullptr) {
    CountUnverified(sequence->decoding.get());
    metrics_->OnUnverified(
        {}, static_cast<int>(sequence->decoding->verify.pending().size()));
  }
  user_shares_.Leave(sequence->user);
  tenant_shares_.Leave(sequence->tenant);
  if (sequence->running()) {
    const absl::Time now = clock_->Now();
    wait_estimate_.OnLeft(now);
    service_estimate_.OnServed(now - sequence->started_at,
                               sequence->num_committed());
  }
  sequences_.erase(it);
  worker_.Release(stream);
  PublishQueue();
}

}  // namespace specwire::verifier
