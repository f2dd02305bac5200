// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "common/sampling/softmax.h"
#include "gtest/gtest.h"
#include "tests/common/sampling/sampling_test_util.h"

namespace specwire {
namespace {

PositionLogprobs Read(const std::vector<float>& logits,
                      int32_t token,
                      int top) {
  PositionLogprobs out;
  LogprobReader().Read(logits, token, top, &out);
  return out;
}

TEST(LogprobReaderTest, HandNumbers) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const float ln2 = std::log(2.0f);
  const PositionLogprobs got = Read({0, -ln2, -2 * ln2, -2 * ln2}, 1, 3);
  EXPECT_EQ(got.chosen.token_id, 1);
  EXPECT_NEAR(got.chosen.logprob, std::log(0.25), 1e-7);
  ASSERT_EQ(got.top.size(), 3u);
  EXPECT_EQ(got.top[0].token_id, 0);
  EXPECT_EQ(got.top[1].token_id, 1);
  // Ties: the lower id.
  EXPECT_EQ(got.top[2].token_id, 2);
  EXPECT_NEAR(got.top[2].logprob, std::log(0.125), 1e-7);
  EXPECT_EQ(got.top[1].logprob, got.chosen.logprob);
}

TEST(LogprobReaderTest, ACertainAndAUniformModel) {
  EXPECT_EQ(Read({-1e30f, 0, -1e30f}, 1, 0).chosen.logprob, 0.0);
  EXPECT_NEAR(Read(std::vector<float>(10, 3.5f), 7, 0).chosen.logprob,
              -std::log(10.0),
              1e-15);
}

TEST(LogprobReaderTest, AgreesWithLongDoubles) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits =
        RandomLogits(seed < 3 ? 49152 : 1000 + seed, 4, seed);
    long double sum = 0;
    for (const float logit : logits) {
      sum += std::exp(static_cast<long double>(logit));
    }
    for (const int32_t token : {0, 17, 999}) {
      const double want = static_cast<double>(
          logits[static_cast<size_t>(token)] - std::log(sum));
      EXPECT_NEAR(Read(logits, token, 0).chosen.logprob, want, 1e-13);
      EXPECT_EQ(Read(logits, token, 0).chosen.logprob,
                LogProbability(logits, token));
      EXPECT_NEAR(Probability(logits, token), std::exp(want), 1e-13);
    }
  }
}

TEST(LogprobReaderTest, TopIsWhatASortGives) {
  LogprobReader reader;
  PositionLogprobs got;
  for (int round = 0; round < 500; ++round) {
    const auto seed = static_cast<uint32_t>(round);
    const std::vector<float> logits =
        HardLogits(1 + seed * 29 % 4000, round % 63, seed);
    std::vector<int32_t> order;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInf) order.push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    // Beside infinity, nothing has a probability.
    if (!order.empty() && logits[static_cast<size_t>(order[0])] == kInf) {
      std::erase_if(order, [&](int32_t id) {
        return logits[static_cast<size_t>(id)] != kInf;
      });
    }
    const int top = round % (kMaxLogprobs + 1);
    if (order.size() > static_cast<size_t>(top)) {
      order.resize(static_cast<size_t>(top));
    }
    reader.Read(logits, 0, top, &got);
    ASSERT_EQ(got.top.size(), order.size()) << "round " << round;
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(got.top[i].token_id, order[i]) << "round " << round;
      ASSERT_EQ(got.top[i].logprob, LogProbability(logits, order[i]));
    }
  }
}

TEST(LogprobReaderTest, WhatIsNoNumberHasNoProbability) {
  const double none = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(Read({kNan, 0, -kInf}, 0, 3).chosen.logprob, none);
  EXPECT_EQ(Read({kNan, 0, -kInf}, 2, 3).chosen.logprob, none);
  EXPECT_EQ(Read({kNan, 0, -kInf}, 1, 3).chosen.logprob, 0.0);
  EXPECT_EQ(Read({kNan, 0, -kInf}, 1, 3).top.size(), 1u);
  EXPECT_EQ(Read({kNan, -kInf}, 1, 2).chosen.logprob, none);
  EXPECT_TRUE(Read({kNan, -kInf}, 1, 2).top.empty());
  EXPECT_EQ(Read({kInf, 0, kInf}, 1, 3).chosen.logprob, none);
  EXPECT_NEAR(Read({kInf, 0, kInf}, 2, 3).chosen.logprob, std::log(0.5), 1e-15);
  EXPECT_EQ(Read({kInf, 0, kInf}, 2, 3).top.size(), 2u);
}

TEST(SoftmaxTest, TheOrderOfASumDoesNotDependOnWhatIsLeftOut) {
  const std::vector<float> row = RandomLogits(5000, 3, 1);
  std::vector<float> sparse = row;
  for (size_t i = 0; i < sparse.size(); ++i) {
    if (i % 5 == 0 || (i > 1500 && i < 3500)) sparse[i] = -kInf;
  }
  const double dense = SumOfWeights(sparse, 0.9, 20);
  LaneSum sum;
  for (size_t i = 0; i < sparse.size(); ++i) {
    if (sparse[i] == -kInf) continue;
    sum.Add(static_cast<int32_t>(i),
            Exp(static_cast<double>(sparse[i]) / 0.9 - 20));
  }
  EXPECT_EQ(sum.Total(), dense);
}

// Bits of log-probabilities on rows that every machine can make again; the same
// on every processor, compiler and C library.
TEST(SoftmaxTest, BitsAreThoseOfRecord) {
  const std::vector<float> row = RowOfRecord(49152, 1);
  uint64_t digest = 0xcbf29ce484222325ull;
  for (const int32_t token : {0, 1, 777, 20000, 49151}) {
    const double value = LogProbability(row, token);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 0x100000001b3ull;
  }
  EXPECT_EQ(digest, 9015026187237830609u);
}

}  // namespace
}  // namespace specwire
