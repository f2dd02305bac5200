// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/engine_thread.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace specwire::verifier {
namespace {

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
                           VerifierMetrics* metrics)
    : engine_(engine),
      options_(options),
      clock_(clock),
      metrics_(metrics),
      worker_({.thread_name = "engine",
               .max_streams = options.max_num_sequences,
               .max_events = options.max_events}) {}

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
  const auto it = sequences_.find(stream);
  if (it == sequences_.end()) return;
  Sequence* const sequence = it->second.get();
  absl::Status status;
  if (const auto* proposal = std::get_if<Proposal>(&event)) {
    status = sequence->verify.OnProposal(*proposal);
  } else if (const auto* tune = std::get_if<VerifyTune>(&event)) {
    status = sequence->verify.OnTune(*tune);
  } else {
    // No proposal can come any more, so there is none to wait for.
    sequence->peer_done = true;
    VerifyTune no_patience;
    no_patience.patience = absl::ZeroDuration();
    status = sequence->verify.OnTune(no_patience);
    if (status.ok()) status = CheckCredit(*sequence);
  }
  if (!status.ok()) End(sequence, std::move(status));
}

void EngineThread::OnOpen(StreamId stream, OpenSequence open) {
  const std::shared_ptr<DecodeSink> sink = std::move(open.sink);
  const auto refuse = [&](absl::Status status) {
    worker_.Release(stream);
    sink->Finish(std::move(status));
  };
  const ModelInfo& model = engine_->info();
  const AcceptanceRule rule = open.params.rule;
  absl::StatusOr<VerifySequence> verify = VerifySequence::Open(
      std::move(open.params),
      {.vocab_size = model.vocab_size, .max_model_len = model.max_model_len});
  if (!verify.ok()) return refuse(verify.status());
  const int num_tokens = static_cast<int>(verify->log().size());
  if (absl::Status status = CheckRoom(num_tokens); !status.ok()) {
    return refuse(std::move(status));
  }
  const absl::Time now = clock_->Now();
  auto& sequence = sequences_[stream];
  sequence = std::make_unique<Sequence>(Sequence{
      .stream = stream,
      .sink = sink,
      .verify = *std::move(verify),
      .sampler = TargetSampler(rule, open.sampling, open.choice, open.context),
      .kv = engine_->NewSequence(),
      .turn = {.priority = open.priority},
      .last_step_end = now,
      .logprobs = open.logprobs,
      .prompt_logprobs = open.prompt_logprobs,
  });
  if (num_tokens == 1) MarkPrefilled(sequence.get());
  UpdateWaiting();
}

int64_t EngineThread::BlocksFor(int num_tokens) const {
  const int block_size = engine_->kv_block_size();
  return (int64_t{num_tokens} + block_size - 1) / block_size;
}

absl::Status EngineThread::CheckRoom(int num_tokens) const {
  const int64_t needed = BlocksFor(num_tokens);
  const int64_t total = engine_->kv_blocks_total();
  int64_t free = total - engine_->kv_blocks_used();
  // What other prompts have yet to take.
  for (const auto& [stream, sequence] : sequences_) {
    if (sequence->prefilled) continue;
    free -= BlocksFor(static_cast<int>(sequence->verify.log().size())) -
            BlocksFor(sequence->kv->length());
  }
  for (const auto& [stream, score] : scores_) {
    free -= BlocksFor(static_cast<int>(score->open.tokens.size())) -
            BlocksFor(score->kv->length());
  }
  if (needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("KV cache: ",
                   num_tokens,
                   " tokens need ",
                   needed,
                   " blocks of ",
                   engine_->kv_block_size(),
                   " tokens, ",
                   std::max<int64_t>(free, 0),
                   " of ",
                   total,
                   needed > total ? " free; they can never fit"
                                  : " free; retry when a sequence has ended"));
}

absl::Status EngineThread::CheckCredit(const Sequence& sequence) const {
  if (!sequence.peer_done || sequence.verify.NextAt(clock_->Now()).kind !=
                                 VerifySequence::Next::Kind::kBlocked) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("decode_until: reached at ",
                   sequence.verify.log().size(),
                   ", and nothing can raise it: the stream was half-closed"));
}

