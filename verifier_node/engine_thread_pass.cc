// SPDX-License-Identifier: Apache-2.0

// The engine thread's passes: who has part in one, its rows, and what becomes
// of its logits.

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

using NextKind = VerifySequence::Next::Kind;

// One that may come into the next pass, and its place in the order of rows.
struct Member {
  EngineSequence* sequence = nullptr;
  PassCandidate candidate;
  Standing standing;
  // Waits for a proposal until then.
  absl::Time waits_until = absl::InfinitePast();
};

// What the target thinks of the tokens that a traced step committed.
void AddProbabilities(const TracedRows& traced, Commit* commit) {
  CommitTrace& trace = *commit->trace;
  trace.choices = traced.choices;
  // A stop may leave rows behind it.
  trace.choices.resize(std::min(trace.choices.size(), commit->tokens.size()));
  for (size_t i = 0; i < traced.drafts.size() && i < commit->tokens.size();
       ++i) {
    trace.drafts[i].target = traced.drafts[i];
  }
}

}  // namespace

std::vector<EngineSequence*> EngineThread::FindReady(
    absl::Time now,
    std::vector<PassCandidate>* candidates,
    absl::Duration* pause) const {
  std::vector<Member> members;
  std::vector<VictimCandidate> running;
  std::vector<EngineSequence*> all;
  int num_steps = 0;
  ForEachRunning([&](EngineSequence* sequence) {
    all.push_back(sequence);
    running.push_back(sequence->victim(now));
    Member member;
    member.sequence = sequence;
    member.standing = sequence->standing(user_shares_, tenant_shares_);
    member.candidate = sequence->Candidate();
    PassCandidate& candidate = member.candidate;
    if (sequence->decoding != nullptr) {
      const VerifySequence::Next next = sequence->decoding->verify.NextAt(now);
      if (next.kind == NextKind::kWait) member.waits_until = next.at;
      candidate.steps = next.kind == NextKind::kRun ||
                        (next.kind == NextKind::kWait && !candidate.lock_step);
    }
    if (candidate.uncomputed == 1 && !candidate.steps) return;
    // Prompts are computed one after the other, rows of steps in turns.
    if (candidate.uncomputed == 1) {
      member.standing.last_pass = sequence->last_pass;
      ++num_steps;
    }
    members.push_back(std::move(member));
  });
  bool ready = false;
  for (const Member& member : members) {
    // Nobody waits for what would not be given a row.
    if (member.candidate.uncomputed > 1 || member.waits_until <= now ||
        !IsWorthARow(member.candidate, num_steps, pass_cost_)) {
      ready = true;
    } else {
      *pause = std::min(*pause, member.waits_until - now);
    }
  }
  if (!ready) return {};
  const std::optional<size_t> spared = FindProtected(running);
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.standing.GoesBefore(b.standing);
  });
  std::vector<EngineSequence*> sequences;
  for (Member& member : members) {
    member.candidate.must_advance =
        spared.has_value() && member.sequence == all[*spared];
    sequences.push_back(member.sequence);
    candidates->push_back(member.candidate);
  }
  return sequences;
}

std::vector<EngineThread::PassRun> EngineThread::PlanNextPass(
    absl::Time now, absl::Duration* pause) {
  PassLimits limits;
  limits.prefill_rows = options_.prefill_rows;
  limits.block_size = engine_->kv_block_size();
  bool drafted = false;
  while (true) {
    std::vector<PassCandidate> candidates;
    const std::vector<EngineSequence*> ready =
        FindReady(now, &candidates, pause);
    if (ready.empty()) return {};
    if (!drafted && DraftLocally(ready, candidates)) {
      // What they have to offer is another thing now.
      drafted = true;
      ++progress_;
      continue;
    }
    limits.free_blocks = FreeBlocks();
    const PassPlan plan = PlanPass(candidates, pass_cost_, limits);
    if (plan.starved) {
      if (inspection_stream_ != 0) {
        EndInspection(absl::ResourceExhaustedError(
            "KV cache: what is served needs it; retry later"));
        continue;
      }
      if (EngineSequence* const victim = FindVictim(now)) {
        Preempt(victim, now);
        continue;
      }
      if (!limits.last_resort) {
        limits.last_resort = true;
        continue;
      }
      if (plan.runs.empty()) {
        // It is alone, and has all there is.
        End(ready.front(),
            absl::ResourceExhaustedError(
                absl::StrCat("KV cache: full at ",
                             ready.front()->kv->length(),
                             " tokens; ",
                             limits.free_blocks,
                             " of ",
                             engine_->kv_blocks_total(),
                             " blocks are free")));
        continue;
      }
    }
    std::vector<PassRun> runs;
    for (const PlannedRun& planned : plan.runs) {
      PassRun& run = runs.emplace_back();
      run.sequence = ready[planned.candidate];
      run.plan = planned;
    }
    return runs;
  }
}

