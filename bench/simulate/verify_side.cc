// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/verify_side.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "bench/simulate/trace_drafter.h"
#include "verifier_node/step_costs.h"

namespace specwire::simulate {
namespace {

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
      pass_cost_(MeasuredCost(plain, costs)) {}

void VerifySide::Open(int64_t stream,
                      verifier::VerifyParams params,
                      Send send) {
  Take([this, stream, params = std::move(params), send = std::move(send)] {
    absl::StatusOr<verifier::VerifySequence> sequence =
        verifier::VerifySequence::Open(
            params,
            {.vocab_size = kTraceVocabulary,
             .max_model_len = std::numeric_limits<int>::max()});
    Check(sequence.status());
    if (!sequence.ok()) return;
    sequence->OnPrefilled(time_->now());
    streams_.emplace(stream, Stream{*std::move(sequence), send, time_->now()});
  });
}

void VerifySide::Propose(int64_t stream, Proposal proposal) {
  Take([this, stream, proposal = std::move(proposal)] {
    const auto it = streams_.find(stream);
    if (it != streams_.end()) Check(it->second.sequence.OnProposal(proposal));
  });
}

void VerifySide::Tune(int64_t stream, verifier::VerifyTune tune) {
  Take([this, stream, tune] {
    const auto it = streams_.find(stream);
    if (it != streams_.end()) Check(it->second.sequence.OnTune(tune));
  });
}

void VerifySide::Close(int64_t stream) {
  Take([this, stream] { streams_.erase(stream); });
}

void VerifySide::Take(std::function<void()> event) {
  if (busy_) {
    inbox_.push_back(std::move(event));
    return;
  }
  event();
  Pump();
}

void VerifySide::Check(const absl::Status& status) {
  if (!status.ok() && failure_.empty()) failure_ = status.ToString();
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
  if (busy_) return;
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
  busy_ = true;
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
    const Commit commit = stream.sequence.FinishStep(target, end);
    const coordinator::PassTimes times = {.wait = start - stream.last_end,
                                          .verify = end - start};
    stream.last_end = end;
    stream.send(commit, times);
    // The stream ends with its sequence.
    if (commit.finish != FinishReason::kNone) streams_.erase(id);
  }
  busy_ = false;
  std::vector<std::function<void()>> inbox;
  inbox.swap(inbox_);
  for (const auto& event : inbox) event();
  Pump();
}

}  // namespace specwire::simulate
