// SPDX-License-Identifier: Apache-2.0
#include "draft_node/oracle_drafter.h"

#include <memory>
#include <vector>

#include "common/model/engine.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/greedy_text.h"

namespace specwire::draft {
namespace {

TEST(OracleDrafterTest, ProposesTheTargetsGreedyText) {
  const std::unique_ptr<Engine> target = LoadTinyEngine(SPECWIRE_TINY_MODEL);
  ASSERT_NE(target, nullptr);
  auto drafter = OracleDrafter::Create(LoadTinyEngine(SPECWIRE_TINY_MODEL));
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  EXPECT_EQ((*drafter)->name(), "oracle");
  EXPECT_EQ((*drafter)->model_digest(), target->info().model_digest);
  const auto tokenizer = Tokenizer::Create(target->tokenizer_model());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*drafter)->vocabulary_fingerprint(), (*tokenizer)->fingerprint());

  const auto sequence = (*drafter)->NewSequence({});
  std::vector<int32_t> path = {20, 84, 104, 101, 33};
  for (int step = 0; step < 6; ++step) {
    const std::vector<int32_t> expected = GreedyText(target.get(), path, 7);
    const auto run = sequence->Propose(path, 7);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->tokens, expected) << step;
    // Take some of it, then go astray: the cache has to be rolled back.
    path.insert(path.end(), expected.begin(), expected.begin() + step);
    path.push_back(200 + step);
  }
}

TEST(OracleDrafterTest, EndsAtTheContextsEnd) {
  auto drafter = OracleDrafter::Create(LoadTinyEngine(SPECWIRE_TINY_MODEL));
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  const auto sequence = (*drafter)->NewSequence({});
  const auto length = static_cast<size_t>((*drafter)->max_model_len());
  const auto run = sequence->Propose(std::vector<int32_t>(length - 3, 50), 8);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GE(run->tokens.size(), 3u);
  EXPECT_LE(run->tokens.size(), 4u);
  const auto none = sequence->Propose(std::vector<int32_t>(length + 1, 50), 8);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->tokens.empty());
}

}  // namespace
}  // namespace specwire::draft
