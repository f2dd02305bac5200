// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/draft_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = DraftPath::Work::Kind;

// A path opened on 1 2 3.
DraftPath MakePath(int run_length = 2, int window = 4) {
  absl::StatusOr<DraftPath> path =
      DraftPath::Open({1, 2, 3}, 3, run_length, window);
  EXPECT_TRUE(path.ok()) << path.status();
  return *std::move(path);
}

// Works until there is nothing to do, drafting `drafts` one call after the
// other and nothing when they run out. Returns what was sent, as "@position
// based-on [tokens]", and "draft N" for each call.
std::vector<std::string> Work(DraftPath* path,
                              std::vector<std::vector<int32_t>> drafts) {
  std::vector<std::string> log;
  size_t next = 0;
  for (;;) {
    const DraftPath::Work work = path->NextWork();
    if (work.kind == Kind::kNone) {
      return log;
    }
    if (work.kind == Kind::kSend) {
      log.push_back(absl::StrCat("@",
                                 work.proposal.position,
                                 " ",
                                 work.proposal.based_on,
                                 " [",
                                 absl::StrJoin(work.proposal.tokens, " "),
                                 "]"));
      continue;
    }
    log.push_back(absl::StrCat("draft ", work.limits.max_tokens));
    DraftRun run;
    if (next < drafts.size()) {
      run.tokens = drafts[next++];
    }
    path->OnDrafted(std::move(run));
  }
}

TEST(DraftPathTest, OpenRefusesNamingTheField) {
  const auto why = [](std::vector<int32_t> tokens,
                      int prompt_length,
                      int run_length,
                      int window) {
    const absl::Status status =
        DraftPath::Open(std::move(tokens), prompt_length, run_length, window)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(why({}, 1, 2, 4), HasSubstr("tokens must not be empty"));
  EXPECT_THAT(why({1}, 0, 2, 4), HasSubstr("prompt_length must be in [1, 1]"));
  EXPECT_THAT(why({1}, 2, 2, 4), HasSubstr("prompt_length must be in [1, 1]"));
  EXPECT_THAT(why({1}, 1, 0, 4), HasSubstr("run_length must be in [1, 32]"));
  EXPECT_THAT(why({1}, 1, 33, 64), HasSubstr("run_length must be in [1, 32]"));
  EXPECT_THAT(why({1}, 1, 4, 3),
              HasSubstr("window must be in [run_length = 4, 256], got 3"));
  EXPECT_THAT(why({1}, 1, 4, 257),
              HasSubstr("window must be in [run_length = 4, 256], got 257"));
}

TEST(DraftPathTest, FillsTheWindowWithFullRuns) {
  DraftPath path = MakePath(2, 5);
  EXPECT_THAT(Work(&path, {{7, 8}, {9, 6}}),
              ElementsAre("draft 2", "@3 3 [7 8]", "draft 2", "@5 3 [9 6]"));
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 8, 9, 6));
  EXPECT_EQ(path.committed_length(), 3);
}

TEST(DraftPathTest, AShortRunEndsTheDraftingUnlessThereMayBeMore) {
  DraftPath path = MakePath(4, 8);
  EXPECT_THAT(Work(&path, {{7, 8}}), ElementsAre("draft 4", "@3 3 [7 8]"));
  ASSERT_TRUE(path.OnCommit(3, {7, 8, 9}).ok());
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({.tokens = {6, 5}, .more = true});
  EXPECT_THAT(Work(&path, {{4, 3, 2, 1}}),
              ElementsAre("@6 6 [6 5]", "draft 4", "@8 6 [4 3 2 1]"));
}

TEST(DraftPathTest, AWindowOfOneRunWaitsForItsCommit) {
  DraftPath path = MakePath(2, 2);
  EXPECT_THAT(Work(&path, {{7, 8}}), ElementsAre("draft 2", "@3 3 [7 8]"));
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  EXPECT_THAT(Work(&path, {}), IsEmpty());  // One is still outstanding.
  ASSERT_TRUE(path.OnCommit(4, {8}).ok());
  EXPECT_THAT(Work(&path, {{9, 6}}), ElementsAre("draft 2", "@5 5 [9 6]"));
}

TEST(DraftPathTest, APartialRunIsSentAndNothingMoreIsAskedFor) {
  DraftPath path = MakePath(3, 9);
  EXPECT_THAT(Work(&path, {{7}}), ElementsAre("draft 3", "@3 3 [7]"));
  EXPECT_THAT(Work(&path, {{8}}), IsEmpty());
}

