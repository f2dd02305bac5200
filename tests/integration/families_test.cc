// SPDX-License-Identifier: Apache-2.0

// Speculation changes when tokens arrive, never which, whatever the model's
// family: the small models of tests/data/families as Hugging Face folders, in
// real processes.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/exactness_matrix.h"
#include "tests/testing/families.h"

namespace specwire {
namespace {

constexpr const char* kDrafters[] = {
    "ngram", "model", "oracle", "adversarial", "local", "none"};
constexpr int kRunLengths[] = {1, 8};
constexpr int64_t kPatiences[] = {0, kLockStep};
constexpr SamplingSetting kSettings[] = {
    {"greedy", 0},
    {"T=0.7 top_p=0.95", 0.7f, 0, 0.95f},
    {"T=1 top_k=40, processors", 1, 40, 1, true}};

class ClusterFamiliesTest : public testing::TestWithParam<const char*> {};

TEST_P(ClusterFamiliesTest, PlainAndSpeculativeIdsAreEqual) {
  const auto cluster = StartWithEveryDrafter(
      absl::StrCat(SPECWIRE_TEST_DATA "/families/", GetParam()));
  ASSERT_NE(cluster, nullptr);
  // The longer prompt and its completion are longer than every window.
  const std::map<std::string, int64_t> accepted =
      ExpectExact(*cluster,
                  {.prompts = {RepeatingPrompt(), RepeatingPrompt(20)},
                   .settings = kSettings,
                   .drafters = kDrafters,
                   .run_lengths = kRunLengths,
                   .patiences = kPatiences,
                   .max_tokens = 40});
  for (const char* drafter : {"model", "oracle"}) {
    EXPECT_GT(accepted.at(drafter), 0) << drafter;
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         ClusterFamiliesTest,
                         testing::ValuesIn(kFamilies),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace specwire
