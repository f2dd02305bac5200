// SPDX-License-Identifier: Apache-2.0

// What a traced request tells of its draft tokens, by hand.

#include "coordinator/request_trace.h"

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/request_machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(1000);
};

// Of a pass: "drafter@node position:token=outcome(draft probability) ...".
std::string Drafts(const TracedPass& pass) {
  const char kNames[] = "ARDOSTU";
  std::string text;
  for (const TracedRun& run : pass.drafts) {
    absl::StrAppend(&text, run.drafter, "@", run.node);
    for (const TracedDraft& draft : run.tokens) {
      absl::StrAppend(&text,
                      " ",
                      draft.position,
                      ":",
                      draft.token_id,
                      std::string(1, kNames[static_cast<int>(draft.outcome)]));
      if (draft.draft_probability.has_value()) {
        absl::StrAppend(&text, "(", *draft.draft_probability, ")");
      }
    }
    absl::StrAppend(&text, "; ");
  }
  return text;
}

RequestParams Params() {
  RequestParams params;
  params.prompt = {1, 2, 3};
  params.max_tokens = 20;
  params.vocab_size = 100;
  params.speculation.run_length = 4;
  params.speculation.window = 12;
  params.local_run_length = 4;
  return params;
}

Proposal MakeRun(int position, int based_on, std::vector<int32_t> tokens) {
  Proposal proposal;
  proposal.source = 1;
  proposal.position = position;
  proposal.based_on = based_on;
  proposal.tokens = std::move(tokens);
  return proposal;
}

DraftFate Fate(int64_t number, DraftOutcome outcome) {
  DraftFate fate;
  fate.number = number;
  fate.outcome = outcome;
  return fate;
}

class RequestTraceTest : public testing::Test {
 protected:
  explicit RequestTraceTest(RequestParams params = Params())
      : trace_(&clock_, absl::Milliseconds(5)),
        machine_(
            params, [](int32_t token) { return token == 99; }, &trace_) {
    trace_.OnDrafterOpened(1, "draft-1", "ngram");
    trace_.OnDrafterTold(1, 3);
    trace_.SetVerifier("verifier-1");
    machine_.Start();
  }

  // The pass that a commit emits; an empty one if it emits none.
  TracedPass Take(const Commit& commit, const PassTimes& times = {}) {
    TracedPass pass;
    for (const Action& action : machine_.OnCommit(commit, times)) {
      if (const auto* emit = std::get_if<EmitTokens>(&action)) {
        EXPECT_NE(emit->trace, nullptr);
        if (emit->trace != nullptr) pass = *emit->trace;
      }
      if (const auto* finish = std::get_if<FinishRequest>(&action)) {
        EXPECT_NE(finish->trace, nullptr);
        if (finish->trace != nullptr) rest_ = Drafts(*finish->trace);
      }
    }
    return pass;
  }

  static Commit MakeCommit(int position,
                           std::vector<int32_t> tokens,
                           int num_proposed,
                           int num_accepted,
                           std::vector<DraftFate> fates) {
    Commit commit;
    commit.position = position;
    commit.tokens = std::move(tokens);
    commit.num_proposed = num_proposed;
    commit.num_accepted = num_accepted;
    commit.trace.emplace().drafts = std::move(fates);
    for (const int32_t token : commit.tokens) {
      commit.trace->choices.push_back({token / 100.0, -token / 10.0});
    }
    return commit;
  }

  FakeClock clock_;
  RequestTrace trace_;
  RequestMachine machine_;
  std::string rest_;
};

TEST_F(RequestTraceTest, TellsOfVerifiedTokensAndWhatWasChosen) {
  Proposal proposal = MakeRun(3, 3, {10, 11, 12, 13});
  proposal.trace.emplace().chances = {0.5f, 0.25f, 1, 0};
  machine_.OnProposal(proposal);
  std::vector<DraftFate> fates = {Fate(0, DraftOutcome::kAccepted),
                                  Fate(1, DraftOutcome::kRejected),
                                  Fate(2, DraftOutcome::kDiscarded),
                                  Fate(3, DraftOutcome::kDiscarded)};
  fates[1].target = TargetProbability{0.125, -2};
  const TracedPass pass = Take(MakeCommit(3, {10, 20}, 4, 1, fates));
  EXPECT_EQ(Drafts(pass),
            "ngram@draft-1 3:10A(0.5) 4:11R(0.25) 5:12D(1) 6:13D(0); ");
  EXPECT_EQ(pass.position, 3);
  EXPECT_EQ(pass.verifier, "verifier-1");
  EXPECT_EQ(pass.drafts[0].tokens[1].target->probability, 0.125);
  EXPECT_EQ(pass.drafts[0].tokens[1].target->logprob, -2);
  EXPECT_FALSE(pass.drafts[0].tokens[2].target.has_value());
  ASSERT_EQ(pass.choices.size(), 2u);
  EXPECT_TRUE(pass.choices[0].accepted);
  EXPECT_FALSE(pass.choices[1].accepted);
  EXPECT_EQ(pass.choices[1].token_id, 20);
  EXPECT_EQ(pass.choices[1].target->probability, 0.2);
}