TEST(DraftPathTest, AnEventMakesItAskAgain) {
  DraftPath path = MakePath(2, 6);
  Work(&path, {{7, 8}, {9}});
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  EXPECT_THAT(Work(&path, {{6, 6}}),
              ElementsAre("draft 2", "@6 4 [6 6]", "draft 2"));
}

TEST(DraftPathTest, NothingToProposeIsSaidOnceAnEvent) {
  DraftPath path = MakePath();
  EXPECT_THAT(Work(&path, {}), ElementsAre("draft 2", "@3 3 []"));
  EXPECT_THAT(Work(&path, {}), IsEmpty());
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("draft 2", "@4 4 []"));
  ASSERT_TRUE(path.OnRewind(4).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("draft 2", "@4 4 []"));
  EXPECT_THAT(Work(&path, {}), IsEmpty());
}

TEST(DraftPathTest, NothingMoreToProposeIsNotSaidWhileSomethingIsOutstanding) {
  DraftPath path = MakePath();
  EXPECT_THAT(Work(&path, {{7, 8}}),
              ElementsAre("draft 2", "@3 3 [7 8]", "draft 2"));
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("draft 2"));
  // This one leaves nothing outstanding.
  ASSERT_TRUE(path.OnCommit(4, {8}).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("draft 2", "@5 5 []"));
}

TEST(DraftPathTest, ACommitThatAgreesCostsNothing) {
  DraftPath path = MakePath(2, 4);
  Work(&path, {{7, 8}, {9, 6}});
  ASSERT_TRUE(path.OnCommit(3, {7, 8, 9}).ok());
  // Sent up to 7, committed up to 6, a window up to 10.
  EXPECT_THAT(Work(&path, {{5, 5}}), ElementsAre("draft 2", "@7 6 [5 5]"));
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 8, 9, 6, 5, 5));
}

TEST(DraftPathTest, ACommitThatDiffersRollsBack) {
  DraftPath path = MakePath(2, 4);
  Work(&path, {{7, 8}, {9, 6}});
  ASSERT_TRUE(path.OnCommit(3, {7, 5}).ok());
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 5));
  EXPECT_THAT(Work(&path, {{4, 4}, {4, 4}}),
              ElementsAre("draft 2", "@5 5 [4 4]", "draft 2", "@7 5 [4 4]"));
}

TEST(DraftPathTest, ACommitThatDiffersAtOnceRollsBack) {
  DraftPath path = MakePath(2, 2);
  Work(&path, {{7, 8}});
  ASSERT_TRUE(path.OnCommit(3, {5}).ok());
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(Work(&path, {{4, 4}}), ElementsAre("draft 2", "@4 4 [4 4]"));
}

TEST(DraftPathTest, ACommitBeyondItsPathExtendsIt) {
  DraftPath path = MakePath(2, 2);
  Work(&path, {{7, 8}});
  ASSERT_TRUE(path.OnCommit(3, {7, 8, 9}).ok());
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 8, 9));
  EXPECT_THAT(Work(&path, {{4, 4}}), ElementsAre("draft 2", "@6 6 [4 4]"));
}

TEST(DraftPathTest, ARepeatedCommitIsNoEvent) {
  DraftPath path = MakePath();
  ASSERT_TRUE(path.OnCommit(3, {7, 8}).ok());
  Work(&path, {});
  EXPECT_TRUE(path.OnCommit(3, {7, 8}).ok());
  EXPECT_TRUE(path.OnCommit(4, {8}).ok());
  EXPECT_THAT(Work(&path, {}), IsEmpty());
  EXPECT_EQ(path.committed_length(), 5);
}

TEST(DraftPathTest, AnOverlappingCommitAddsWhatIsNew) {
  DraftPath path = MakePath();
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  ASSERT_TRUE(path.OnCommit(3, {7, 8}).ok());
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 8));
}

