// SPDX-License-Identifier: Apache-2.0

// Stop texts against fake nodes, over real gRPC: whatever the drafter brings,
// ids, text, origins, usage and figures end at the token that completes the
// first stop text, as in plain decoding. The fake model's text is full of
// broken characters.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/detokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/generate_test_util.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

// What a request should come to, from plain decoding without stops.
struct Expected {
  std::vector<int32_t> ids;
  std::string text;
  v1::FinishReason reason = v1::FINISH_REASON_LENGTH;
  std::string stop_text = {};
};

// The definition, on the whole text so far after each token.
Expected Stop(const std::vector<int32_t>& plain, const v1::StopCriteria& stop) {
  const auto tokenizer = *Tokenizer::Create(FakeModel().Tokenizer());
  Detokenizer detokenizer(tokenizer.get(), /*skip_special=*/true);
  Expected expected;
  std::string text;
  for (size_t i = 0; i < plain.size(); ++i) {
    const int32_t id = plain[i];
    const size_t before = text.size();
    text += detokenizer.Push(id);
    expected.ids.push_back(id);
    if ((id == FakeModel::kEos && !stop.ignore_eos()) ||
        std::count(
            stop.stop_token_ids().begin(), stop.stop_token_ids().end(), id)) {
      expected.reason = v1::FINISH_REASON_STOP;
      break;
    }
    // The occurrence that ends first, of those the one that begins first.
    size_t end = std::string::npos;
    size_t begin = 0;
    for (const std::string& one : stop.stop()) {
      for (size_t at = text.find(one); at != std::string::npos;
           at = text.find(one, at + 1)) {
        if (at + one.size() <= before) continue;
        if (at + one.size() < end || (at + one.size() == end && at < begin)) {
          end = at + one.size();
          begin = at;
          expected.stop_text = one;
        }
      }
    }
    if (end != std::string::npos && static_cast<int>(i) >= stop.min_tokens()) {
      text.resize(stop.include_stop_str_in_output() ? end : begin);
      expected.text = text;
      expected.reason = v1::FINISH_REASON_STOP;
      return expected;
    }
    expected.stop_text.clear();
  }
  expected.text = text + detokenizer.Finish();
  return expected;
}

// Ids, text and all that is counted agree with one another and with plain
// decoding.
void ExpectStopped(const GenerateResult& result, const Expected& expected) {
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.token_ids, expected.ids);
  EXPECT_EQ(result.text, expected.text);
  EXPECT_EQ(result.finished.finish_reason(), expected.reason);
  EXPECT_EQ(result.finished.stop_text(), expected.stop_text);
  EXPECT_EQ(result.finished.usage().completion_tokens(),
            static_cast<int>(expected.ids.size()));
  EXPECT_EQ(result.origins.size(), expected.ids.size());
  const v1::SpeculationStats& stats = result.finished.speculation();
  const int64_t size = static_cast<int64_t>(expected.ids.size());
  // A pass emits its accepted tokens and one of its own, save where a stop
  // falls on an accepted one.
  EXPECT_GE(stats.num_passes() + stats.num_accepted_draft_tokens(), size);
  EXPECT_LE(stats.num_passes() + stats.num_accepted_draft_tokens(), size + 1);
}

class StopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    verifier_ = cluster_.AddVerifier();
    cluster_.AddDrafter();
    cluster_.AddDrafter(
        {.name = "draft-2", .drafter = "wrong", .wrong_every = 3});
    ASSERT_TRUE(cluster_.WaitServing(1, 2));
  }

  // Plain, and with drafters in lock-step and not.
  void ExpectEverywhere(const v1::GenerateRequest& request,
                        const Expected& expected) {
    v1::GenerateRequest plain = request;
    plain.mutable_speculation()->set_enabled(false);
    ExpectStopped(cluster_.Generate(plain), expected);
    for (const char* drafter : {"oracle", "wrong"}) {
      SCOPED_TRACE(drafter);
      v1::GenerateRequest drafted = LockStep(request, 4);
      drafted.mutable_speculation()->set_drafter(drafter);
      ExpectStopped(cluster_.Generate(drafted), expected);
      v1::GenerateRequest free = request;
      free.mutable_speculation()->set_drafter(drafter);
      ExpectStopped(cluster_.Generate(free), expected);
    }
  }

  InProcessCluster cluster_;
  FakeVerifier* verifier_ = nullptr;
  const std::vector<int32_t> plain_ = FakeModel().Complete(Ids("hello"), 60);
};

// Text that tokens `first` to `last` add to that of those before.
std::string Piece(const std::vector<int32_t>& ids, size_t first, size_t last) {
  const auto at = [&ids](size_t n) {
    return ids.begin() + static_cast<std::ptrdiff_t>(n);
  };
  const std::string all = Decode({ids.begin(), at(last + 1)});
  return all.substr(Decode({ids.begin(), at(first)}).size());
}

