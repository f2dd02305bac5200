// SPDX-License-Identifier: Apache-2.0
#include "coordinator/local_drafter.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Counts on from the last token of the path; has nothing to say behind
// `last`, fails behind `failing`.
struct Script {
  int32_t last = 1000;
  int32_t failing = 1000;
  // Tokens beyond what it was asked for.
  int excess = 0;
};

class ScriptedSequence final : public DraftSequence {
 public:
  explicit ScriptedSequence(const Script& script) : script_(script) {}
  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override {
    if (path.back() >= script_.failing) {
      return absl::InternalError("it had enough");
    }
    DraftRun run;
    for (int32_t token = path.back() + 1;
         token <= script_.last && static_cast<int>(run.tokens.size()) <
                                      limits.max_tokens + script_.excess;
         ++token) {
      run.tokens.push_back(token);
    }
    return run;
  }

 private:
  const Script script_;
};

class ScriptedDrafter final : public Drafter {
 public:
  explicit ScriptedDrafter(const Script& script) : script_(script) {}
  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return none_; }
  const std::string& model_digest() const override { return none_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams&) override {
    return std::make_unique<ScriptedSequence>(script_);
  }

 private:
  const Script script_;
  const std::string name_ = "scripted";
  const std::string none_;
};

std::unique_ptr<LocalDrafter> MakeDrafter(const Script& script = {},
                                          int64_t max_tokens = 1000) {
  return std::make_unique<LocalDrafter>(
      std::make_unique<ScriptedDrafter>(script), max_tokens);
}

LocalDraftOpen Request(std::vector<int32_t> tokens,
                       int run_length = 2,
                       int window = 4) {
  LocalDraftOpen open;
  open.prompt_length = static_cast<int>(tokens.size());
  open.tokens = std::move(tokens);
  open.run_length = run_length;
  open.window = window;
  return open;
}

std::unique_ptr<LocalDraftStream> Open(LocalDrafter* drafter,
                                       LocalDraftOpen open) {
  absl::StatusOr<std::unique_ptr<LocalDraftStream>> stream =
      drafter->Open(std::move(open));
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

// Everything it says until it has nothing more, as "@position based-on
// [tokens]", or the error.
std::vector<std::string> Said(LocalDraftStream* stream) {
  std::vector<std::string> said;
  while (true) {
    const absl::StatusOr<std::optional<Proposal>> next = stream->Next();
    if (!next.ok()) {
      said.push_back(next.status().ToString());
      return said;
    }
    if (!next->has_value()) return said;
    const Proposal& proposal = **next;
    said.push_back(absl::StrCat("@",
                                proposal.position,
                                " ",
                                proposal.based_on,
                                " [",
                                absl::StrJoin(proposal.tokens, " "),
                                "]"));
  }
}

TEST(LocalDrafterTest, AnswersItsOpenAndFillsTheWindow) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}));
  EXPECT_THAT(Said(stream.get()), ElementsAre("@2 2 [9 10]", "@4 2 [11 12]"));
  EXPECT_THAT(Said(stream.get()), IsEmpty());
}

TEST(LocalDrafterTest, ACommitThatAgreesKeepsWhatIsOutstanding) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}));
  Said(stream.get());
  stream->OnCommit(2, std::vector<int32_t>{9, 10});
  EXPECT_THAT(Said(stream.get()), ElementsAre("@6 4 [13 14]"));
}

TEST(LocalDrafterTest, ACommitThatDiffersBeginsANewPath) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}));
  Said(stream.get());
  stream->OnCommit(2, std::vector<int32_t>{9, 50});
  EXPECT_THAT(Said(stream.get()), ElementsAre("@4 4 [51 52]", "@6 4 [53 54]"));
}

