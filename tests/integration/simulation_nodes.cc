// SPDX-License-Identifier: Apache-2.0
// The drafter's and the verifier's side of a simulated request.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/simulation.h"

namespace specwire::simulation {

void Simulation::PumpDrafter() {
  for (;;) {
    const DraftPath::Work work = drafter_->NextWork();
    if (work.kind == DraftPath::Work::Kind::kNone) {
      return;
    }
    if (work.kind == DraftPath::Work::Kind::kDraft) {
      int count = work.limits.max_tokens;
      if (rng_.Chance(settings_.silent)) {
        count = 0;
      } else if (rng_.Chance(settings_.partial)) {
        count = rng_.Below(work.limits.max_tokens + 1);
      }
      DraftRun run;
      std::vector<int32_t> path(drafter_->path().begin(),
                                drafter_->path().end());
      const uint64_t salt = settings_.moody ? rng_.Next() : drafter_salt_;
      for (int i = 0; i < count; ++i) {
        path.push_back(
            ToyGuess(settings_.toy_seed, path, settings_.quality, salt));
        run.tokens.push_back(path.back());
      }
      drafter_->OnDrafted(std::move(run));
      continue;
    }
    const Proposal& p = work.proposal;
    const int end = p.position + static_cast<int>(p.tokens.size());
    if (p.based_on != drafter_->committed_length() ||
        end > p.based_on + MaxWindow() ||
        static_cast<int>(p.tokens.size()) > MaxRunLength()) {
      Fail("a drafter overstepped its bounds");
    }
    if (p.position > std::max(drafter_end_, p.based_on)) {
      Fail("a drafter left a gap");
    }
    drafter_end_ = end;
    FromDrafter(p);
  }
}

void Simulation::FromDrafter(Proposal proposal) {
  proposal.source = source_;
  if ((broken_ == Broken::kEmpty && proposal.tokens.empty()) || drafter_mute_ ||
      rng_.Chance(settings_.mute / 20)) {
    return;
  }
  Send(kToCoordinatorD, source_, [this, proposal] { ToCoordinator(proposal); });
  if (rng_.Chance(settings_.nonsense)) {
    // A duplicate, or something like it; in order, or late.
    if (rng_.Chance(.7)) {
      MangleProposal(settings_, machine_.log(), &rng_, &proposal);
      proposal.q.clear();
      for (size_t i = 0; settings_.ratio && i < proposal.tokens.size(); ++i) {
        proposal.q.push_back({{proposal.tokens[i]}, {1.0f}});
      }
    }
    const int32_t source = source_;
    if (rng_.Chance(.5)) {
      Send(kToCoordinatorD, source_, [this, proposal] {
        ToCoordinator(proposal);
      });
    } else {
      // Late ones come even from streams that were closed.
      At(now_ + rng_.Below(100), [this, proposal, source] {
        if (drafter_open_ || source < source_) {
          ToCoordinator(proposal);
        }
      });
    }
  }
}

void Simulation::ToCoordinator(const Proposal& proposal) {
  if (finish_.has_value()) {
    return;
  }
  Proposal patched = proposal;
  if (broken_ == Broken::kOpen) {
    patched.based_on = std::max(patched.based_on, books().opened_length);
  }
  const int64_t size = static_cast<int64_t>(patched.tokens.size());
  drafted_ += size;
  const std::vector<Action> actions = machine_.OnProposal(patched);
  const bool forwarded =
      std::any_of(actions.begin(), actions.end(), [](const Action& action) {
        return std::holds_alternative<coordinator::SendProposal>(action);
      });
  dropped_ += forwarded ? 0 : size;
  Carry(actions);
}

void Simulation::ToVerifier(Proposal proposal) {
  StreamBooks& b = books();
  if (broken_ == Broken::kSource) {
    proposal.source = b.opened_source;
  }
  if (broken_ == Broken::kFence) {
    if (proposal.based_on < b.broken_fence) {
      return;
    }
    for (size_t i = 0; i < proposal.tokens.size(); ++i) {
      const size_t at = static_cast<size_t>(proposal.position) + i;
      if (at < verifier_->log().size() &&
          verifier_->log()[at] != proposal.tokens[i]) {
        b.broken_fence =
            proposal.position + static_cast<int>(proposal.tokens.size());
        break;
      }
    }
  }
  if (!verifier_->done()) {
    b.received += static_cast<int64_t>(proposal.tokens.size());
  }
  if (absl::Status status = verifier_->OnProposal(proposal); !status.ok()) {
    Fail(absl::StrCat("proposal: ", status.ToString()));
  }
  CheckVerifier();
  PumpVerifier();
}

void Simulation::CheckVerifier() {
  const DecodeCounters& c = verifier_->counters();
  const StreamBooks& b = books();
  const int64_t pending = static_cast<int64_t>(verifier_->pending().size());
  if (b.received != b.rows + c.overlapped + c.stale + c.trimmed + pending) {
    Fail(absl::StrCat("a verifier received ",
                      b.received,
                      " draft tokens, ",
                      b.rows,
                      " verified, ",
                      c.overlapped,
                      " overlapped, ",
                      c.stale,
                      " stale, ",
                      c.trimmed,
                      " trimmed, ",
                      pending,
                      " pending"));
  }
  if (pending > MaxWindow()) {
    Fail("more is pending than a drafter may have outstanding");
  }
}

void Simulation::PumpVerifier() {
  if (stepping_ || verifier_side_.hung || !verifier_.has_value()) {
    return;
  }
  const VerifySequence::Next next = verifier_->NextAt(Now());
  if (next.kind == VerifySequence::Next::Kind::kRun) {
    Step(rng_.Chance(.1) ? rng_.Below(settings_.row_budget + 1)
                         : settings_.row_budget);
  } else if (next.kind == VerifySequence::Next::Kind::kWait &&
             next.at != absl::InfiniteFuture()) {
    const int stream = verifier_stream_;
    // Time goes by whole milliseconds: not before it is due.
    const absl::Time due =
        next.at + absl::Milliseconds(1) - absl::Nanoseconds(1);
    At(absl::ToUnixMillis(due), [this, stream] {
      if (verifier_open_ && stream == verifier_stream_) {
        PumpVerifier();
      }
    });
  }
}

void Simulation::Step(int max_rows) {
  const absl::Span<const int32_t> rows = verifier_->BeginStep(max_rows);
  const std::vector<int32_t> run(rows.begin(), rows.end());
  if (static_cast<int>(run.size()) > std::min(max_rows, MaxWindow())) {
    Fail("a pass has more rows than its budget");
  }
  // Every row is computed, as an engine does, the ones behind a wrong one too.
  std::vector<int32_t> prefix(verifier_->log().begin(), verifier_->log().end());
  std::vector<int32_t> target;
  for (size_t i = 0; i <= run.size(); ++i) {
    target.push_back(ToyTarget(settings_.toy_seed, prefix));
    prefix.push_back(i < run.size() ? run[i] : 0);
  }
  Commit commit = verifier_->FinishStep(target, Now() + absl::Milliseconds(5));
  if (!commit.local) books().rows += static_cast<int64_t>(run.size());
  DraftLocally();
  commit.local_next = verifier_->LocalIsEnough();
  int accepted = 0;
  while (accepted < static_cast<int>(run.size()) &&
         accepted < static_cast<int>(commit.tokens.size()) &&
         run[static_cast<size_t>(accepted)] ==
             target[static_cast<size_t>(accepted)]) {
    ++accepted;
  }
  if (commit.num_proposed != static_cast<int>(run.size()) ||
      commit.num_accepted != accepted) {
    Fail("a commit's figures are wrong");
  }
  CheckVerifier();
  if (static_cast<int>(verifier_->log().size()) > books().decode_until) {
    Fail("a verifier ran beyond its credit");
  }
  FromVerifier(commit);
  stepping_ = true;
  const int stream = verifier_stream_;
  At(now_ + 5, [this, stream] {
    if (verifier_open_ && stream == verifier_stream_) {
      stepping_ = false;
      PumpVerifier();
    }
  });
}

void Simulation::DraftLocally() {
  if (settings_.local_run_length == 0 || verifier_->done()) return;
  DraftRun draft;
  std::vector<int32_t> path(verifier_->log().begin(), verifier_->log().end());
  const int size = rng_.Below(settings_.local_run_length + 1);
  float survival = 1;
  for (int i = 0; i < size; ++i) {
    path.push_back(
        ToyGuess(settings_.toy_seed, path, settings_.local_quality, 1));
    draft.tokens.push_back(path.back());
    survival *= static_cast<float>(rng_.Below(10) + 1) / 10;
    draft.survival.push_back(survival);
  }
  verifier_->SetLocalDraft(std::move(draft));
}

void Simulation::FromVerifier(Commit commit) {
  const auto deliver = [this](const Commit& what) {
    Send(kToCoordinatorV, verifier_stream_, [this, what] {
      const size_t before = machine_.log().size();
      const int stream = verifier_stream_;
      const std::vector<Action> actions = machine_.OnCommit(
          what,
          {.wait = absl::Microseconds(300), .verify = absl::Milliseconds(2)});
      if (machine_.log().size() > before) {
        ++passes_;
        accepted_ +=
            std::min(what.num_accepted,
                     static_cast<int32_t>(machine_.log().size() - before));
        (what.local ? local_ : books_[stream].verified) += what.num_proposed;
        books_[stream].counters = what.counters;
      }
      Carry(actions);
      if (verifier_stream_ != stream &&
          !(finish_.has_value() && finish_->status.ok())) {
        ++outcome_.verifiers_lost;
      }
    });
  };
  const bool mad = rng_.Chance(settings_.mad_verifier);
  if (mad && rng_.Chance(.5)) {
    // Garbled in a way that the coordinator can see: a lost verifier.
    GarbleCommit(&rng_, &commit);
    deliver(commit);
    return;
  }
  deliver(commit);
  if (mad) {
    deliver(commit);
  }
}

}  // namespace specwire::simulation
