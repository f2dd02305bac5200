// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/verify_side.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "verifier_node/step_costs.h"

namespace specwire::simulate {
namespace {

// As a node cuts its own drafts, see Decoding::LookUpDraft.
constexpr float kLeastSurvival = 0.03f;

using NextKind = verifier::VerifySequence::Next::Kind;

// What a node measures when it starts.
verifier::PassCost MeasuredCost(absl::Duration plain,
                                const VerifyCosts& costs) {
  std::vector<verifier::StepCost> measured;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    measured.push_back({.num_rows = rows, .duration = costs(rows) * plain});
  }
  return verifier::PassCost(measured);
}

}  // namespace

VerifySide::VerifySide(VirtualTime* time,
                       absl::Duration plain,
                       const VerifyCosts& costs)
    : time_(time),
      plain_(plain),
      costs_(costs),
      pass_cost_(MeasuredCost(plain, costs)),
      thread_([this] { Pump(); }) {}

void VerifySide::Open(int64_t stream,
                      verifier::VerifyParams params,
                      const Trace* local,
                      Send send) {
  thread_.Take([this,
                stream,
                params = std::move(params),
                local,
                send = std::move(send)] {
    absl::StatusOr<verifier::VerifySequence> sequence =
        verifier::VerifySequence::Open(
            params,
            {.vocab_size = kTraceVocabulary,
             .max_model_len = std::numeric_limits<int>::max()});
    thread_.Check(sequence.status());
    if (!sequence.ok()) return;
    sequence->OnPrefilled(time_->now());
    Stream opened{
        *std::move(sequence), send, std::nullopt, /*last_end=*/time_->now()};
    if (local != nullptr && params.local_run_length > 0) {
      opened.local.emplace(local);
    }
    LookUp(&opened);
    streams_.emplace(stream, std::move(opened));
  });
}

void VerifySide::LookUp(Stream* stream) {
  if (!stream->local.has_value()) return;
  verifier::VerifySequence& sequence = stream->sequence;
  const int most = sequence.max_local_tokens();
  sequence.SetLocalDraft(
      most == 0
          ? DraftRun()
          : stream->local
                ->Propose(sequence.log(),
                          {.max_tokens = most, .min_survival = kLeastSurvival})
                .run);
}

void VerifySide::Propose(int64_t stream, Proposal proposal) {
  thread_.Take([this, stream, proposal = std::move(proposal)] {
    const auto it = streams_.find(stream);
    if (it != streams_.end())
      thread_.Check(it->second.sequence.OnProposal(proposal));
  });
}

void VerifySide::Tune(int64_t stream, verifier::VerifyTune tune) {
  thread_.Take([this, stream, tune] {
    const auto it = streams_.find(stream);
    if (it != streams_.end()) thread_.Check(it->second.sequence.OnTune(tune));
  });
}

void VerifySide::Close(int64_t stream) {
  thread_.Take([this, stream] { streams_.erase(stream); });
}

// As EngineThread::FindReady does it.
std::vector<int64_t> VerifySide::Plan(absl::Time* wake) {
  struct Member {
    int64_t id = 0;
    int64_t last_pass = 0;
    absl::Time waits_until = absl::InfinitePast();
    verifier::PassCandidate candidate = {};
  };
  std::vector<Member> members;
  for (auto& [id, stream] : streams_) {
    const verifier::VerifySequence& sequence = stream.sequence;
    const verifier::VerifySequence::Next next = sequence.NextAt(time_->now());
    if (next.kind == NextKind::kBlocked || next.kind == NextKind::kDone ||
        (next.kind == NextKind::kWait && sequence.lock_step())) {
      continue;
    }
    Member member{.id = id, .last_pass = stream.last_pass};
    if (next.kind == NextKind::kWait) member.waits_until = next.at;
    member.candidate.steps = true;
    member.candidate.draft_rows = sequence.num_step_rows();
    member.candidate.lock_step = sequence.lock_step();
    member.candidate.draft_survival = sequence.step_survival();
    member.candidate.survival = &sequence.survival();
    members.push_back(member);
  }
  const int num_steps = static_cast<int>(members.size());
  bool ready = false;
  for (const Member& member : members) {
    if (member.waits_until <= time_->now() ||
        !verifier::IsWorthARow(member.candidate, num_steps, pass_cost_)) {
      ready = true;
    } else {
      *wake = std::min(*wake, member.waits_until);
    }
  }
  if (!ready) return {};
  std::stable_sort(
      members.begin(), members.end(), [](const Member& a, const Member& b) {
        return a.last_pass < b.last_pass;
      });
  std::vector<verifier::PassCandidate> candidates;
  for (const Member& member : members) candidates.push_back(member.candidate);
  verifier::PassLimits limits;
  limits.free_blocks = int64_t{1} << 40;
  const verifier::PassPlan plan =
      verifier::PlanPass(candidates, pass_cost_, limits);
  std::vector<int64_t> planned;
  for (const verifier::PlannedRun& run : plan.runs) {
    const int64_t id = members[run.candidate].id;
    streams_.at(id).draft_rows = run.draft_rows;
    planned.push_back(id);
  }
  return planned;
}

void VerifySide::Pump() {
  if (thread_.busy()) return;
  const int64_t timer = ++timer_;
  absl::Time wake = absl::InfiniteFuture();
  std::vector<int64_t> members = Plan(&wake);
  if (members.empty()) {
    if (wake == absl::InfiniteFuture()) return;
    time_->At(wake, [this, timer] {
      if (timer == timer_) Pump();
    });
    return;
  }
  ++num_passes_;
  int num_rows = 0;
  for (const int64_t id : members) {
    Stream& stream = streams_.at(id);
    stream.draft_rows =
        static_cast<int>(stream.sequence.BeginStep(stream.draft_rows).size());
    stream.last_pass = num_passes_;
    num_rows += 1 + stream.draft_rows;
  }
  thread_.BeginPass();
  const absl::Time start = time_->now();
  time_->At(start + costs_(num_rows) * plain_,
            [this, members = std::move(members), start, num_rows] {
              EndPass(members, start, num_rows);
            });
}

void VerifySide::EndPass(const std::vector<int64_t>& members,
                         absl::Time start,
                         int num_rows) {
  const absl::Time end = time_->now();
  verifier::PassShape shape;
  shape.rows = shape.logit_rows = num_rows;
  pass_cost_.Observe(shape, absl::ToDoubleSeconds(end - start));
  for (const int64_t id : members) {
    Stream& stream = streams_.at(id);
    const int length = static_cast<int>(stream.sequence.log().size());
    std::vector<int32_t> target;
    for (int i = 0; i <= stream.draft_rows; ++i) {
      target.push_back(RightToken(length + i));
    }
    Commit commit = stream.sequence.FinishStep(target, end);
    LookUp(&stream);
    commit.local_next = stream.sequence.LocalIsEnough();
    const coordinator::PassTimes times = {.wait = start - stream.last_end,
                                          .verify = end - start};
    stream.last_end = end;
    stream.send(commit, times);
    // The stream ends with its sequence.
    if (commit.finish != FinishReason::kNone) streams_.erase(id);
  }
  thread_.EndPass();
}

}  // namespace specwire::simulate