void EngineThread::RunPass(absl::Span<PassRun> runs) {
  const absl::Time start = clock_->Now();
  ++num_passes_;
  accept_time_ = absl::ZeroDuration();
  PassShape shape;
  for (PassRun& run : runs) {
    Prepare(&run);
    shape.AddRun(static_cast<int>(run.tokens.size()),
                 run.sequence->kv->length());
    shape.logit_rows += run.num_logits;
  }
  const absl::Status status = Compute(runs);
  if (!status.ok() && runs.size() == 1) runs[0].status = status;
  if (!status.ok() && runs.size() > 1) {
    // One of them is to blame: alone, it ends alone.
    for (PassRun& run : runs) {
      absl::Status alone = Compute(absl::MakeSpan(&run, 1));
      if (!alone.ok()) run.status = std::move(alone);
    }
  }
  const absl::Time end = clock_->Now();
  const double seconds = absl::ToDoubleSeconds(end - start);
  const double excess_seconds = seconds - pass_cost_.Predict(shape);
  if (status.ok()) {
    pass_cost_.Observe(shape, seconds);
    slowdown_.Observe(shape.rows, seconds);
    told_slowdown_ = slowdown_.value();
  }
  CountPass(runs, end - start);
  ObserveRate(runs, end - start, excess_seconds);
  const absl::Status fault = FindFault(runs);
  for (PassRun& run : runs) Deliver(&run, start, end);
  if (!fault.ok()) {
    CheckEngine(fault, end);
  } else if (status.ok()) {
    num_failed_checks_ = 0;
  }
}

void EngineThread::Prepare(PassRun* run) {
  EngineSequence* const sequence = run->sequence;
  const int length = sequence->kv->length();
  const absl::Span<const int32_t> given = sequence->tokens().subspan(
      static_cast<size_t>(length), static_cast<size_t>(run->plan.rows));
  run->tokens.assign(given.begin(), given.end());
  if (run->plan.steps) {
    Decoding& decoding = *sequence->decoding;
    run->draft = decoding.verify.BeginStep(run->plan.draft_rows);
    run->tokens.insert(run->tokens.end(), run->draft.begin(), run->draft.end());
    run->target.assign(run->draft.size() + 1, 0);
    run->num_logits = static_cast<int>(run->target.size());
    // Log-probabilities need the logits written down.
    run->plain =
        !decoding.logprobs.has_value() && !decoding.trace &&
        decoding.sampler.IsPlainArgMax(
            static_cast<int>(decoding.verify.log().size()), run->target.size());
  }
  // Row i tells of position i + 1.
  const WantedLogprobs& wanted = sequence->wanted;
  const int begin = std::max(length + 1, wanted.begin);
  const int end = std::min(length + 1 + run->plan.rows, wanted.end);
  if (begin >= end) return;
  run->plain = false;
  run->given.position = begin;
  run->given.entries.resize(static_cast<size_t>(end - begin));
  run->num_logits =
      std::max(run->num_logits,
               static_cast<int>(run->tokens.size()) - (begin - 1 - length));
}