TEST_F(RequestTraceTest, TellsOfWhatTheVerifierDropped) {
  machine_.OnProposal(MakeRun(3, 3, {10, 11}));
  machine_.OnProposal(MakeRun(5, 3, {12, 13}));
  Commit first =
      MakeCommit(3, {10}, 0, 0, {Fate(0, DraftOutcome::kOverlapped)});
  first.counters.overlapped = 1;
  EXPECT_EQ(Drafts(Take(first)), "ngram@draft-1 3:10O; ");
  Commit second = MakeCommit(4,
                             {30},
                             0,
                             0,
                             {Fate(1, DraftOutcome::kStale),
                              Fate(2, DraftOutcome::kStale),
                              Fate(3, DraftOutcome::kTrimmed)});
  second.counters = {.overlapped = 1, .stale = 2, .trimmed = 1};
  EXPECT_EQ(Drafts(Take(second)), "ngram@draft-1 4:11S 5:12S 6:13T; ");
}

TEST_F(RequestTraceTest, TellsOfWhatTheCoordinatorDropped) {
  Take(MakeCommit(3, {10}, 0, 0, {}));
  Take(MakeCommit(4, {11}, 0, 0, {}));
  // Equal, then different; then of another stream.
  machine_.OnProposal(MakeRun(3, 3, {10, 12}));
  Proposal other = MakeRun(5, 5, {1});
  other.source = 7;
  machine_.OnProposal(other);
  EXPECT_EQ(Drafts(Take(MakeCommit(5, {12}, 0, 0, {}))),
            "ngram@draft-1 3:10O 4:12S; @ 5:1S; ");
}

TEST_F(RequestTraceTest, TellsOfTheVerifiersOwnDrafts) {
  DraftFate local;
  local.token_id = 10;
  local.draft_probability = 0.75;
  local.outcome = DraftOutcome::kAccepted;
  Commit commit = MakeCommit(3, {10, 11}, 1, 1, {local});
  commit.local = true;
  EXPECT_EQ(Drafts(Take(commit)), "local@verifier-1 3:10A(0.75); ");
}

TEST_F(RequestTraceTest, WhatLiesBehindAStopTextIsDiscarded) {
  machine_.OnProposal(MakeRun(3, 3, {10, 99, 12}));
  const TracedPass pass = Take(MakeCommit(3,
                                          {10, 99, 12, 13},
                                          3,
                                          3,
                                          {Fate(0, DraftOutcome::kAccepted),
                                           Fate(1, DraftOutcome::kAccepted),
                                           Fate(2, DraftOutcome::kAccepted)}));
  EXPECT_EQ(Drafts(pass), "ngram@draft-1 3:10A 4:99A 5:12D; ");
  EXPECT_EQ(pass.choices.size(), 2u);
  EXPECT_TRUE(machine_.finished());
  EXPECT_EQ(rest_, "");
}

TEST_F(RequestTraceTest, WhatALostVerifierHadIsUnusedInTheEnd) {
  machine_.OnProposal(MakeRun(3, 3, {10, 11}));
  machine_.OnVerifierClosed(absl::UnavailableError("gone"), true);
  // Numbers begin anew, and old ones mean nothing.
  machine_.OnProposal(MakeRun(3, 3, {10}));
  const TracedPass pass = Take(MakeCommit(
      3,
      {99},
      0,
      0,
      {Fate(5, DraftOutcome::kStale), Fate(5, DraftOutcome::kStale)}));
  EXPECT_TRUE(machine_.finished());
  EXPECT_THAT(rest_, testing::HasSubstr("3:10U"));
  EXPECT_THAT(rest_, testing::HasSubstr("4:11U"));
  EXPECT_EQ(machine_.figures().num_drafted_tokens, 3);
  EXPECT_EQ(machine_.figures().num_unused_tokens +
                machine_.figures().num_overlapped_tokens,
            3);
}