TEST(DraftPathTest, ACommitWithAGapIsAnError) {
  DraftPath path = MakePath();
  EXPECT_EQ(path.OnCommit(4, {7}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(path.OnCommit(-1, {1}).code(), absl::StatusCode::kInternal);
}

TEST(DraftPathTest, ACommitThatContradictsAnEarlierOneIsAnError) {
  DraftPath path = MakePath();
  ASSERT_TRUE(path.OnCommit(3, {7, 8}).ok());
  const absl::Status status = path.OnCommit(3, {7, 9, 9});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at position 4"));
  EXPECT_EQ(path.committed_length(), 5);
}

TEST(DraftPathTest, ARewindProposesAgainWhatItHoldsWithoutDrafting) {
  DraftPath path = MakePath(2, 4);
  Work(&path, {{7, 8}, {9, 6}});
  ASSERT_TRUE(path.OnRewind(3).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("@3 3 [7 8]", "@5 3 [9 6]"));
}

TEST(DraftPathTest, ARewindAfterACommitProposesWhatIsLeft) {
  DraftPath path = MakePath(2, 4);
  Work(&path, {{7, 8}, {9, 6}});
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  ASSERT_TRUE(path.OnRewind(4).ok());
  // Three are held; one more would not make a full run within the window.
  EXPECT_THAT(Work(&path, {{5, 5}}), ElementsAre("@4 4 [8 9]", "@6 4 [6]"));
}

TEST(DraftPathTest, ARewindBelowItsCommitsProposesNoneOfThem) {
  DraftPath path = MakePath(2, 2);
  Work(&path, {{7, 8}});
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  ASSERT_TRUE(path.OnRewind(3).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("@4 4 [8]"));
}

TEST(DraftPathTest, ARewindBeyondItsCommitsIsRefused) {
  DraftPath path = MakePath();
  EXPECT_EQ(path.OnRewind(4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(path.OnRewind(-1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(DraftPathTest, ATuneChangesRunsAndWindow) {
  DraftPath path = MakePath(2, 2);
  Work(&path, {{7, 8}});
  ASSERT_TRUE(path.OnTune(3, 5).ok());
  EXPECT_THAT(Work(&path, {{4, 5, 6}}), ElementsAre("draft 3", "@5 3 [4 5 6]"));
}

TEST(DraftPathTest, ATuneKeepsWhatIsAbsentAndItsLimits) {
  DraftPath path = MakePath(2, 4);
  EXPECT_EQ(path.OnTune(5, std::nullopt).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(path.OnTune(std::nullopt, 1).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(path.OnTune(4, std::nullopt).ok());
  EXPECT_THAT(Work(&path, {{5, 6, 7, 8}}),
              ElementsAre("draft 4", "@3 3 [5 6 7 8]"));
}

TEST(DraftPathTest, ASmallerWindowHoldsBackWhatLiesBeyondIt) {
  DraftPath path = MakePath(2, 4);
  Work(&path, {{7, 8}, {9, 6}});
  ASSERT_TRUE(path.OnTune(std::nullopt, 2).ok());
  ASSERT_TRUE(path.OnRewind(3).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("@3 3 [7 8]"));
  ASSERT_TRUE(path.OnCommit(3, {7, 8}).ok());
  EXPECT_THAT(Work(&path, {}), ElementsAre("@5 5 [9 6]"));
}

// Under the ratio rule, opened on 1 2 3, runs of three.
DraftPath MakeRatioPath() {
  absl::StatusOr<DraftPath> path =
      DraftPath::Open({1, 2, 3}, 3, 3, 3, AcceptanceRule::kRatio);
  EXPECT_TRUE(path.ok()) << path.status();
  return *std::move(path);
}

DraftDistribution Half(int32_t token) { return {{0, token}, {.5f, .5f}}; }

// What a proposal's tokens were drawn from, as their ids.
std::vector<std::vector<int32_t>> DrawnFrom(const Proposal& proposal) {
  std::vector<std::vector<int32_t>> ids;
  for (const DraftDistribution& q : proposal.q) ids.push_back(q.token_ids);
  return ids;
}

TEST(DraftPathTest, RatioSendsEachTokensDistributionAgainAfterARewind) {
  DraftPath path = MakeRatioPath();
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({{7, 8, 9}, {}, {Half(7), Half(8), Half(9)}});
  EXPECT_THAT(
      DrawnFrom(path.NextWork().proposal),
      ElementsAre(ElementsAre(0, 7), ElementsAre(0, 8), ElementsAre(0, 9)));
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  ASSERT_TRUE(path.OnRewind(4).ok());
  const Proposal again = path.NextWork().proposal;
  EXPECT_THAT(again.tokens, ElementsAre(8, 9));
  EXPECT_THAT(DrawnFrom(again),
              ElementsAre(ElementsAre(0, 8), ElementsAre(0, 9)));
}

TEST(DraftPathTest, RatioForgetsDistributionsWithTheirTokens) {
  DraftPath path = MakeRatioPath();
  path.NextWork();
  path.OnDrafted({{7, 8, 9}, {}, {Half(7), Half(8), Half(9)}});
  path.NextWork();
  ASSERT_TRUE(path.OnCommit(3, {7, 5}).ok());
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({{6}, {}, {Half(6)}});
  EXPECT_THAT(DrawnFrom(path.NextWork().proposal),
              ElementsAre(ElementsAre(0, 6)));
  // A commit that goes beyond the path.
  ASSERT_TRUE(path.OnCommit(5, {6, 4, 4}).ok());
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({{9}, {}, {Half(9)}});
  EXPECT_THAT(DrawnFrom(path.NextWork().proposal),
              ElementsAre(ElementsAre(0, 9)));
}

TEST(DraftPathTest, RatioTakesTokensWithoutDistributionForCertain) {
  DraftPath path = MakeRatioPath();
  path.NextWork();
  path.OnDrafted({{7, 8}});
  const Proposal proposal = path.NextWork().proposal;
  EXPECT_THAT(DrawnFrom(proposal), ElementsAre(ElementsAre(7), ElementsAre(8)));
  EXPECT_THAT(proposal.q[0].probabilities, ElementsAre(1.0f));
}

TEST(DraftPathTest, RatioWorksNoFurtherAheadThanOneRun) {
  const absl::Status status =
      DraftPath::Open({1, 2, 3}, 3, 2, 4, AcceptanceRule::kRatio).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("window must equal run_length = 2"));
  DraftPath path = MakeRatioPath();
  EXPECT_EQ(path.OnTune(std::nullopt, 4).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DraftPathTest, CoupledSendsNoDistributions) {
  DraftPath path = MakePath(2, 2);
  path.NextWork();
  path.OnDrafted({{7, 8}, {}, {Half(7), Half(8)}});
  EXPECT_THAT(path.NextWork().proposal.q, IsEmpty());
}

TEST(DraftPathTest, ConfidenceIsTheSurvivalOfTheRunsLastToken) {
  DraftPath path = MakePath(2, 4);
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({{7, 8}, {.5f, .25f}});
  EXPECT_FLOAT_EQ(path.NextWork().proposal.confidence, .25f);
  // A run behind another starts anew.
  ASSERT_EQ(path.NextWork().kind, Kind::kDraft);
  path.OnDrafted({{9, 6}, {.75f, .75f}});
  EXPECT_FLOAT_EQ(path.NextWork().proposal.confidence, .75f);
}

TEST(DraftPathTest, WhatACommitLeavesOfARunSurvivesLikelier) {
  DraftPath path = MakePath(3, 3);
  path.NextWork();
  path.OnDrafted({{7, 8, 9}, {.5f, .25f, .2f}});
  path.NextWork();
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  ASSERT_TRUE(path.OnRewind(4).ok());
  const Proposal again = path.NextWork().proposal;
  EXPECT_THAT(again.tokens, ElementsAre(8, 9));
  EXPECT_FLOAT_EQ(again.confidence, .4f);
}

TEST(DraftPathTest, ConfidenceIsNoneWithoutAnEstimateForEachToken) {
  DraftPath path = MakePath(2, 4);
  path.NextWork();
  path.OnDrafted({{7, 8}});
  EXPECT_EQ(path.NextWork().proposal.confidence, 0);
  path.NextWork();
  path.OnDrafted({{9, 6}, {.5f, .5f}});
  EXPECT_FLOAT_EQ(path.NextWork().proposal.confidence, .5f);
  ASSERT_TRUE(path.OnTune(4, std::nullopt).ok());
  ASSERT_TRUE(path.OnRewind(3).ok());
  const Proposal again = path.NextWork().proposal;
  EXPECT_THAT(again.tokens, ElementsAre(7, 8, 9, 6));
  EXPECT_EQ(again.confidence, 0);
}

TEST(DraftPathTest, SurvivalGoesWithItsPath) {
  DraftPath path = MakePath(2, 2);
  path.NextWork();
  path.OnDrafted({{7, 8}, {.5f, .25f}});
  path.NextWork();
  ASSERT_TRUE(path.OnCommit(3, {7, 5}).ok());
  path.NextWork();
  path.OnDrafted({{9}, {.125f}});
  EXPECT_FLOAT_EQ(path.NextWork().proposal.confidence, .125f);
  // A commit that goes beyond the path.
  ASSERT_TRUE(path.OnCommit(5, {9, 4, 4}).ok());
  path.NextWork();
  path.OnDrafted({{6}, {.75f}});
  EXPECT_FLOAT_EQ(path.NextWork().proposal.confidence, .75f);
}

TEST(DraftPathTest, AnImpossibleTokenStaysImpossible) {
  DraftPath path = MakePath(3, 3);
  path.NextWork();
  path.OnDrafted({{7, 8, 9}, {.5f, 0, 0}});
  path.NextWork();
  ASSERT_TRUE(path.OnCommit(3, {7, 8}).ok());
  ASSERT_TRUE(path.OnRewind(5).ok());
  EXPECT_EQ(path.NextWork().proposal.confidence, 0);
}

// Opened on 1 2 3, runs of four, cut at a survival of .3.
DraftPath MakeCutPath() {
  absl::StatusOr<DraftPath> path = DraftPath::Open(
      {1, 2, 3}, 3, 4, 8, AcceptanceRule::kCoupled, /*min_survival=*/.3f);
  EXPECT_TRUE(path.ok()) << path.status();
  return *std::move(path);
}

TEST(DraftPathTest, ARunEndsBeforeTheFirstTokenThatSurvivesTooSeldom) {
  DraftPath path = MakeCutPath();
  const DraftPath::Work work = path.NextWork();
  ASSERT_EQ(work.kind, Kind::kDraft);
  EXPECT_EQ(work.limits.max_tokens, 4);
  EXPECT_FLOAT_EQ(work.limits.min_survival, .3f);
  DraftRun run = {{7, 8, 9, 6}, {.5f, .3f, .29f, .1f}};
  run.more = true;
  path.OnDrafted(std::move(run));
  const Proposal proposal = path.NextWork().proposal;
  EXPECT_THAT(proposal.tokens, ElementsAre(7, 8));
  EXPECT_FLOAT_EQ(proposal.confidence, .3f);
  EXPECT_THAT(path.path(), ElementsAre(1, 2, 3, 7, 8));
  // Nothing more before the next event.
  EXPECT_EQ(path.NextWork().kind, Kind::kNone);
  ASSERT_TRUE(path.OnCommit(3, {7}).ok());
  EXPECT_EQ(path.NextWork().kind, Kind::kDraft);
}

TEST(DraftPathTest, ARunThatIsCutToNothingIsAnsweredAllTheSame) {
  DraftPath path = MakeCutPath();
  path.NextWork();
  path.OnDrafted({{7, 8}, {.2f, .1f}});
  const DraftPath::Work work = path.NextWork();
  ASSERT_EQ(work.kind, Kind::kSend);
  EXPECT_THAT(work.proposal.tokens, IsEmpty());
}

TEST(DraftPathTest, ARunWithoutEstimatesIsLeftWhole) {
  DraftPath path = MakeCutPath();
  path.NextWork();
  path.OnDrafted({{7, 8, 9, 6}});
  EXPECT_THAT(path.NextWork().proposal.tokens, ElementsAre(7, 8, 9, 6));
}

TEST(DraftPathTest, ATuneChangesWhereRunsAreCut) {
  DraftPath path = MakeCutPath();
  ASSERT_TRUE(path.OnTune(std::nullopt, std::nullopt, .5f).ok());
  path.NextWork();
  path.OnDrafted({{7, 8}, {.5f, .4f}});
  EXPECT_THAT(path.NextWork().proposal.tokens, ElementsAre(7));
  ASSERT_TRUE(path.OnTune(std::nullopt, std::nullopt, 0.0f).ok());
  const DraftPath::Work work = path.NextWork();
  ASSERT_EQ(work.kind, Kind::kDraft);
  EXPECT_EQ(work.limits.min_survival, 0);
}

TEST(DraftPathTest, MinSurvivalIsCheckedByName) {
  const auto why = [](float min_survival, AcceptanceRule rule) {
    const absl::Status status =
        DraftPath::Open({1}, 1, 2, 2, rule, min_survival).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {-.1f, 1.0f, kNan}) {
    EXPECT_THAT(why(value, AcceptanceRule::kCoupled),
                HasSubstr("min_survival must be in [0, 1)"));
  }
  EXPECT_THAT(why(.1f, AcceptanceRule::kRatio),
              HasSubstr("min_survival must be 0 under the ratio rule"));
  DraftPath path = MakeCutPath();
  EXPECT_EQ(path.OnTune(std::nullopt, std::nullopt, 1.0f).code(),
            absl::StatusCode::kInvalidArgument);
  DraftPath ratio = MakeRatioPath();
  EXPECT_EQ(ratio.OnTune(std::nullopt, std::nullopt, .1f).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace specwire