TEST(LocalDrafterTest, SeveralCommitsAreTakenTogether) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}));
  Said(stream.get());
  stream->OnCommit(2, std::vector<int32_t>{50});
  stream->OnCommit(3, std::vector<int32_t>{60});
  EXPECT_THAT(Said(stream.get()), ElementsAre("@4 4 [61 62]", "@6 4 [63 64]"));
}

TEST(LocalDrafterTest, SaysSoWhenItHasNothingToSay) {
  const auto drafter = MakeDrafter({.last = 9});
  const auto stream = Open(drafter.get(), Request({7, 8}));
  EXPECT_THAT(Said(stream.get()), ElementsAre("@2 2 [9]"));
  // Whoever waits behind this commit must hear something.
  stream->OnCommit(2, std::vector<int32_t>{9, 10});
  EXPECT_THAT(Said(stream.get()), ElementsAre("@4 4 []"));
  stream->OnRewind(4);
  EXPECT_THAT(Said(stream.get()), ElementsAre("@4 4 []"));
  EXPECT_THAT(Said(stream.get()), IsEmpty());
}

TEST(LocalDrafterTest, ProposesAgainAfterARewind) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}));
  Said(stream.get());
  stream->OnRewind(2);
  EXPECT_THAT(Said(stream.get()), ElementsAre("@2 2 [9 10]", "@4 2 [11 12]"));
}

TEST(LocalDrafterTest, FollowsNewSettings) {
  const auto drafter = MakeDrafter();
  const auto stream = Open(drafter.get(), Request({7, 8}, 2, 2));
  EXPECT_THAT(Said(stream.get()), ElementsAre("@2 2 [9 10]"));
  stream->OnTune(3, 6, std::nullopt);
  stream->OnCommit(2, std::vector<int32_t>{9, 10, 11});
  EXPECT_THAT(Said(stream.get()),
              ElementsAre("@5 5 [12 13 14]", "@8 5 [15 16 17]"));
}

TEST(LocalDrafterTest, TheRatioRuleIsToldThatTokensWereCertain) {
  const auto drafter = MakeDrafter();
  LocalDraftOpen open = Request({7, 8}, 2, 2);
  open.params.rule = AcceptanceRule::kRatio;
  const auto stream = Open(drafter.get(), std::move(open));
  const absl::StatusOr<std::optional<Proposal>> next = stream->Next();
  ASSERT_TRUE(next.ok() && next->has_value());
  ASSERT_EQ((*next)->q.size(), 2u);
  EXPECT_THAT((*next)->q[0].token_ids, ElementsAre(9));
  EXPECT_THAT((*next)->q[0].probabilities, ElementsAre(1.0f));
}

