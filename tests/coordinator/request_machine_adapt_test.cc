// SPDX-License-Identifier: Apache-2.0

// A request machine that leaves a drafter alone whose drafts do not pay.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/request_machine.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

constexpr int kPrompt = 3;

RequestParams Params() {
  RequestParams params;
  params.prompt = {1, 2, 3};
  params.max_tokens = 5000;
  params.speculation.run_length = 2;
  params.speculation.window = 4;
  params.speculation.patience = absl::Milliseconds(10);
  params.adapt.emplace();
  params.vocab_size = 100;
  params.credit = 10000;
  return params;
}

// Plays a verifier that commits token 7 for ever, plainly, and a drafter that
// answers whatever it is told with a run of `draft`.
class Play {
 public:
  explicit Play(RequestParams params = Params()) : machine_(std::move(params)) {
    Take(machine_.Start());
  }

  void Step() {
    Commit commit;
    commit.position = static_cast<int32_t>(machine_.log().size());
    commit.tokens = {7};
    if (!pending_.empty() && patience_ > absl::ZeroDuration()) {
      // The verifier checks what it has.
      const bool right = pending_[0] == 7;
      commit.num_proposed = static_cast<int32_t>(pending_.size());
      commit.num_accepted = right ? commit.num_proposed : 0;
      commit.tokens.assign(right ? pending_.size() + 1 : 1, 7);
      verified_ += commit.num_proposed;
      pending_.clear();
    }
    stale_ += static_cast<int64_t>(pending_.size());
    pending_.clear();
    commit.counters.stale = stale_;
    Take(machine_.OnCommit(
        commit,
        {.wait = absl::Microseconds(200), .verify = absl::Milliseconds(2)}));
  }
  // The drafter answers what it has been told.
  void Answer(int32_t draft) {
    if (!told_) return;
    told_ = false;
    Proposal proposal;
    proposal.source = source_;
    proposal.position = told_length_;
    proposal.based_on = told_length_;
    proposal.tokens = {draft, draft};
    Take(machine_.OnProposal(proposal));
  }

  void Take(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* open = std::get_if<OpenDrafter>(&action)) {
        source_ = open->source;
        told_length_ = static_cast<int32_t>(open->tokens.size());
        told_ = true;
        ++opened;
      } else if (const auto* commit = std::get_if<SendCommit>(&action)) {
        // Without a gap.
        EXPECT_EQ(commit->position, told_length_);
        told_length_ =
            commit->position + static_cast<int32_t>(commit->tokens.size());
        told_ = true;
        ++commits;
      } else if (const auto* proposal = std::get_if<SendProposal>(&action)) {
        pending_ = proposal->proposal.tokens;
      } else if (const auto* tune = std::get_if<SendDecodeTune>(&action)) {
        patience_ = tune->patience.value_or(patience_);
      } else if (const auto* verifier = std::get_if<OpenVerifier>(&action)) {
        patience_ = verifier->patience;
        pending_.clear();
        stale_ = 0;
      } else if (const auto* close = std::get_if<CloseDrafter>(&action)) {
        told_ = false;
        lost += close->lost ? 1 : 0;
      } else if (std::holds_alternative<SendRewind>(action)) {
        told_ = true;
      }
    }
  }

  RequestMachine& machine() { return machine_; }
  absl::Duration patience() const { return patience_; }
  int64_t verified() const { return verified_; }

  int opened = 0;
  int commits = 0;
  int lost = 0;

 private:
  RequestMachine machine_;
  absl::Duration patience_ = absl::ZeroDuration();
  std::vector<int32_t> pending_;
  int64_t stale_ = 0;
  int64_t verified_ = 0;
  int32_t source_ = 0;
  int32_t told_length_ = kPrompt;
  bool told_ = false;
};

TEST(RequestMachineAdaptTest, ADrafterThatIsAlwaysWrongHearsLittle) {
  Play play;
  for (int i = 0; i < 1000; ++i) {
    play.Answer(8);
    play.Step();
  }
  EXPECT_EQ(play.machine().log().size(), size_t{kPrompt + 1000});
  EXPECT_LT(play.commits, 300);
  EXPECT_GT(play.commits, 8);
  EXPECT_EQ(play.patience(), absl::ZeroDuration());
  EXPECT_EQ(play.opened, 1);
  EXPECT_EQ(play.lost, 0);
  ASSERT_TRUE(play.machine().estimates().has_value());
  EXPECT_FALSE(play.machine().estimates()->pays);
}

