// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_nodes.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {

// The fake model's tokens of a text: its bytes.
inline std::vector<int32_t> Ids(const std::string& text) {
  return {text.begin(), text.end()};
}

inline std::string Decode(const std::vector<int32_t>& ids,
                          bool skip_special = true) {
  return (*Tokenizer::Create(FakeModel().Tokenizer()))
      ->Decode(ids, skip_special);
}

// Everything that must hold of a reply to GreedyRequest(text, max_tokens).
inline void ExpectComplete(const GenerateResult& result,
                           const std::string& text,
                           int max_tokens,
                           const FakeModel& model = {}) {
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.token_ids, model.Complete(Ids(text), max_tokens));
  EXPECT_EQ(result.text, Decode(result.token_ids));
  const v1::GenerateFinished& finished = result.finished;
  EXPECT_EQ(finished.usage().prompt_tokens(), static_cast<int>(text.size()));
  EXPECT_EQ(finished.usage().completion_tokens(),
            static_cast<int>(result.token_ids.size()));
  const v1::SpeculationStats& stats = finished.speculation();
  EXPECT_EQ(stats.num_drafted_tokens(),
            stats.num_draft_tokens() + stats.num_overlapped_tokens() +
                stats.num_stale_tokens() + stats.num_trimmed_tokens() +
                stats.num_unused_tokens());
  EXPECT_EQ(
      std::count(
          result.origins.begin(), result.origins.end(), v1::TOKEN_ORIGIN_DRAFT),
      stats.num_accepted_draft_tokens());
  EXPECT_EQ(stats.rule(), v1::ACCEPTANCE_RULE_COUPLED);
}

// The same request in lock-step with a drafter that is not ahead.
inline v1::GenerateRequest LockStep(v1::GenerateRequest request,
                                    int run_length) {
  request.mutable_speculation()->set_patience_us(-1);
  request.mutable_speculation()->set_max_draft_tokens(run_length);
  request.mutable_speculation()->set_window(run_length);
  return request;
}

}  // namespace specwire::coordinator