absl::StatusOr<absl::Span<const float>> EngineThread::Forward(
    absl::Span<const ForwardRun> runs) {
  try {
    return engine_->Forward(runs);
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("the engine failed: ", error.what()));
  } catch (...) {
    return absl::InternalError("the engine failed");
  }
}

absl::Status EngineThread::Compute(absl::Span<PassRun> runs) {
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  std::vector<ForwardRun> forward;
  size_t wanted = 0;
  for (PassRun& run : runs) {
    ForwardRun one = {.kv = run.sequence->kv.get(),
                      .tokens = run.tokens,
                      .num_logits = run.num_logits};
    if (run.plain) {
      one.best = absl::MakeSpan(run.target);
    } else {
      wanted += static_cast<size_t>(run.num_logits) * vocab_size;
    }
    forward.push_back(one);
  }
  SPECWIRE_ASSIGN_OR_RETURN(absl::Span<const float> logits, Forward(forward));
  const bool complete = logits.size() == wanted;
  const absl::Time computed = clock_->Now();
  for (PassRun& run : runs) {
    if (!complete) {
      run.status = absl::InternalError(absl::StrCat("the engine computed ",
                                                    logits.size(),
                                                    " logits instead of ",
                                                    wanted));
      continue;
    }
    const size_t size =
        run.plain ? 0 : static_cast<size_t>(run.num_logits) * vocab_size;
    run.status = Decide(logits.first(size), &run);
    logits.remove_prefix(size);
  }
  accept_time_ += clock_->Now() - computed;
  return absl::OkStatus();
}

absl::Status EngineThread::Decide(absl::Span<const float> logits,
                                  PassRun* run) {
  ReadGiven(logits, run);
  if (!run->plan.steps) return absl::OkStatus();
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  if (!run->plain) {
    logits = logits.last(run->target.size() * vocab_size);
  }
  SPECWIRE_RETURN_IF_ERROR(DecideTarget(logits, run));
  EngineSequence* const sequence = run->sequence;
  Decoding& decoding = *sequence->decoding;
  VerifySequence& verify = decoding.verify;
  TracedRows traced;
  if (decoding.trace) {
    traced = decoding.sampler.Trace(
        logits,
        {.log = verify.log(), .draft = run->draft, .q = verify.step_q()},
        run->target);
  }
  run->commit = verify.FinishStep(run->target, clock_->Now());
  if (decoding.trace) AddProbabilities(traced, &run->commit);
  // The newest token's keys and values come with the next pass.
  sequence->kv->Truncate(static_cast<int>(verify.log().size()) - 1);
  if (!decoding.logprobs.has_value()) return absl::OkStatus();
  Commit& commit = run->commit;
  commit.logprobs.resize(commit.tokens.size());
  for (size_t i = 0; i < commit.tokens.size(); ++i) {
    logprob_reader_.Read(logits.subspan(i * vocab_size, vocab_size),
                         commit.tokens[i],
                         *decoding.logprobs,
                         &commit.logprobs[i]);
  }
  return absl::OkStatus();
}

absl::Status EngineThread::DecideTarget(absl::Span<const float> logits,
                                        PassRun* run) {
  Decoding& decoding = *run->sequence->decoding;
  if (!run->plain) {
    SPECWIRE_ASSIGN_OR_RETURN(
        run->target,
        decoding.sampler.Decide(logits,
                                {.log = decoding.verify.log(),
                                 .draft = run->draft,
                                 .q = decoding.verify.step_q()}));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < run->target.size(); ++i) {
    if (run->target[i] < 0) {
      return absl::InternalError("the model's logits are not numbers");
    }
    // Rows behind a wrong draft token mean nothing.
    if (i < run->draft.size() && run->target[i] != run->draft[i]) break;
  }
  return absl::OkStatus();
}

void EngineThread::ReadGiven(absl::Span<const float> logits, PassRun* run) {
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  const absl::Span<const int32_t> tokens = run->sequence->tokens();
  for (size_t i = 0; i < run->given.entries.size(); ++i) {
    logprob_reader_.Read(logits.subspan(i * vocab_size, vocab_size),
                         tokens[static_cast<size_t>(run->given.position) + i],
                         run->sequence->wanted.top,
                         &run->given.entries[i]);
  }
}