TEST(RequestMachineAdaptTest, ADrafterThatIsAlwaysRightHearsAll) {
  Play play;
  int steps = 0;
  for (; play.machine().log().size() < 1000; ++steps) {
    play.Answer(7);
    play.Step();
  }
  // It was opened with those before.
  EXPECT_EQ(play.commits, steps - 2);
  EXPECT_LT(steps, 400);
}

TEST(RequestMachineAdaptTest, ADrafterIsOpenedOnceAFewPassesWereSeen) {
  Play play;
  EXPECT_EQ(play.opened, 0);
  EXPECT_EQ(play.patience(), absl::ZeroDuration());
  play.Step();
  EXPECT_EQ(play.opened, 0);
  play.Step();
  EXPECT_EQ(play.opened, 1);
}

// Commits `size` tokens 7, of which all but the last are accepted local ones.
Commit LocalCommit(const RequestMachine& machine, int size, bool next) {
  Commit commit;
  commit.position = static_cast<int32_t>(machine.log().size());
  commit.tokens.assign(static_cast<size_t>(size), 7);
  commit.num_proposed = size - 1;
  commit.num_accepted = size - 1;
  commit.local = true;
  commit.local_next = next;
  return commit;
}

TEST(RequestMachineAdaptTest, ADrafterIsNotAskedWhereALocalDraftIsEnough) {
  RequestParams params = Params();
  params.local_run_length = 8;
  Play play(params);
  for (int i = 0; i < 20; ++i) {
    play.Answer(7);
    play.Step();
  }
  const int commits = play.commits;
  const size_t length = play.machine().log().size();
  const PassTimes times = {.wait = absl::ZeroDuration(),
                           .verify = absl::Milliseconds(2)};
  for (int i = 0; i < 4; ++i) {
    play.Take(
        play.machine().OnCommit(LocalCommit(play.machine(), 3, true), times));
  }
  EXPECT_EQ(play.commits, commits);
  // It is told of all at once when it has something to say again; Take() checks
  // that there is no gap.
  play.Take(
      play.machine().OnCommit(LocalCommit(play.machine(), 3, false), times));
  EXPECT_EQ(play.commits, commits + 1);
  EXPECT_EQ(play.machine().log().size(), length + 15);
  const SpeculationFigures& figures = play.machine().figures();
  EXPECT_EQ(figures.num_local_steps, 5);
  EXPECT_EQ(figures.num_local_draft_tokens, 10);
  EXPECT_EQ(figures.num_accepted_local_draft_tokens, 10);
}

TEST(RequestMachineAdaptTest, AMoveTellsTheDrafterWhatWasKeptFromItFirst) {
  RequestParams params = Params();
  params.local_run_length = 8;
  Play play(params);
  for (int i = 0; i < 20; ++i) {
    play.Answer(7);
    play.Step();
  }
  play.Take(play.machine().OnCommit(LocalCommit(play.machine(), 3, true)));
  const int commits = play.commits;
  const std::vector<Action> actions = play.machine().OnVerifierClosed(
      absl::UnavailableError("crashed"), /*could_open=*/true);
  play.Take(actions);
  EXPECT_EQ(play.commits, commits + 1);
  EXPECT_TRUE(std::holds_alternative<SendRewind>(actions.back()) ||
              std::holds_alternative<ArmDrafterTimer>(actions.back()));
}

TEST(RequestMachineAdaptTest, MoreLocalTokensThanWereAskedForLoseTheVerifier) {
  RequestParams params = Params();
  params.local_run_length = 4;
  RequestMachine machine(params);
  machine.Start();
  EXPECT_TRUE(std::holds_alternative<EmitTokens>(
      machine.OnCommit(LocalCommit(machine, 5, false))[0]));
  const std::vector<Action> actions =
      machine.OnCommit(LocalCommit(machine, 6, false));
  ASSERT_FALSE(actions.empty());
  EXPECT_TRUE(std::holds_alternative<CloseVerifier>(actions[0]));
}

TEST(RequestMachineAdaptTest, WithoutDraftNodesNoneIsOpened) {
  RequestParams params = Params();
  params.draft_nodes = false;
  params.local_run_length = 4;
  Play play(params);
  for (int i = 0; i < 300; ++i) play.Step();
  EXPECT_EQ(play.opened, 0);
  EXPECT_EQ(play.patience(), absl::ZeroDuration());
}