TEST_F(RequestTraceTest, TimesAreThoseOfTheRound) {
  clock_.now += absl::Milliseconds(30);
  Proposal proposal = MakeRun(3, 3, {10});
  // Told at 5 ms, came at 35: of 30 ms the drafter held it 18.
  proposal.trace = ProposalTrace{.chances = {},
                                 .drafting = absl::Milliseconds(8),
                                 .held = absl::Milliseconds(18)};
  machine_.OnProposal(proposal);
  clock_.now += absl::Milliseconds(40);
  Commit commit =
      MakeCommit(3, {10, 11}, 1, 1, {Fate(0, DraftOutcome::kAccepted)});
  commit.trace->num_received = 1;
  commit.trace->held = absl::Milliseconds(4);
  const TracedPass pass =
      Take(commit,
           {.wait = absl::Milliseconds(50), .verify = absl::Milliseconds(26)});
  ASSERT_TRUE(pass.times.has_value());
  const TracedTimes& times = *pass.times;
  EXPECT_EQ(times.end, absl::Milliseconds(75));
  EXPECT_EQ(times.wait, absl::Milliseconds(50));
  EXPECT_EQ(times.verify, absl::Milliseconds(26));
  EXPECT_EQ(times.drafting, absl::Milliseconds(8));
  // 12 to and from the drafter; 40 - 4 - 26 to and from the verifier.
  EXPECT_EQ(times.network, absl::Milliseconds(22));
  EXPECT_EQ(times.proposal, absl::Milliseconds(35));
  EXPECT_EQ(times.start, absl::Milliseconds(75 - 5 - 26));
  // A pass that no proposal came for.
  clock_.now += absl::Milliseconds(20);
  Commit plain = MakeCommit(5, {12}, 0, 0, {});
  plain.trace->num_received = 1;
  plain.trace->held = absl::Milliseconds(44);
  const TracedPass second =
      Take(plain,
           {.wait = absl::Milliseconds(10), .verify = absl::Milliseconds(15)});
  EXPECT_EQ(second.times->network, absl::ZeroDuration());
  EXPECT_EQ(second.times->drafting, absl::ZeroDuration());
  EXPECT_FALSE(second.times->proposal.has_value());
  EXPECT_EQ(second.times->start, absl::Milliseconds(80));
}

// Passes of one sequence follow one another, whenever one hears of them.
TEST_F(RequestTraceTest, VerdictsThatComeTogetherArePlacedByTheVerifiersClock) {
  int position = 3;
  const auto take = [&](int wait_ms, int verify_ms) {
    const TracedPass pass = Take(MakeCommit(position++, {12}, 0, 0, {}),
                                 {.wait = absl::Milliseconds(wait_ms),
                                  .verify = absl::Milliseconds(verify_ms)});
    return pass.times->start;
  };
  clock_.now += absl::Milliseconds(95);
  EXPECT_EQ(take(70, 20), absl::Milliseconds(80));
  // Three that end 10, 40 and 60 ms later are all heard of after 60 ms.
  clock_.now += absl::Milliseconds(60);
  EXPECT_EQ(take(1, 9), absl::Milliseconds(101));
  EXPECT_EQ(take(10, 20), absl::Milliseconds(120));
  EXPECT_EQ(take(0, 20), absl::Milliseconds(140));
}

TEST_F(RequestTraceTest, AVerifierThatTellsNothingIsNoFault) {
  machine_.OnProposal(MakeRun(3, 3, {10}));
  Commit commit = MakeCommit(3, {10, 11}, 1, 1, {});
  commit.trace.reset();
  const TracedPass pass = Take(commit);
  EXPECT_EQ(Drafts(pass), "");
  ASSERT_EQ(pass.choices.size(), 2u);
  EXPECT_FALSE(pass.choices[0].target.has_value());
}

TEST_F(RequestTraceTest, IsBounded) {
  Take(MakeCommit(3, {10}, 0, 0, {}));
  // Nothing that is dropped stops these from coming.
  for (int i = 0; i < 1000; ++i) {
    Proposal proposal = MakeRun(4, 4, {1, 2, 3, 4});
    proposal.source = 9;
    machine_.OnProposal(proposal);
  }
  const TracedPass pass = Take(MakeCommit(4, {11}, 0, 0, {}));
  ASSERT_EQ(pass.drafts.size(), 1u);
  EXPECT_EQ(pass.drafts[0].tokens.size(), kMaxTracedDrafts);
  EXPECT_EQ(pass.num_left_out, 4000 - static_cast<int64_t>(kMaxTracedDrafts));
}

// Nobody checks a proposal that is dropped unread.
TEST_F(RequestTraceTest, BadNumbersOfABadProposalAreNotTold) {
  Proposal proposal = MakeRun(2147483647, 0, {-5, 1 << 30});
  proposal.source = 9;
  proposal.q = {{{-5}, {}}, {{1 << 30}, {0.0f}}};
  machine_.OnProposal(proposal);
  EXPECT_EQ(Drafts(Take(MakeCommit(3, {10}, 0, 0, {}))),
            "@ 2147483647:-5S 2147483647:1073741824S; ");
}

}  // namespace
}  // namespace specwire::coordinator