// Bug report 18 and 21: a limit hides an earlier stop, or what lies behind a
// stop leaks. Every index of a run for the stop text, and limits around it.
TEST_F(StopTest, TheEarliestOfStopTextAndLimitWinsAtEveryIndex) {
  for (size_t end = 1; end <= 12; ++end) {
    const std::string text = Piece(plain_, end - 1, end);
    if (text.empty()) continue;
    for (const int limit : {static_cast<int>(end),
                            static_cast<int>(end) + 1,
                            static_cast<int>(end) + 2,
                            60}) {
      SCOPED_TRACE(absl::StrCat("stop at ", end, ", limit ", limit));
      v1::GenerateRequest request = GreedyRequest("hello", limit);
      request.mutable_stop()->add_stop(text);
      std::vector<int32_t> ids = plain_;
      ids.resize(static_cast<size_t>(limit));
      ExpectEverywhere(request, Stop(ids, request.stop()));
    }
  }
}

// Bug report 20: ids, figures and metrics remain beyond the stop.
TEST_F(StopTest, NothingBehindTheStopIsToldOrCounted) {
  v1::GenerateRequest request = GreedyRequest("hello", 60);
  request.mutable_stop()->add_stop(Piece(plain_, 20, 22));
  const Expected expected = Stop(plain_, request.stop());
  ASSERT_EQ(expected.reason, v1::FINISH_REASON_STOP);
  const double before = cluster_.Metric("specwire_generation_tokens_total");
  const GenerateResult result = cluster_.Generate(LockStep(request, 8));
  ExpectStopped(result, expected);
  EXPECT_EQ(cluster_.Metric("specwire_generation_tokens_total") - before,
            static_cast<double>(expected.ids.size()));
  EXPECT_EQ(cluster_.Metric("specwire_spec_decode_num_accepted_tokens_total"),
            result.finished.speculation().num_accepted_draft_tokens());
  EXPECT_EQ(cluster_.Metric("specwire_request_success_total", "stop"), 1);
}

// Bug report 19: EOS in the middle of a run is ignored.
TEST(StopTokenTest, EosAtEveryIndexOfARunEndsTheRequest) {
  for (int position = 6; position < 16; ++position) {
    SCOPED_TRACE(position);
    InProcessCluster cluster;
    FakeVerifierOptions verifier;
    verifier.model.eos_position = position;
    cluster.AddVerifier(verifier);
    // It drafts on beyond EOS.
    cluster.AddDrafter();
    ASSERT_TRUE(cluster.WaitServing(1, 1));
    v1::GenerateRequest request = GreedyRequest("hello", 40);
    // Never met: the judge must leave EOS alone.
    request.mutable_stop()->add_stop("never in this text");
    const std::vector<int32_t> ids = verifier.model.Complete(Ids("hello"), 40);
    for (const int run_length : {1, 4, 8}) {
      const GenerateResult result =
          cluster.Generate(LockStep(request, run_length));
      ExpectStopped(result, Stop(ids, request.stop()));
      EXPECT_EQ(result.finished.eos_token_id(), FakeModel::kEos);
    }
  }
}

// Bug report 18 with stop tokens.
TEST_F(StopTest, AStopTokenComesBeforeAStopTextAtTheSameToken) {
  for (size_t at = 0; at < 10; ++at) {
    SCOPED_TRACE(at);
    const std::string text = Piece(plain_, at, at);
    v1::GenerateRequest request = GreedyRequest("hello", 60);
    request.mutable_stop()->add_stop_token_ids(plain_[at]);
    if (!text.empty()) request.mutable_stop()->add_stop(text);
    ExpectEverywhere(request, Stop(plain_, request.stop()));
  }
}

// Bug report 23: the end of the context is `length`, with a drafter too.
TEST(StopTokenTest, TheEndOfTheContextEndsTheRequestInPeace) {
  InProcessCluster cluster;
  FakeVerifierOptions verifier;
  verifier.model.max_model_len = 40;
  cluster.AddVerifier(verifier);
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  v1::GenerateRequest request = GreedyRequest("hello", 1);
  request.mutable_stop()->clear_max_tokens();
  request.mutable_stop()->add_stop("never in this text");
  const std::vector<int32_t> ids = FakeModel().Complete(Ids("hello"), 35);
  for (const int run_length : {1, 3, 8}) {
    ExpectStopped(cluster.Generate(LockStep(request, run_length)),
                  Stop(ids, request.stop()));
  }
}

TEST_F(StopTest, SeveralTextsMinTokensAndIncluding) {
  for (size_t at = 2; at < 40; at += 3) {
    for (const bool include : {false, true}) {
      for (const int min_tokens : {0, 10, 25}) {
        SCOPED_TRACE(absl::StrCat(at, " ", include, " ", min_tokens));
        v1::GenerateRequest request = GreedyRequest("hello", 60);
        v1::StopCriteria* stop = request.mutable_stop();
        for (const size_t first : {at, at - 2, at + 1}) {
          const std::string text = Piece(plain_, first, first + 2);
          if (!text.empty()) stop->add_stop(text);
        }
        stop->set_include_stop_str_in_output(include);
        stop->set_min_tokens(min_tokens);
        ExpectEverywhere(request, Stop(plain_, *stop));
      }
    }
  }
}

