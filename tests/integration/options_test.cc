// SPDX-License-Identifier: Apache-2.0

// Whatever a request asks for, speculation changes nothing of its reply:
// prompts with randomly drawn options, over real processes. A failure is shrunk
// and printed with its seed; SPECWIRE_SEED draws others.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocabSize = 320;
constexpr int32_t kEos = 2;
constexpr int kConcurrency = 4;
const char* const kDrafters[] = {
    "ngram", "model", "oracle", "adversarial", "random"};

// One thing that a request asks for.
struct Option {
  std::string name;
  std::function<void(v1::GenerateRequest*)> set;
};

struct Case {
  std::vector<int32_t> prompt;
  int max_tokens = 0;
  int64_t seed = 0;
  std::vector<Option> options;
  // How it is drafted the second time.
  std::string drafter;
  int run_length = 0;
  int64_t patience_us = 0;
};

v1::GenerateRequest PlainRequest(const Case& one) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Assign(one.prompt.begin(),
                                                     one.prompt.end());
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(one.seed);
  request.mutable_stop()->set_max_tokens(one.max_tokens);
  for (const Option& option : one.options) option.set(&request);
  // Shrinking may have left less than is asked for.
  request.mutable_stop()->set_min_tokens(
      std::min(request.stop().min_tokens(), one.max_tokens));
  request.mutable_speculation()->set_enabled(false);
  return request;
}

v1::GenerateRequest DraftedRequest(const Case& one) {
  v1::GenerateRequest request = PlainRequest(one);
  v1::Speculation* how = request.mutable_speculation();
  how->set_enabled(true);
  how->set_drafter(one.drafter);
  how->set_max_draft_tokens(one.run_length);
  how->set_patience_us(one.patience_us);
  return request;
}

std::string Describe(const Case& one) {
  return absl::StrCat(
      "prompt {",
      absl::StrJoin(one.prompt, ","),
      "}, max_tokens ",
      one.max_tokens,
      ", seed ",
      one.seed,
      ", ",
      one.drafter,
      ", run length ",
      one.run_length,
      ", patience ",
      one.patience_us,
      ", options: ",
      absl::StrJoin(
          one.options, "; ", [](std::string* out, const Option& option) {
            *out += option.name;
          }));
}

// What differs; empty if nothing does.
std::string Compare(const GenerateResult& plain,
                    const GenerateResult& drafted) {
  if (!plain.status.ok()) return plain.status.ToString();
  if (!drafted.status.ok()) return drafted.status.ToString();
  if (!plain.fault.empty()) return absl::StrCat("plain: ", plain.fault);
  if (!drafted.fault.empty()) return drafted.fault;
  if (plain.token_ids != drafted.token_ids) return "other ids";
  if (plain.text != drafted.text) return "other text";
  if (plain.logprobs.size() != drafted.logprobs.size()) {
    return "other number of log-probabilities";
  }
  for (size_t i = 0; i < plain.logprobs.size(); ++i) {
    if (plain.logprobs[i].SerializeAsString() !=
        drafted.logprobs[i].SerializeAsString()) {
      return absl::StrCat("other log-probabilities at token ", i);
    }
  }
  v1::GenerateFinished a = plain.finished;
  v1::GenerateFinished b = drafted.finished;
  for (v1::GenerateFinished* one : {&a, &b}) {
    one->clear_speculation();
    one->clear_timings();
    one->mutable_usage()->clear_cached_prompt_tokens();
  }
  if (a.SerializeAsString() != b.SerializeAsString()) {
    return absl::StrCat(
        "other end: ", a.ShortDebugString(), " / ", b.ShortDebugString());
  }
  if (a.usage().completion_tokens() !=
      static_cast<int64_t>(plain.token_ids.size())) {
    return "usage differs from the ids";
  }
  return "";
}

using Judge = std::function<std::string(const Case&)>;

