// SPDX-License-Identifier: Apache-2.0
// The default model against all of the reference data.
#include <gtest/gtest.h>

#include "tests/common/model/reference_data.h"

namespace specwire {
namespace {

TEST_F(ReferenceTest, AllGreedyCompletionsMatch) {
  for (const auto& row : Rows("greedy.jsonl")) {
    CheckGreedyInOnePass(row);
  }
}

TEST_F(ReferenceTest, MoreGreedyCompletionsMatchTokenByToken) {
  const auto rows = Rows("greedy.jsonl");
  for (const size_t row : {0, 8, 20, 29, 32, 38}) {
    CheckGreedyDecoding(rows[row]);
  }
}

TEST_F(ReferenceTest, AllPerplexitiesMatch) {
  for (const auto& row : Rows("perplexity.jsonl")) {
    CheckPerplexity(row);
  }
}

}  // namespace
}  // namespace specwire