TEST_F(StopTest, ABrokenCharacterIsTextLikeOthers) {
  v1::GenerateRequest request = GreedyRequest("hello", 60);
  request.mutable_stop()->add_stop("\xef\xbf\xbd");
  const Expected expected = Stop(plain_, request.stop());
  ASSERT_EQ(expected.reason, v1::FINISH_REASON_STOP);
  ExpectEverywhere(request, expected);
}

// What is held back is told as soon as it cannot begin a stop text, and at the
// end.
TEST_F(StopTest, HeldTextIsReleasedAtTheEnd) {
  v1::GenerateRequest request = GreedyRequest("hello", 12);
  request.mutable_stop()->add_stop(Piece(plain_, 8, 12));
  request.mutable_speculation()->set_enabled(false);
  const GenerateResult result = cluster_.Generate(request);
  std::vector<int32_t> ids = plain_;
  ids.resize(12);
  ExpectStopped(result, Stop(ids, request.stop()));
  EXPECT_NE(result.finished.text(), "");
}

// The verifier may not run far past a stop that only the coordinator sees.
TEST_F(StopTest, TheVerifierIsHeldNearTheStop) {
  v1::GenerateRequest request = GreedyRequest("hello", 4000);
  request.mutable_stop()->add_stop(Piece(plain_, 0, 1));
  for (int i = 0; i < 20; ++i) {
    const int64_t before = verifier_->num_committed();
    ASSERT_TRUE(cluster_.Generate(request).status.ok());
    ASSERT_TRUE(Eventually([&] { return verifier_->num_open() == 0; }));
    EXPECT_LE(verifier_->num_committed() - before, 2 + 32 + 8);
  }
}

// A reply that is cut anywhere goes on with the same text: what was held back
// is held back again.
TEST_F(StopTest, AnyCutGoesOn) {
  for (const bool include : {false, true}) {
    v1::GenerateRequest request = GreedyRequest("hello", 60);
    request.mutable_speculation()->set_enabled(false);
    request.mutable_stop()->add_stop(Piece(plain_, 24, 30));
    request.mutable_stop()->set_include_stop_str_in_output(include);
    const Expected expected = Stop(plain_, request.stop());
    std::vector<std::string> told = {""};
    const GenerateResult whole =
        cluster_.Generate(request, [&told](const v1::GenerateDelta& delta) {
          for (int i = 0; i < delta.token_ids_size(); ++i) {
            const size_t begin =
                i == 0 ? 0 : static_cast<size_t>(delta.text_ends(i - 1));
            const size_t end = static_cast<size_t>(delta.text_ends(i));
            told.push_back(told.back() +
                           delta.text().substr(begin, end - begin));
          }
          return true;
        });
    ExpectStopped(whole, expected);
    ASSERT_EQ(told.size(), expected.ids.size() + 1);
    for (size_t count = 0; count < told.size(); ++count) {
      SCOPED_TRACE(absl::StrCat("behind ", count, " tokens"));
      v1::GenerateRequest rest = request;
      rest.mutable_resume_token_ids()->Assign(
          expected.ids.begin(),
          expected.ids.begin() + static_cast<std::ptrdiff_t>(count));
      const int opened = verifier_->num_opened();
      const GenerateResult result = cluster_.Generate(rest);
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(told[count] + result.text, expected.text);
      EXPECT_EQ(result.finished.finish_reason(), expected.reason);
      EXPECT_EQ(result.finished.stop_text(), expected.stop_text);
      EXPECT_EQ(result.token_ids.size() + count, expected.ids.size());
      // A stop that was met ends it at once.
      if (count + 1 == told.size()) {
        EXPECT_EQ(verifier_->num_opened(), opened);
      }
    }
    v1::GenerateRequest behind = request;
    behind.mutable_resume_token_ids()->Assign(expected.ids.begin(),
                                              expected.ids.end());
    behind.add_resume_token_ids('x');
    const absl::Status status = cluster_.Generate(behind).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("resume_token_ids["));
  }
}

TEST_F(StopTest, ALostVerifierChangesNothing) {
  InProcessCluster cluster;
  cluster.AddVerifier({.lose_streams_after = 9});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  cluster.AddVerifier({.name = "verifier-2"});
  cluster.AddDrafter({.wrong_every = 4});
  ASSERT_TRUE(cluster.WaitServing(2, 1));
  v1::GenerateRequest request = GreedyRequest("hello", 60);
  request.mutable_stop()->add_stop(Piece(plain_, 30, 34));
  const Expected expected = Stop(plain_, request.stop());
  for (int i = 0; i < 4; ++i) {
    ExpectStopped(cluster.Generate(LockStep(request, 3)), expected);
  }
}

}  // namespace
}  // namespace specwire::coordinator