// The smallest case that still fails: options are left out, the prompt and the
// budget made shorter, as long as `judge` finds a fault.
Case Shrink(Case failing, const Judge& judge) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<Case> candidates;
    for (size_t i = 0; i < failing.options.size(); ++i) {
      Case one = failing;
      one.options.erase(one.options.begin() + static_cast<std::ptrdiff_t>(i));
      candidates.push_back(std::move(one));
    }
    if (failing.prompt.size() > 1) {
      Case one = failing;
      one.prompt.resize(one.prompt.size() / 2);
      candidates.push_back(std::move(one));
    }
    if (failing.max_tokens > 1) {
      Case half = failing;
      half.max_tokens /= 2;
      candidates.push_back(std::move(half));
      Case less = failing;
      --less.max_tokens;
      candidates.push_back(std::move(less));
    }
    for (Case& one : candidates) {
      if (judge(one).empty()) continue;
      failing = std::move(one);
      smaller = true;
      break;
    }
  }
  return failing;
}

// A part of a text, whole characters.
std::string PartOf(const std::string& text, std::mt19937_64* random) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      starts.push_back(i);
    }
  }
  if (starts.empty()) return "x";
  starts.push_back(text.size());
  const size_t first = (*random)() % (starts.size() - 1);
  const size_t last = std::min(starts.size() - 1, first + 1 + (*random)() % 6);
  return text.substr(starts[first], starts[last] - starts[first]);
}

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : random_(seed) {}

  // Everything but what ends the request.
  Case Draw() {
    Case one;
    for (int i = 1 + Below(20); i > 0; --i) {
      one.prompt.push_back(Below(300) + 3);
    }
    if (Chance(3)) one.prompt = RepeatingPrompt();
    one.max_tokens = 1 + Below(40);
    one.seed = static_cast<int64_t>(random_());
    DrawCuts(&one);
    DrawProcessors(&one);
    DrawRest(&one);
    one.drafter = kDrafters[Below(std::size(kDrafters))];
    one.run_length = Pick({1, 2, 3, 4, 8, 16});
    return one;
  }

  // What ends it, much of it taken from a reply that was not ended.
  void DrawStops(const GenerateResult& reply, Case* one) {
    const auto stop = [one](const std::string& name, auto set) {
      one->options.push_back({name, [set](v1::GenerateRequest* request) {
                                set(request->mutable_stop());
                              }});
    };
    if (Chance(2)) {
      for (int i = 1 + Below(3); i > 0; --i) {
        const std::string text = PartOf(reply.text, &random_);
        stop(absl::StrCat("stop '", text, "'"),
             [text](auto* s) { s->add_stop(text); });
      }
    }
    if (Chance(3)) {
      const int32_t id = reply.token_ids[static_cast<size_t>(
          Below(static_cast<int>(reply.token_ids.size())))];
      stop(absl::StrCat("stop_token_ids ", id),
           [id](auto* s) { s->add_stop_token_ids(id); });
    }
    if (Chance(3)) {
      const int least = Below(one->max_tokens + 1);
      stop(absl::StrCat("min_tokens ", least),
           [least](auto* s) { s->set_min_tokens(least); });
    }
    if (Chance(3)) {
      stop("ignore_eos", [](auto* s) { s->set_ignore_eos(true); });
    }
    if (Chance(3)) {
      stop("include_stop_str_in_output",
           [](auto* s) { s->set_include_stop_str_in_output(true); });
    }
  }

  int64_t LocalPatience() { return Pick<int64_t>({0, 500, 5000}); }

 private:
  template <class Set>
  static void AddSampling(Case* one, const std::string& name, Set set) {
    one->options.push_back({name, [set](v1::GenerateRequest* request) {
                              set(request->mutable_sampling());
                            }});
  }

  void DrawCuts(Case* one) {
    if (Chance(2)) {
      const float t = Pick({0.3f, 0.7f, 1.0f, 1.5f});
      AddSampling(one, absl::StrCat("temperature ", t), [t](auto* s) {
        s->set_temperature(t);
      });
    }
    if (Chance(4)) {
      const int k = Pick({1, 2, 5, 40});
      AddSampling(
          one, absl::StrCat("top_k ", k), [k](auto* s) { s->set_top_k(k); });
    }
    if (Chance(4)) {
      const float p = Pick({0.2f, 0.8f, 0.95f});
      AddSampling(
          one, absl::StrCat("top_p ", p), [p](auto* s) { s->set_top_p(p); });
    }
    if (Chance(4)) {
      const float p = Pick({0.01f, 0.1f, 0.5f});
      AddSampling(
          one, absl::StrCat("min_p ", p), [p](auto* s) { s->set_min_p(p); });
    }
  }

  void DrawProcessors(Case* one) {
    if (Chance(3)) {
      const float r = Pick({0.8f, 1.1f, 1.5f});
      AddSampling(one, absl::StrCat("repetition_penalty ", r), [r](auto* s) {
        s->set_repetition_penalty(r);
      });
    }
    if (Chance(3)) {
      const float f = Pick({-0.5f, 0.3f, 2.0f});
      AddSampling(one, absl::StrCat("frequency_penalty ", f), [f](auto* s) {
        s->set_frequency_penalty(f);
      });
    }
    if (Chance(3)) {
      const float p = Pick({-0.5f, 0.3f, 2.0f});
      AddSampling(one, absl::StrCat("presence_penalty ", p), [p](auto* s) {
        s->set_presence_penalty(p);
      });
    }
    if (Chance(3)) {
      const int id = Below(kVocabSize);
      const float b = Pick({-100.0f, -2.0f, 2.0f, 4.0f});
      AddSampling(
          one, absl::StrCat("logit_bias ", id, "=", b), [id, b](auto* s) {
            v1::LogitBias* bias = s->add_logit_bias();
            bias->set_token_id(id);
            bias->set_bias(b);
          });
    }
    if (Chance(3)) {
      // This model seldom says EOS by itself.
      const float b = Pick({2.0f, 4.0f, 6.0f});
      AddSampling(one, absl::StrCat("EOS bias ", b), [b](auto* s) {
        for (const v1::LogitBias& bias : s->logit_bias()) {
          if (bias.token_id() == kEos) return;
        }
        v1::LogitBias* bias = s->add_logit_bias();
        bias->set_token_id(kEos);
        bias->set_bias(b);
      });
    }
  }

  void DrawRest(Case* one) {
    if (Chance(4)) {
      const int n = 2 + Below(2);
      one->options.push_back(
          {absl::StrCat("n ", n), [n](auto* request) { request->set_n(n); }});
    }
    if (Chance(3)) {
      const int top = Below(4);
      one->options.push_back({absl::StrCat("logprobs ", top),
                              [top](auto* r) { r->set_logprobs(top); }});
    }
    if (Chance(4)) {
      one->options.push_back({"special tokens in the text", [](auto* request) {
                                request->set_skip_special_tokens(false);
                              }});
    }
  }

  int Below(size_t n) { return static_cast<int>(random_() % n); }
  // One time in so many.
  bool Chance(int so_many) { return Below(static_cast<size_t>(so_many)) == 0; }
  template <class T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }

  std::mt19937_64 random_;
};

class OptionsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<ProcessCluster>(SPECWIRE_BIN_DIR);
    cluster_->AddVerifier("verifier-0", SPECWIRE_TINY_MODEL);
    const std::string model =
        absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL);
    cluster_->AddDraftNode("ngram", "ngram");
    cluster_->AddDraftNode("random", "random");
    cluster_->AddDraftNode("oracle", "oracle", {model});
    cluster_->AddDraftNode("adversarial", "adversarial", {model});
    cluster_->AddDraftNode("model", "model", {model, "--draft_layers=1"});
    ASSERT_TRUE(cluster_->WaitServing(
        {"verifier-0", "ngram", "random", "oracle", "adversarial", "model"}));
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static std::vector<GenerateResult> Call(const v1::GenerateRequest& request) {
    return CallGenerateChoices(
        cluster_->generation(), request, nullptr, absl::Seconds(60));
  }

  static std::string PlainAndDraftedDiffer(const Case& one) {
    const std::vector<GenerateResult> plain = Call(PlainRequest(one));
    const std::vector<GenerateResult> drafted = Call(DraftedRequest(one));
    for (size_t i = 0; i < plain.size(); ++i) {
      const std::string fault = Compare(plain[i], drafted[i]);
      if (!fault.empty()) return absl::StrCat("choice ", i, ": ", fault);
    }
    return "";
  }

  static inline std::unique_ptr<ProcessCluster> cluster_;
};

