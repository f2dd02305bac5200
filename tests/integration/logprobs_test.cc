// SPDX-License-Identifier: Apache-2.0

// Log-probabilities and scores of the tiny model in real processes: they are
// the target's own, to the bit, whatever speculation does. Names tell of the
// reports of users of other systems that a test answers: that log-probabilities
// are 0 with speculation (12), that they are missing or crash (13), that those
// of the prompt crash (14).

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::IsEmpty;

constexpr int kMaxTokens = 40;
constexpr int kConcurrency = 4;
constexpr int kRunLengths[] = {1, 3, 8};
const char* const kDrafters[] = {"ngram", "oracle", "adversarial", "random"};
constexpr SamplingSetting kSettings[] = {
    {"greedy", 0},
    {"T=1", 1},
    {"T=0.7 top_p=0.95, processors", 0.7f, 0, 0.95f, true},
};

using Entries = std::vector<v1::PositionLogprobs>;

// Equal to the bit, from entry `skip` of `expected` on.
std::string Compare(const Entries& got,
                    const Entries& expected,
                    size_t skip = 0) {
  if (got.size() + skip != expected.size()) {
    return absl::StrCat(
        got.size(), " entries, not ", expected.size() - skip, "; ");
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].SerializeAsString() != expected[i + skip].SerializeAsString()) {
      return absl::StrCat("entry ", i, " differs; ");
    }
  }
  return "";
}

// What must hold of any entry with `top` candidates, in a vocabulary of more.
void ExpectSound(const v1::PositionLogprobs& entry, int32_t token, int top) {
  EXPECT_EQ(entry.chosen().token_id(), token);
  EXPECT_LT(entry.chosen().logprob(), 0);
  EXPECT_TRUE(std::isfinite(entry.chosen().logprob()));
  ASSERT_EQ(entry.top_size(), top);
  double sum = 0;
  std::set<int32_t> ids;
  for (int i = 0; i < top; ++i) {
    ids.insert(entry.top(i).token_id());
    sum += std::exp(static_cast<double>(entry.top(i).logprob()));
    if (i > 0) {
      EXPECT_LE(entry.top(i).logprob(), entry.top(i - 1).logprob());
    }
    if (entry.top(i).token_id() == token) {
      EXPECT_EQ(entry.top(i).logprob(), entry.chosen().logprob());
    }
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(top));
  EXPECT_LT(sum, 1 + 1e-6);
  if (top > 0 && !ids.contains(token)) {
    EXPECT_LE(entry.chosen().logprob(), entry.top(top - 1).logprob());
  }
}

class LogprobsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<ProcessCluster>(SPECWIRE_BIN_DIR);
    cluster_->AddVerifier("verifier-0", SPECWIRE_TINY_MODEL);
    std::set<std::string> names = {"verifier-0"};
    for (const char* drafter : kDrafters) {
      const bool of_model = std::string(drafter) == "oracle" ||
                            std::string(drafter) == "adversarial";
      cluster_->AddDraftNode(drafter,
                             drafter,
                             of_model
                                 ? std::vector<std::string>{absl::StrCat(
                                       "--draft_model=", SPECWIRE_TINY_MODEL)}
                                 : std::vector<std::string>{});
      names.insert(drafter);
    }
    ASSERT_TRUE(cluster_->WaitServing(names));
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static v1::GenerateRequest Request(const SamplingSetting& setting, int top) {
    v1::GenerateRequest request =
        SeededRequest(RepeatingPrompt(), setting, kMaxTokens);
    request.set_logprobs(top);
    return request;
  }
  static v1::GenerateRequest With(v1::GenerateRequest request,
                                  const char* drafter,
                                  int run_length,
                                  bool lock_step) {
    v1::Speculation* how = request.mutable_speculation();
    how->set_drafter(drafter);
    how->set_max_draft_tokens(run_length);
    // Named, so that it is not decided anew from how fast this machine is.
    how->set_patience_us(lock_step ? kLockStep : 20000);
    return request;
  }
  static v1::ScoreResponse Score(const std::vector<int32_t>& ids,
                                 int window,
                                 int stride,
                                 int top) {
    v1::ScoreRequest request;
    request.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
    request.set_window(window);
    request.set_stride(stride);
    request.set_top(top);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    v1::ScoreResponse response;
    const grpc::Status status =
        cluster_->generation()->Score(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  static inline std::unique_ptr<ProcessCluster> cluster_;
};

TEST_F(LogprobsTest, Report12And13TheyAreThoseOfPlainDecoding) {
  Mutex mutex;
  std::vector<std::string> faults;
  int64_t accepted = 0;
  int64_t rejected = 0;
  for (const SamplingSetting& setting : kSettings) {
    const GenerateResult plain =
        cluster_->Generate(Plain(Request(setting, 20)));
    ASSERT_TRUE(plain.status.ok()) << plain.status;
    ASSERT_EQ(plain.logprobs.size(), size_t{kMaxTokens});
    for (size_t i = 0; i < plain.logprobs.size(); ++i) {
      ExpectSound(plain.logprobs[i], plain.token_ids[i], 20);
    }
    std::vector<v1::GenerateRequest> requests;
    for (const char* drafter : kDrafters) {
      for (const int run_length : kRunLengths) {
        for (const bool lock_step : {true, false}) {
          requests.push_back(
              With(Request(setting, 20), drafter, run_length, lock_step));
        }
      }
    }
    InParallel(static_cast<int>(requests.size()), kConcurrency, [&](int i) {
      const v1::GenerateRequest& request = requests[static_cast<size_t>(i)];
      const GenerateResult result = cluster_->Generate(request);
      std::string fault =
          result.status.ok() ? result.fault : result.status.ToString();
      if (result.token_ids != plain.token_ids) fault += "other tokens; ";
      fault += Compare(result.logprobs, plain.logprobs);
      const v1::SpeculationStats& stats = result.finished.speculation();
      MutexLock lock(&mutex);
      accepted += stats.num_accepted_draft_tokens();
      rejected += stats.num_draft_tokens() - stats.num_accepted_draft_tokens();
      if (!fault.empty()) {
        faults.push_back(absl::StrCat(setting.name,
                                      " ",
                                      request.speculation().ShortDebugString(),
                                      ": ",
                                      fault));
      }
    });
  }
  EXPECT_THAT(faults, IsEmpty());
  // How many rows drafts get depends on how busy the verifier is.
  EXPECT_GT(accepted, 200);
  EXPECT_GT(rejected, 50);
}

TEST_F(LogprobsTest, Report13NumberOfCandidatesChangesNothingElse) {
  const GenerateResult all =
      cluster_->Generate(Plain(Request(kSettings[1], 20)));
  for (const int top : {0, 1, 5}) {
    Entries expected = all.logprobs;
    for (v1::PositionLogprobs& entry : expected) {
      entry.mutable_top()->DeleteSubrange(top, entry.top_size() - top);
    }
    const GenerateResult result =
        cluster_->Generate(With(Request(kSettings[1], top), "oracle", 4, true));
    EXPECT_EQ(Compare(result.logprobs, expected), "") << top;
    EXPECT_EQ(result.token_ids, all.token_ids);
  }
  // None, unless asked for; and asking changes no token.
  v1::GenerateRequest request = Request(kSettings[1], 0);
  request.clear_logprobs();
  const GenerateResult without = cluster_->Generate(request);
  EXPECT_TRUE(without.logprobs.empty());
  EXPECT_TRUE(without.prompt_logprobs.empty());
  EXPECT_EQ(without.token_ids, all.token_ids);
}

TEST_F(LogprobsTest, Report14ThoseOfThePromptInEveryMode) {
  std::vector<std::vector<int32_t>> prompts = {{5},
                                               {5, 119},
                                               RepeatingPrompt(1),
                                               RepeatingPrompt(11),
                                               RepeatingPrompt(30)};
  for (const std::vector<int32_t>& prompt : prompts) {
    SCOPED_TRACE(absl::StrCat(prompt.size(), " tokens"));
    for (const int top : {0, 4}) {
      v1::GenerateRequest request = SeededRequest(prompt, kSettings[1], 8);
      request.set_prompt_logprobs(top);
      const GenerateResult plain = cluster_->Generate(Plain(request));
      ASSERT_TRUE(plain.status.ok()) << plain.status;
      EXPECT_EQ(plain.fault, "");
      ASSERT_EQ(plain.prompt_logprobs.size(), prompt.size());
      // Nothing precedes the first.
      EXPECT_EQ(plain.prompt_logprobs[0].ByteSizeLong(), 0u);
      for (size_t i = 1; i < prompt.size(); ++i) {
        ExpectSound(plain.prompt_logprobs[i], prompt[i], top);
      }
      EXPECT_TRUE(plain.logprobs.empty());
      for (const char* drafter : kDrafters) {
        for (const bool lock_step : {true, false}) {
          const GenerateResult result =
              cluster_->Generate(With(request, drafter, 4, lock_step));
          EXPECT_EQ(result.fault, "") << drafter;
          EXPECT_EQ(Compare(result.prompt_logprobs, plain.prompt_logprobs), "")
              << drafter;
          EXPECT_EQ(result.token_ids, plain.token_ids) << drafter;
        }
      }
    }
  }
}

TEST_F(LogprobsTest, AreThoseThatScoreTells) {
  v1::GenerateRequest request = Request(kSettings[2], 3);
  request.set_prompt_logprobs(3);
  const GenerateResult result =
      cluster_->Generate(With(request, "ngram", 4, false));
  ASSERT_TRUE(result.status.ok()) << result.status;
  std::vector<int32_t> ids = RepeatingPrompt();
  ids.insert(ids.end(), result.token_ids.begin(), result.token_ids.end());
  Entries told = result.prompt_logprobs;
  told.insert(told.end(), result.logprobs.begin(), result.logprobs.end());
  const v1::ScoreResponse score = Score(ids, 0, 0, 3);
  EXPECT_THAT(score.token_ids(), testing::ElementsAreArray(ids));
  EXPECT_EQ(Compare(told, {score.logprobs().begin(), score.logprobs().end()}),
            "");
  EXPECT_EQ(score.num_scored_tokens(), static_cast<int>(ids.size()) - 1);
  double nll = 0;
  for (size_t i = 1; i < told.size(); ++i) nll -= told[i].chosen().logprob();
  EXPECT_NEAR(score.perplexity(),
              std::exp(nll / static_cast<double>(ids.size() - 1)),
              1e-9 * score.perplexity());
}

TEST_F(LogprobsTest, EndWhereTheTokensEnd) {
  v1::GenerateRequest request = Request(kSettings[0], 2);
  request.mutable_stop()->set_ignore_eos(false);
  request.mutable_stop()->set_min_tokens(7);
  v1::LogitBias* bias = request.mutable_sampling()->add_logit_bias();
  bias->set_token_id(2);
  bias->set_bias(100);
  const GenerateResult plain = cluster_->Generate(Plain(request));
  ASSERT_EQ(plain.finished.finish_reason(), v1::FINISH_REASON_STOP);
  ASSERT_EQ(plain.token_ids.size(), 8u);
  EXPECT_EQ(plain.token_ids.back(), 2);
  ASSERT_EQ(plain.logprobs.size(), 8u);
  // The bias is not in the numbers.
  ExpectSound(plain.logprobs.back(), 2, 2);
  EXPECT_LT(plain.logprobs.back().chosen().logprob(), -0.5f);
  const GenerateResult result =
      cluster_->Generate(With(request, "oracle", 8, true));
  EXPECT_EQ(Compare(result.logprobs, plain.logprobs), "");
}

TEST_F(LogprobsTest, GoOnAfterAResume) {
  v1::GenerateRequest request = Request(kSettings[1], 5);
  const GenerateResult whole = cluster_->Generate(request);
  ASSERT_EQ(whole.logprobs.size(), size_t{kMaxTokens});
  for (const int taken : {1, 17, kMaxTokens - 1, kMaxTokens}) {
    v1::GenerateRequest resume = request;
    resume.mutable_resume_token_ids()->Assign(whole.token_ids.begin(),
                                              whole.token_ids.begin() + taken);
    grpc::ClientContext context;
    const auto reader = cluster_->generation()->Generate(&context, resume);
    v1::GenerateResponse response;
    Entries entries;
    while (reader->Read(&response)) {
      entries.insert(entries.end(),
                     response.delta().logprobs().begin(),
                     response.delta().logprobs().end());
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(Compare(entries, whole.logprobs, static_cast<size_t>(taken)), "")
        << taken;
  }
}

TEST_F(LogprobsTest, EchoRepeatsThePrompt) {
  v1::GenerateRequest request;
  request.set_text("the <|im_end|> cat\n");
  request.set_echo(true);
  request.mutable_stop()->set_max_tokens(4);
  request.mutable_sampling()->set_temperature(0);
  const GenerateResult of_text = cluster_->Generate(request);
  ASSERT_TRUE(of_text.status.ok()) << of_text.status;
  EXPECT_EQ(of_text.fault, "");
  EXPECT_EQ(of_text.prompt_text, request.text());
  request.mutable_token_ids()->mutable_ids()->CopyFrom(
      of_text.started.prompt_token_ids());
  const GenerateResult of_ids = cluster_->Generate(request);
  EXPECT_EQ(of_ids.prompt_text, of_text.prompt_text);
  EXPECT_EQ(of_ids.token_ids, of_text.token_ids);
  EXPECT_EQ(of_ids.text, of_text.text);
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hello");
  EXPECT_THAT(cluster_->Generate(request).prompt_text,
              testing::HasSubstr("<|im_start|>user\nhello<|im_end|>"));
  request.set_echo(false);
  EXPECT_EQ(cluster_->Generate(request).prompt_text, "");
}

TEST_F(LogprobsTest, ScoresInSlidingWindows) {
  std::vector<int32_t> ids = RepeatingPrompt(10);
  for (size_t i = 0; i < ids.size(); i += 7) {
    ids[i] = static_cast<int32_t>(80 + i);
  }
  const int length = static_cast<int>(ids.size());
  for (const auto& [window, stride] : std::vector<std::pair<int, int>>{
           {16, 8}, {16, 16}, {9, 1}, {17, 5}, {200, 100}, {16, 0}}) {
    SCOPED_TRACE(absl::StrCat("window ", window, ", stride ", stride));
    const v1::ScoreResponse score = Score(ids, window, stride, 1);
    ASSERT_EQ(score.logprobs_size(), length);
    const int step = stride == 0 ? window / 2 : stride;
    double nll = 0;
    int num_scored = 0;
    int scored_until = 0;
    for (int begin = 0;; begin += step) {
      const int end = std::min(begin + window, length);
      // The window as a text of its own.
      const v1::ScoreResponse alone =
          Score({ids.begin() + begin, ids.begin() + end}, 0, 0, 1);
      for (int i = scored_until; i < end; ++i) {
        EXPECT_EQ(score.logprobs(i).SerializeAsString(),
                  alone.logprobs(i - begin).SerializeAsString())
            << i;
        if (i == begin) {
          EXPECT_FALSE(score.logprobs(i).has_chosen());
          continue;
        }
        nll -= score.logprobs(i).chosen().logprob();
        ++num_scored;
      }
      scored_until = end;
      if (end == length) break;
    }
    EXPECT_EQ(score.num_scored_tokens(), num_scored);
    EXPECT_NEAR(score.perplexity(),
                std::exp(nll / num_scored),
                1e-9 * score.perplexity());
  }
}

TEST_F(LogprobsTest, SurviveTheLossOfAVerifier) {
  const std::string model = absl::StrCat(testing::TempDir(), "/logprobs.gguf");
  // Slow enough that a process can be hit in the middle of a stream.
  MakeTinyModel(
      SPECWIRE_TEST_DATA, model, {"--layers", "12", "--context_length", "512"});
  ProcessCluster cluster(SPECWIRE_BIN_DIR);
  cluster.AddVerifier("first", model);
  ASSERT_TRUE(cluster.WaitServing({"first"}));
  v1::GenerateRequest request =
      SeededRequest(RepeatingPrompt(), kSettings[1], 200);
  request.set_logprobs(4);
  request.set_prompt_logprobs(2);
  const GenerateResult whole = cluster.Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(whole.logprobs.size(), 200u);
  cluster.AddVerifier("second", model);
  cluster.AddDraftNode("ngram", "ngram");
  ASSERT_TRUE(cluster.WaitServing({"first", "second", "ngram"}));
  // Either may have the request: the one that has is killed.
  bool killed = false;
  const GenerateResult result =
      cluster.Generate(request, [&](const v1::GenerateDelta& delta) {
        if (!killed && delta.first_index() >= 20) {
          const bool first =
              Eventually([&] {
                return cluster.Node("first").load().num_sequences() > 0 ||
                       cluster.Node("second").load().num_sequences() > 0;
              }) &&
              cluster.Node("first").load().num_sequences() > 0;
          killed = true;
          cluster.Signal(first ? "first" : "second", SIGKILL);
        }
        return true;
      });
  EXPECT_TRUE(killed);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.token_ids, whole.token_ids);
  EXPECT_EQ(Compare(result.logprobs, whole.logprobs), "");
  EXPECT_EQ(Compare(result.prompt_logprobs, whole.prompt_logprobs), "");
}

}  // namespace
}  // namespace specwire
