// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

struct SamplingCase {
  std::function<void(SamplingParams*)> change;
  std::string field;
  std::string part;
};

void ExpectRefused(const std::vector<SamplingCase>& cases) {
  for (const SamplingCase& one : cases) {
    SamplingParams params = Greedy();
    one.change(&params);
    const absl::Status status = ValidateSampling(params, kVocab);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.field;
    EXPECT_THAT(std::string(status.message()), StartsWith(one.field + ":"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.part));
  }
}

TEST(SamplingParamsTest, AcceptsGreedyDecoding) {
  SamplingParams params = Greedy();
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.seed = -5;
  params.top_k = -1;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.temperature = 9e-6f;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.temperature = -0.0f;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
}

TEST(SamplingParamsTest, RefusesValuesOutOfRange) {
  std::vector<SamplingCase> cases;
  for (const float bad : {-1.0f, kNan, kInf, -kInf}) {
    cases.push_back({[bad](auto* p) { p->temperature = bad; },
                     "temperature",
                     "finite and >= 0"});
  }
  for (const float bad : {-0.1f, 0.0f, 1.01f, kNan, kInf}) {
    cases.push_back({[bad](auto* p) { p->top_p = bad; }, "top_p", "(0, 1]"});
  }
  for (const float bad : {-0.1f, 1.01f, kNan}) {
    cases.push_back({[bad](auto* p) { p->min_p = bad; }, "min_p", "[0, 1]"});
  }
  for (const float bad : {0.0f, -1.0f, kNan, kInf}) {
    cases.push_back({[bad](auto* p) { p->repetition_penalty = bad; },
                     "repetition_penalty",
                     "> 0"});
  }
  for (const float bad : {-2.1f, 2.1f, kNan, kInf}) {
    cases.push_back({[bad](auto* p) { p->frequency_penalty = bad; },
                     "frequency_penalty",
                     "[-2, 2]"});
    cases.push_back({[bad](auto* p) { p->presence_penalty = bad; },
                     "presence_penalty",
                     "[-2, 2]"});
  }
  cases.push_back({[](auto* p) { p->top_k = -2; }, "top_k", "got -2"});
  for (const int32_t bad : {-1, kVocab, INT32_MAX}) {
    cases.push_back({[bad](auto* p) {
                       p->logit_bias = {{bad, 1.0f}};
                     },
                     "logit_bias",
                     "[0, 100)"});
  }
  for (const float bad : {100.5f, -101.0f, kNan, kInf}) {
    cases.push_back({[bad](auto* p) {
                       p->logit_bias = {{1, bad}};
                     },
                     "logit_bias",
                     "[-100, 100]"});
  }
  ExpectRefused(cases);
}

TEST(SamplingParamsTest, BoundsLogitBias) {
  std::vector<LogitBias> many;
  for (int32_t i = 0; i <= kMaxLogitBiases; ++i) many.push_back({i, 1.0f});
  SamplingParams params;
  params.logit_bias = many;
  EXPECT_THAT(std::string(ValidateSampling(params, 5000).message()),
              HasSubstr("logit_bias: at most 1024 entries allowed, got 1025"));
  params.logit_bias.pop_back();
  EXPECT_TRUE(ValidateSampling(params, 5000).ok());
  ExpectRefused({{[](auto* p) {
                    p->logit_bias = {{7, 1.0f}, {1, 1.0f}, {7, 1.0f}};
                  },
                  "logit_bias",
                  "token id 7 stands there twice"}});
}

TEST(SamplingParamsTest, AcceptsProcessors) {
  SamplingParams params;
  params.repetition_penalty = 1.3f;
  params.frequency_penalty = -2;
  params.presence_penalty = 2;
  params.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}, {3, -0.0f}};
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.temperature = 0;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
}

TEST(SamplingParamsTest, AcceptsSampling) {
  SamplingParams params;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.temperature = 1e-5f;
  params.top_k = 40;
  params.top_p = 0.95f;
  params.min_p = 0.1f;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
  params.top_k = kVocab + 1;
  params.min_p = 1;
  EXPECT_TRUE(ValidateSampling(params, kVocab).ok());
}

TEST(StopCriteriaTest, AcceptsWhatIsSupported) {
  StopCriteria stop;
  EXPECT_TRUE(ValidateStop(stop, kVocab).ok());
  stop.max_tokens = 1;
  stop.stop_token_ids = {0, kVocab - 1};
  stop.ignore_eos = true;
  stop.min_tokens = 1;
  stop.stop = {"end", std::string(256, 'x')};
  stop.include_stop_str_in_output = true;
  EXPECT_TRUE(ValidateStop(stop, kVocab).ok());
}

TEST(StopCriteriaTest, RefusesTheRestByName) {
  const auto refused = [](std::function<void(StopCriteria*)> change,
                          const std::string& field,
                          const std::string& part) {
    StopCriteria stop;
    change(&stop);
    const absl::Status status = ValidateStop(stop, kVocab);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), StartsWith(field + ":"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  refused([](auto* s) { s->max_tokens = 0; }, "max_tokens", ">= 1, got 0");
  refused([](auto* s) { s->max_tokens = -7; }, "max_tokens", "got -7");
  refused([](auto* s) { s->min_tokens = -1; }, "min_tokens", ">= 0");
  refused(
      [](auto* s) {
        s->max_tokens = 3;
        s->min_tokens = 4;
      },
      "min_tokens",
      "<= max_tokens (3)");
  for (const int32_t bad : {-1, kVocab, INT32_MIN, INT32_MAX}) {
    refused(
        [bad](auto* s) {
          s->stop_token_ids = {1, bad};
        },
        "stop_token_ids",
        "[0, 100)");
  }
  refused([](auto* s) { s->stop = {""}; }, "stop", "1 to 256 bytes");
  refused([](auto* s) { s->stop = {std::string(257, 'x')}; },
          "stop",
          "got one of 257");
}

}  // namespace
}  // namespace specwire