void EngineThread::OnGone(StreamId stream) {
  Erase(stream);
  scores_.erase(stream);
  UpdateWaiting();
}

void EngineThread::OnStop() {
  while (!sequences_.empty()) {
    End(sequences_.begin()->second.get(),
        absl::UnavailableError("shutting down"));
  }
  while (!scores_.empty()) {
    EndScore(scores_.begin()->first, absl::UnavailableError("shutting down"));
  }
}

absl::Duration EngineThread::Work() {
  const absl::Time now = clock_->Now();
  absl::Duration pause = absl::InfiniteDuration();
  Sequence* next = nullptr;
  for (const auto& [stream, sequence] : sequences_) {
    if (IsReady(*sequence, now, &pause) &&
        (next == nullptr || sequence->turn.GoesBefore(next->turn))) {
      next = sequence.get();
    }
  }
  Score* score = nullptr;
  for (const auto& [stream, one] : scores_) {
    if (score == nullptr || one->turn.GoesBefore(score->turn)) {
      score = one.get();
    }
  }
  if (next == nullptr && score == nullptr) return pause;
  if (next == nullptr ||
      (score != nullptr && score->turn.GoesBefore(next->turn))) {
    score->turn.last = ++num_turns_;
    StepScore(score);
    ++progress_;
    return absl::ZeroDuration();
  }
  next->turn.last = ++num_turns_;
  if (next->prefilled) {
    Step(next);
  } else {
    Prefill(next);
  }
  ++progress_;
  return absl::ZeroDuration();
}

bool EngineThread::IsReady(const Sequence& sequence,
                           absl::Time now,
                           absl::Duration* pause) const {
  if (!sequence.prefilled) return true;
  const VerifySequence::Next next = sequence.verify.NextAt(now);
  if (next.kind == VerifySequence::Next::Kind::kWait) {
    *pause = std::min(*pause, next.at - now);
  }
  return next.kind == VerifySequence::Next::Kind::kRun;
}

void EngineThread::Prefill(Sequence* sequence) {
  // The last token is left to the first step, which needs its logits.
  const absl::Span<const int32_t> log = sequence->verify.log();
  WantedLogprobs wanted;
  if (sequence->prompt_logprobs.has_value()) {
    wanted.end = sequence->verify.prompt_length();
    wanted.top = *sequence->prompt_logprobs;
  }
  const auto run =
      ForwardChunk(log, options_.prefill_rows, wanted, sequence->kv.get());
  if (!run.ok()) return End(sequence, run.status());
  if (!run->entries.empty() && !sequence->sink->SendPrompt(*run)) {
    return Erase(sequence->stream);
  }
  if (sequence->kv->length() + 1 == static_cast<int>(log.size())) {
    MarkPrefilled(sequence);
    UpdateWaiting();
  }
}

void EngineThread::MarkPrefilled(Sequence* sequence) {
  sequence->prefilled = true;
  sequence->last_step_end = clock_->Now();
  sequence->verify.OnPrefilled(sequence->last_step_end);
  metrics_->OnPrefilled(static_cast<int>(sequence->verify.log().size()));
}

int EngineThread::RowsWithRoom(const Sequence& sequence) const {
  const int64_t cached = sequence.kv->length();
  const int64_t free = engine_->kv_blocks_total() - engine_->kv_blocks_used() +
                       BlocksFor(sequence.kv->length());
  // One row is the last committed token's.
  const int64_t rows = free * engine_->kv_block_size() - cached - 1;
  return static_cast<int>(std::clamp<int64_t>(rows, 0, kMaxProposalTokens));
}