TEST(RequestMachineAdaptTest, AttemptsResumeWithAllThatWasKeptFromTheDrafter) {
  Play play;
  for (int i = 0; i < 300; ++i) {
    play.Answer(8);
    play.Step();
  }
  ASSERT_FALSE(play.machine().estimates()->pays);
  // It has become good; Take() checks that no commit leaves a gap.
  for (int i = 0; i < 600; ++i) {
    play.Answer(7);
    play.Step();
  }
  EXPECT_TRUE(play.machine().estimates()->pays);
  EXPECT_GT(play.verified(), 200);
}

TEST(RequestMachineAdaptTest, NothingIsOwedWhileTheDrafterIsLeftAlone) {
  Play play;
  for (int i = 0; i < 300; ++i) {
    play.Answer(8);
    play.Step();
  }
  // A timer that was armed long ago finds no debt.
  for (int64_t owed = 0; owed < 400; ++owed) {
    EXPECT_TRUE(play.machine().OnDrafterTimeout(1, owed).empty());
  }
}

TEST(RequestMachineAdaptTest, StartsWithoutADrafterWhereDraftsDidNotPay) {
  RequestParams params = Params();
  params.adapt->estimates.pays = false;
  params.adapt->first_attempt = 20;
  Play play(params);
  EXPECT_EQ(play.opened, 0);
  EXPECT_EQ(play.patience(), absl::ZeroDuration());
  for (int i = 0; i < 19; ++i) play.Step();
  EXPECT_EQ(play.opened, 0);
  EXPECT_TRUE(play.machine().OnDrafterAvailable().empty());
  play.Step();
  EXPECT_EQ(play.opened, 1);
}

TEST(RequestMachineAdaptTest, AMoveWhileTheDrafterIsLeftAloneOpensItLater) {
  Play play;
  int steps = 0;
  for (; play.machine().estimates()->pays; ++steps) {
    play.Answer(8);
    play.Step();
  }
  play.Take(play.machine().OnVerifierClosed(absl::UnavailableError("crashed"),
                                            /*could_open=*/true));
  EXPECT_EQ(play.lost, 0);
  for (int i = 0; i < 600; ++i) {
    play.Answer(7);
    play.Step();
  }
  EXPECT_EQ(play.opened, 2);
  EXPECT_TRUE(play.machine().estimates()->pays);
}

TEST(RequestMachineAdaptTest, AFullVerifierIsNoLoss) {
  RequestParams params = Params();
  params.max_moves = 0;
  Play play(params);
  for (int i = 0; i < 5; ++i) {
    const std::vector<Action> actions = play.machine().OnVerifierRefused();
    EXPECT_TRUE(
        std::any_of(actions.begin(), actions.end(), [](const Action& action) {
          return std::holds_alternative<OpenVerifier>(action);
        }));
    play.Take(actions);
  }
  play.Step();
  EXPECT_FALSE(play.machine().finished());
  const absl::Status full = absl::ResourceExhaustedError("full");
  const std::vector<Action> actions =
      play.machine().OnVerifierClosed(full, /*could_open=*/false);
  ASSERT_TRUE(play.machine().finished());
  EXPECT_EQ(std::get<FinishRequest>(actions.back()).status, full);
}

// What the drafter and the verifier were told last.
struct Told {
  int run_length = 0;
  int window = 0;
  float min_survival = 0;
  int tunes = 0;

  void Take(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* open = std::get_if<OpenDrafter>(&action)) {
        run_length = open->run_length;
        window = open->window;
        min_survival = open->min_survival;
      } else if (const auto* tune = std::get_if<SendDraftTune>(&action)) {
        ++tunes;
        EXPECT_TRUE(tune->run_length.has_value() || tune->window.has_value() ||
                    tune->min_survival.has_value());
        run_length = tune->run_length.value_or(run_length);
        window = tune->window.value_or(window);
        min_survival = tune->min_survival.value_or(min_survival);
      }
    }
  }
};