TEST(ShrinkTest, LeavesTheSmallestCaseThatFails) {
  Case one;
  one.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  one.max_tokens = 40;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    one.options.push_back({name, [](auto*) {}});
  }
  // Fails if b and d are there, and at least 7 tokens may come.
  const Case small = Shrink(one, [](const Case& candidate) {
    std::set<std::string> names;
    for (const Option& option : candidate.options) names.insert(option.name);
    return names.contains("b") && names.contains("d") &&
                   candidate.max_tokens >= 7
               ? "fault"
               : "";
  });
  ASSERT_EQ(small.options.size(), 2u);
  EXPECT_EQ(small.options[0].name, "b");
  EXPECT_EQ(small.options[1].name, "d");
  EXPECT_EQ(small.max_tokens, 7);
  EXPECT_THAT(small.prompt, ElementsAre(1));
}

TEST_F(OptionsTest, PlainAndSpeculativeRepliesAreEqualWhateverIsAsked) {
  const char* text = std::getenv("SPECWIRE_SEED");
  uint64_t seed = 1;
  ASSERT_TRUE(text == nullptr || absl::SimpleAtoi(text, &seed)) << text;
  const int num_prompts = FullTest() ? 1000 : 200;
  Mutex mutex;
  std::vector<std::string> faults;
  int64_t accepted = 0;
  int stopped_by_text = 0;
  int stopped_by_token = 0;
  int stopped_by_eos = 0;
  InParallel(num_prompts, kConcurrency, [&](int i) {
    Drawer drawer(seed * 1000003 + static_cast<uint64_t>(i));
    Case one = drawer.Draw();
    const GenerateResult reply = Call(PlainRequest(one))[0];
    if (reply.status.ok()) drawer.DrawStops(reply, &one);
    const std::vector<GenerateResult> plain = Call(PlainRequest(one));
    for (const int64_t patience : {kLockStep, drawer.LocalPatience()}) {
      one.patience_us = patience;
      const std::vector<GenerateResult> drafted = Call(DraftedRequest(one));
      std::string fault;
      for (size_t c = 0; c < plain.size() && fault.empty(); ++c) {
        fault = Compare(plain[c], drafted[c]);
      }
      if (!fault.empty()) {
        const Case small = Shrink(one, PlainAndDraftedDiffer);
        fault = absl::StrCat("SPECWIRE_SEED=",
                             seed,
                             " case ",
                             i,
                             ": ",
                             fault,
                             "; ",
                             Describe(one),
                             "\n  smallest: ",
                             PlainAndDraftedDiffer(small),
                             "; ",
                             Describe(small));
      }
      MutexLock lock(&mutex);
      if (!fault.empty()) faults.push_back(fault);
      for (const GenerateResult& result : drafted) {
        accepted += result.finished.speculation().num_accepted_draft_tokens();
        stopped_by_text += result.finished.has_stop_text() ? 1 : 0;
        stopped_by_token += result.finished.has_stop_token_id() ? 1 : 0;
        stopped_by_eos += result.finished.has_eos_token_id() ? 1 : 0;
      }
    }
  });
  EXPECT_THAT(faults, IsEmpty());
  // The comparison says something only if these happened.
  EXPECT_GT(accepted, num_prompts);
  EXPECT_GT(stopped_by_text, num_prompts / 10);
  EXPECT_GT(stopped_by_token, num_prompts / 20);
  EXPECT_GT(stopped_by_eos, num_prompts / 20);
}