TEST(LocalDrafterTest, RefusesSettingsThatADraftNodeWouldRefuse) {
  const auto drafter = MakeDrafter();
  for (LocalDraftOpen open :
       {Request({}), Request({1}, 0, 4), Request({1}, 4, 2)}) {
    EXPECT_EQ(drafter->Open(std::move(open)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(drafter->num_tokens(), 0);
}

TEST(LocalDrafterTest, ErrorsEndTheStream) {
  const auto failing = MakeDrafter({.failing = 10});
  auto stream = Open(failing.get(), Request({7, 8}));
  EXPECT_THAT(Said(stream.get()),
              ElementsAre("@2 2 [9 10]", "INTERNAL: it had enough"));
  stream->OnRewind(2);
  EXPECT_THAT(Said(stream.get()), ElementsAre("INTERNAL: it had enough"));

  const auto drafter = MakeDrafter();
  stream = Open(drafter.get(), Request({7, 8}));
  stream->OnCommit(3, std::vector<int32_t>{9});
  EXPECT_THAT(Said(stream.get()), ElementsAre(HasSubstr("leaves a gap")));
  stream = Open(drafter.get(), Request({7, 8}));
  stream->OnCommit(1, std::vector<int32_t>{9});
  EXPECT_THAT(Said(stream.get()), ElementsAre(HasSubstr("contradicts")));
  stream = Open(drafter.get(), Request({7, 8}));
  stream->OnTune(0, std::nullopt, std::nullopt);
  EXPECT_THAT(Said(stream.get()), ElementsAre(HasSubstr("run_length")));

  const auto verbose = MakeDrafter({.excess = 1});
  stream = Open(verbose.get(), Request({7, 8}));
  EXPECT_THAT(Said(stream.get()), ElementsAre(HasSubstr("at most 2")));
}

TEST(LocalDrafterTest, HasRoomForSoManyTokens) {
  const auto drafter = MakeDrafter({}, 10);
  auto first = Open(drafter.get(), Request({1, 2, 3, 4, 5, 6}));
  first->OnCommit(6, std::vector<int32_t>{7, 8});
  EXPECT_EQ(drafter->num_tokens(), 8);
  EXPECT_EQ(drafter->Open(Request({1, 2, 3})).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto second = Open(drafter.get(), Request({1, 2}));
  first.reset();
  EXPECT_EQ(drafter->num_tokens(), 2);
  Open(drafter.get(), Request({1, 2, 3}));
  EXPECT_EQ(drafter->num_tokens(), 2);
}

TEST(LocalDrafterTest, CreateMakesTheOneNamed) {
  const auto none = LocalDrafter::Create("none");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  const auto suffix = LocalDrafter::Create("suffix");
  ASSERT_TRUE(suffix.ok());
  const auto stream =
      Open(suffix->get(), Request({1, 2, 3, 4, 5, 6, 1, 2, 3, 4}));
  EXPECT_THAT(Said(stream.get()), Not(IsEmpty()));
}

TEST(LocalDrafterTest, TellsWhenItHasALongTextToRead) {
  const auto drafter = MakeDrafter({.last = 0}, 1 << 20);
  const auto stream = Open(drafter.get(), Request(std::vector<int32_t>(5000)));
  EXPECT_TRUE(stream->has_long_text());
  Said(stream.get());
  EXPECT_FALSE(stream->has_long_text());
  EXPECT_FALSE(Open(drafter.get(), Request({1, 2}))->has_long_text());
}

TEST(LocalDrafterTest, PastOutputServesItsTenantOnly) {
  const auto drafter = LocalDrafter::Create("suffix");
  ASSERT_TRUE(drafter.ok());
  const auto request = [](const std::string& salt) {
    LocalDraftOpen open = Request({900, 901, 902}, 4, 4);
    open.params.tenant_salt = salt;
    return open;
  };
  for (int i = 0; i < 8; ++i) {
    const auto stream = Open(drafter->get(), request("a"));
    for (int32_t token = 1; token < 50; ++token) {
      Said(stream.get());
      stream->OnCommit(token + 2, std::vector<int32_t>{token});
    }
    Said(stream.get());
  }
  const auto other = Open(drafter->get(), request("b"));
  EXPECT_THAT(Said(other.get()), Each(Not(HasSubstr("[1"))));
  const auto same = Open(drafter->get(), request("a"));
  EXPECT_THAT(Said(same.get()), ElementsAre("@3 3 [1 2 3 4]"));
}

TEST(LocalDrafterTest, ManyThreadsDraftAtOnce) {
  const absl::StatusOr<std::unique_ptr<LocalDrafter>> drafter =
      LocalDrafter::Create("suffix");
  ASSERT_TRUE(drafter.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&drafter, t] {
      for (int i = 0; i < 20; ++i) {
        LocalDraftOpen open = Request({1, 2, 3, 1, 2, 3});
        open.params.tenant_salt = absl::StrCat(t % 2);
        const auto stream = Open(drafter->get(), std::move(open));
        for (int32_t length = 6; length < 200; ++length) {
          Said(stream.get());
          stream->OnCommit(length, std::vector<int32_t>{length % 3 + 1});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*drafter)->num_tokens(), 0);
}

}  // namespace
}  // namespace specwire::coordinator