// A drafter that is right for ever and fills its window, and a verifier that
// checks `rows` tokens at most in a pass. Returns the machine's figures.
SpeculationFigures PlayEager(RequestParams params,
                             float confidence,
                             Told* told) {
  constexpr int kRows = 6;
  params.max_tokens = 2000;
  RequestMachine machine(std::move(params));
  told->Take(machine.Start());
  int sent = kPrompt;
  while (!machine.finished()) {
    const int length = static_cast<int>(machine.log().size());
    sent = std::max(sent, length);
    while (told->run_length > 0 &&
           sent + told->run_length <= length + told->window) {
      Proposal proposal;
      proposal.source = 1;
      proposal.position = sent;
      proposal.based_on = length;
      proposal.tokens.assign(static_cast<size_t>(told->run_length), 7);
      proposal.confidence = confidence;
      sent += told->run_length;
      told->Take(machine.OnProposal(proposal));
      if (machine.finished()) return machine.figures();
    }
    Commit commit;
    commit.position = length;
    commit.num_proposed = std::min({sent - length, kRows, 2002 - length});
    commit.num_accepted = commit.num_proposed;
    commit.tokens.assign(static_cast<size_t>(commit.num_proposed) + 1, 7);
    told->Take(machine.OnCommit(
        commit,
        {.wait = absl::ZeroDuration(),
         .verify = absl::Microseconds(2000 + 150 * commit.num_proposed)}));
  }
  return machine.figures();
}

TEST(RequestMachineAdaptTest, TunesADrafterThatDeservesIt) {
  RequestParams params = Params();
  params.speculation.fixed_run_length = false;
  params.speculation.fixed_window = false;
  Told told;
  const SpeculationFigures figures = PlayEager(params, 0, &told);
  EXPECT_GT(told.run_length, 4);
  EXPECT_GE(told.window, 2 * told.run_length);
  EXPECT_EQ(told.min_survival, 0);
  EXPECT_GE(told.tunes, 1);
  EXPECT_LT(told.tunes, 12);
  EXPECT_EQ(figures.longest_run_length, told.run_length);
  EXPECT_GT(figures.predicted_speedup, 2);
  EXPECT_GT(figures.plain_step, absl::Milliseconds(1));
  EXPECT_LT(figures.plain_step, absl::Milliseconds(3));
}

TEST(RequestMachineAdaptTest, TellsADrafterThatKnowsWhereToCut) {
  RequestParams params = Params();
  params.speculation.fixed_run_length = false;
  params.speculation.fixed_window = false;
  Told told;
  PlayEager(params, 0.9f, &told);
  EXPECT_GT(told.run_length, 4);
  EXPECT_GT(told.min_survival, 0);
}

TEST(RequestMachineAdaptTest, WhatARequestFixesIsNotTuned) {
  Told told;
  const SpeculationFigures figures = PlayEager(Params(), 0.9f, &told);
  EXPECT_EQ(told.tunes, 0);
  EXPECT_EQ(told.run_length, 2);
  EXPECT_EQ(told.window, 4);
  EXPECT_EQ(told.min_survival, 0);
  EXPECT_EQ(figures.longest_run_length, 2);
}

TEST(RequestMachineAheadTest, CommitsAreCountedByWhatLayBehindThem) {
  RequestParams params = Params();
  params.adapt.reset();
  RequestMachine machine(params);
  machine.Start();
  const auto propose = [&](int position, int based_on) {
    Proposal proposal;
    proposal.source = 1;
    proposal.position = position;
    proposal.based_on = based_on;
    proposal.tokens = {7, 7};
    machine.OnProposal(proposal);
  };
  const auto commit = [&](std::vector<int32_t> tokens, int num_proposed) {
    Commit done;
    done.position = static_cast<int32_t>(machine.log().size());
    done.num_proposed = num_proposed;
    done.num_accepted = static_cast<int32_t>(tokens.size()) - 1;
    done.tokens = std::move(tokens);
    machine.OnCommit(done);
  };
  propose(3, 3);
  propose(5, 3);
  // The first run is right, and its bonus token is the next one's first.
  commit({7, 7, 7}, 2);
  EXPECT_EQ(machine.figures().num_ahead_hits, 1);
  // All that was there is verified: nothing lay behind it.
  commit({7, 7}, 1);
  EXPECT_EQ(machine.figures().num_ahead_hits, 1);
  EXPECT_EQ(machine.figures().num_ahead_misses, 0);
  propose(8, 8);
  propose(10, 8);
  // The first run is wrong, and so the second one worthless.
  commit({8}, 2);
  EXPECT_EQ(machine.figures().num_ahead_misses, 1);
  propose(9, 9);
  // Wrong, but nothing lay behind it.
  commit({8}, 2);
  EXPECT_EQ(machine.figures().num_ahead_misses, 1);
  propose(10, 10);
  // A plain pass that the draft came too late for.
  commit({7}, 0);
  EXPECT_EQ(machine.figures().num_ahead_hits, 2);
}

}  // namespace
}  // namespace specwire::coordinator