// Bug report 10: penalties are ignored with speculation.
TEST_F(OptionsTest, PenaltiesHoldWithSpeculationAsWithout) {
  const v1::GenerateRequest base =
      SeededRequest(RepeatingPrompt(), {"greedy", 0}, 40);
  const std::vector<int32_t> bare = Call(Plain(base))[0].token_ids;
  const auto set = [](const std::string& name, float value) {
    return Option{name, [name, value](v1::GenerateRequest* request) {
                    v1::SamplingParams* sampling = request->mutable_sampling();
                    if (name == "repetition") {
                      sampling->set_repetition_penalty(value);
                    } else if (name == "frequency") {
                      sampling->set_frequency_penalty(value);
                    } else {
                      sampling->set_presence_penalty(value);
                    }
                  }};
  };
  for (const Option& penalty : {set("repetition", 1.5f),
                                set("frequency", 1.5f),
                                set("presence", 1.5f)}) {
    v1::GenerateRequest request = base;
    penalty.set(&request);
    const std::vector<int32_t> plain = Call(Plain(request))[0].token_ids;
    EXPECT_NE(plain, bare) << penalty.name;
    for (const char* drafter : kDrafters) {
      for (const int run_length : {1, 4, 16}) {
        v1::Speculation* how = request.mutable_speculation();
        how->set_drafter(drafter);
        how->set_max_draft_tokens(run_length);
        how->set_patience_us(kLockStep);
        EXPECT_EQ(Call(request)[0].token_ids, plain)
            << penalty.name << " " << drafter << " " << run_length;
      }
    }
  }
}

// Bug reports 15 and 17: the seed is ignored, or shared. One seed is one text:
// alone, among others, with any drafter and run length, and as any of `n`.
TEST_F(OptionsTest, ChoicesAreIndependentAndEachIsReproducible) {
  v1::GenerateRequest request = SeededRequest({5}, {"T=1", 1}, 32);
  std::vector<std::vector<int32_t>> texts;
  request.set_n(16);
  for (const GenerateResult& one : Call(Plain(request))) {
    ASSERT_TRUE(one.status.ok()) << one.status;
    EXPECT_EQ(one.fault, "");
    texts.push_back(one.token_ids);
  }
  EXPECT_EQ(std::set<std::vector<int32_t>>(texts.begin(), texts.end()).size(),
            16u);
  // Choice 0 is what the request gives without n.
  request.clear_n();
  EXPECT_EQ(Call(request)[0].token_ids, texts[0]);
  Mutex mutex;
  std::vector<std::string> faults;
  InParallel(20, kConcurrency, [&](int i) {
    v1::GenerateRequest again = request;
    again.set_n(1 + i % 7);
    v1::Speculation* how = again.mutable_speculation();
    how->set_drafter(kDrafters[static_cast<size_t>(i) % std::size(kDrafters)]);
    how->set_max_draft_tokens(1 + i % 9);
    if (i % 2 == 0) how->set_patience_us(kLockStep);
    const std::vector<GenerateResult> results = Call(again);
    for (size_t c = 0; c < results.size(); ++c) {
      if (results[c].token_ids == texts[c]) continue;
      MutexLock lock(&mutex);
      faults.push_back(absl::StrCat("choice ", c, " of ", results.size()));
    }
  });
  EXPECT_THAT(faults, IsEmpty());
  // Another seed, other texts.
  request.mutable_sampling()->set_seed(-76);
  request.set_n(16);
  for (const GenerateResult& one : Call(request)) {
    EXPECT_EQ(std::count(texts.begin(), texts.end(), one.token_ids), 0);
  }
}

}  // namespace
}  // namespace specwire