void EngineThread::CountPass(absl::Span<PassRun> runs,
                             absl::Duration duration) {
  bool steps = false;
  for (PassRun& run : runs) {
    run.sequence->last_pass = num_passes_;
    if (!run.status.ok()) continue;
    const int prefill_rows = run.plan.rows - (run.plan.steps ? 1 : 0);
    if (prefill_rows > 0) metrics_->OnPrefill(prefill_rows);
    const int64_t num_tokens =
        prefill_rows + static_cast<int64_t>(run.commit.tokens.size());
    user_shares_.Charge(run.sequence->user, num_tokens);
    tenant_shares_.Charge(run.sequence->tenant, num_tokens);
    if (!run.plan.steps) continue;
    steps = true;
    MarkPrefilled(run.commit.position, run.sequence->decoding.get());
    metrics_->OnStep(run.commit);
    CountUnverified(run.sequence->decoding.get());
  }
  metrics_->OnPass(
      static_cast<int>(runs.size()), steps, duration, accept_time_);
}

void EngineThread::MarkPrefilled(int num_tokens, Decoding* decoding) {
  if (decoding->prefilled) return;
  decoding->prefilled = true;
  metrics_->OnPrefilled(num_tokens);
}

void EngineThread::Deliver(PassRun* run, absl::Time start, absl::Time end) {
  EngineSequence* const sequence = run->sequence;
  if (run->status.code() == absl::StatusCode::kResourceExhausted &&
      num_running() > 1) {
    // The plan was wrong about the blocks it needs.
    return Preempt(sequence, end);
  }
  if (!run->status.ok()) return End(sequence, run->status);
  if (!run->given.entries.empty()) {
    sequence->wanted.begin =
        run->given.position + static_cast<int>(run->given.entries.size());
    const bool taken = sequence->score != nullptr
                           ? sequence->score->sink->Send(run->given)
                           : sequence->decoding->sink->SendPrompt(run->given);
    if (!taken) {
      return End(sequence, absl::CancelledError("the peer does not read"));
    }
  }
  if (sequence->score != nullptr) {
    if (sequence->num_uncomputed() > 0) return;
    metrics_->OnPrefilled(static_cast<int>(sequence->tokens().size()));
    return End(sequence, absl::OkStatus());
  }
  Decoding& decoding = *sequence->decoding;
  if (!run->plan.steps) {
    if (sequence->num_uncomputed() == 1) {
      MarkPrefilled(sequence->num_to_compute(), &decoding);
    }
    return;
  }
  StepReport report;
  report.verify = end - start;
  if (!decoding.responded) {
    report.cached_prompt_tokens = decoding.cached_prompt_tokens;
    report.wait = sequence->queued_for;
  } else {
    report.wait = start - decoding.previous_step_end;
  }
  decoding.responded = true;
  decoding.previous_step_end = end;
  if (decoding.trace && decoding.last_received != absl::InfinitePast()) {
    run->commit.trace->held = start - decoding.last_received;
  }
  DeliverCommit(run, report);
}

void EngineThread::DeliverCommit(PassRun* run, const StepReport& report) {
  EngineSequence* const sequence = run->sequence;
  const std::shared_ptr<DecodeSink> sink = sequence->decoding->sink;
  // Its response tells whether the next step waits for a proposal.
  sequence->decoding->FindDraft(PricesNow(), local_drafter_.get());
  run->commit.local_next = sequence->decoding->verify.LocalIsEnough();
  if (run->commit.finish != FinishReason::kNone) {
    // First the place and the memory, then the message that tells of it.
    Erase(sequence->stream);
    sink->Send(run->commit, report);
    sink->Finish(absl::OkStatus());
    return;
  }
  if (!sink->Send(run->commit, report)) return Erase(sequence->stream);
  if (absl::Status status = CheckCredit(*sequence); !status.ok()) {
    End(sequence, std::move(status));
  }
}

}  // namespace specwire::verifier