void EngineThread::Step(Sequence* sequence) {
  VerifySequence& verify = sequence->verify;
  const absl::Time start = clock_->Now();
  const absl::Span<const int32_t> draft =
      verify.BeginStep(RowsWithRoom(*sequence));
  tokens_.assign(verify.log().begin() + sequence->kv->length(),
                 verify.log().end());
  tokens_.insert(tokens_.end(), draft.begin(), draft.end());
  const auto target = ComputeTarget(draft, sequence);
  if (!target.ok()) return End(sequence, target.status());

  const absl::Time end = clock_->Now();
  Commit commit = verify.FinishStep(*target, end);
  // The newest token's keys and values come with the next pass.
  sequence->kv->Truncate(static_cast<int>(verify.log().size()) - 1);
  ReadLogprobs(*sequence, &commit);
  metrics_->OnStep(commit, end - start);
  CountUnverified(sequence);
  const StepTimes times = {.wait = start - sequence->last_step_end,
                           .verify = end - start};
  sequence->last_step_end = end;
  if (commit.finish != FinishReason::kNone) {
    // First the place and the memory, then the message that tells of it.
    const std::shared_ptr<DecodeSink> sink = sequence->sink;
    Erase(sequence->stream);
    sink->Send(commit, times);
    sink->Finish(absl::OkStatus());
    return;
  }
  if (!sequence->sink->Send(commit, times)) return Erase(sequence->stream);
  if (absl::Status status = CheckCredit(*sequence); !status.ok()) {
    End(sequence, std::move(status));
  }
}

absl::StatusOr<absl::Span<const float>> EngineThread::Forward(
    const ForwardRun& run) {
  try {
    return engine_->Forward(absl::MakeConstSpan(&run, 1));
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("the engine failed: ", error.what()));
  } catch (...) {
    return absl::InternalError("the engine failed");
  }
}

absl::StatusOr<std::vector<int32_t>> EngineThread::ComputeTarget(
    absl::Span<const int32_t> draft, Sequence* sequence) {
  std::vector<int32_t> target(draft.size() + 1, 0);
  const absl::Span<const int32_t> log = sequence->verify.log();
  // Log-probabilities need the logits written down.
  const bool plain = !sequence->logprobs.has_value() &&
                     sequence->sampler.IsPlainArgMax(
                         static_cast<int>(log.size()), target.size());
  ForwardRun run = {.kv = sequence->kv.get(),
                    .tokens = tokens_,
                    .num_logits = static_cast<int>(target.size())};
  if (plain) run.best = absl::MakeSpan(target);
  SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits, Forward(run));
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  if (const size_t wanted = plain ? 0 : target.size() * vocab_size;
      logits.size() != wanted) {
    return absl::InternalError(absl::StrCat(
        "the engine computed ", logits.size(), " logits instead of ", wanted));
  }
  step_logits_ = logits;
  if (!plain) {
    return sequence->sampler.Decide(
        logits, {.log = log, .draft = draft, .q = sequence->verify.step_q()});
  }
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] < 0) {
      return absl::InternalError("the model's logits are not numbers");
    }
    // Rows behind a wrong draft token mean nothing.
    if (i < draft.size() && target[i] != draft[i]) break;
  }
  return target;
}

void EngineThread::CountUnverified(Sequence* sequence) {
  const DecodeCounters& counters = sequence->verify.counters();
  metrics_->OnUnverified(Difference(counters, sequence->counted), 0);
  sequence->counted = counters;
}

void EngineThread::End(Sequence* sequence, absl::Status status) {
  if (!status.ok()) {
    SPECWIRE_LOG(
        Debug, "sequence ", sequence->stream, " ends: ", status.message());
  }
  const std::shared_ptr<DecodeSink> sink = sequence->sink;
  Erase(sequence->stream);
  sink->Finish(std::move(status));
}

void EngineThread::Erase(StreamId stream) {
  const auto it = sequences_.find(stream);
  if (it == sequences_.end()) return;
  CountUnverified(it->second.get());
  metrics_->OnUnverified({},
                         static_cast<int>(it->second->verify.pending().size()));
  sequences_.erase(it);
  worker_.Release(stream);
  UpdateWaiting();
}

void EngineThread::UpdateWaiting() {
  num_waiting_ = static_cast<int>(std::count_if(
      sequences_.begin(), sequences_.end(), [](const auto& entry) {
        return !entry.second->prefilled;
      }));
  num_waiting_ += static_cast<int>(scores_.size());
}

}  // namespace specwire::verifier
