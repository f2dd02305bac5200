// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_preference.h"

#include <gtest/gtest.h>

namespace specwire::coordinator {
namespace {

constexpr int kPeriod = DrafterPreference::kRequestsPerTrial;
constexpr int kFirstPeriod = DrafterPreference::kRequestsPerFirstTrial;

// How many of the next requests take the local drafter, when it makes `local`
// tokens a second and draft nodes make `draft_nodes`.
int CountLocal(DrafterPreference* preference,
               int num_requests,
               double draft_nodes,
               double local) {
  int count = 0;
  for (int i = 0; i < num_requests; ++i) {
    const bool takes_local = preference->TakesLocal("digest");
    count += takes_local ? 1 : 0;
    preference->Report(
        "digest",
        takes_local,
        100,
        absl::Seconds(100 / (takes_local ? local : draft_nodes)));
  }
  return count;
}

TEST(DrafterPreferenceTest, WithoutKnowledgeDraftNodesComeFirst) {
  DrafterPreference preference;
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < kFirstPeriod; ++i) {
      EXPECT_FALSE(preference.TakesLocal("digest"));
    }
    // Now and then the local one is tried, so that it becomes known.
    EXPECT_TRUE(preference.TakesLocal("digest"));
  }
}

TEST(DrafterPreferenceTest, TheFasterOneIsTakenAndTheOtherStaysKnown) {
  DrafterPreference preference;
  CountLocal(&preference, 4 * kPeriod, 300, 350);
  EXPECT_EQ(CountLocal(&preference, 4 * kPeriod, 300, 350), 4 * (kPeriod - 1));
  // Another machine, another order: noticed by the requests that try.
  CountLocal(&preference, 40 * kPeriod, 400, 350);
  EXPECT_EQ(CountLocal(&preference, 4 * kPeriod, 400, 350), 4);
}

TEST(DrafterPreferenceTest, ASmallDifferenceChangesNothing) {
  DrafterPreference preference;
  CountLocal(&preference, 4 * kPeriod, 300, 310);
  EXPECT_EQ(CountLocal(&preference, 4 * kPeriod, 300, 310), 4);
}

TEST(DrafterPreferenceTest, ShortRequestsTellNothing) {
  DrafterPreference preference;
  for (int i = 0; i < 2 * kPeriod; ++i) {
    const bool local = preference.TakesLocal("digest");
    preference.Report("digest", local, 3, absl::Milliseconds(local ? 1 : 1000));
    preference.Report("digest", local, 100, absl::ZeroDuration());
  }
  for (int i = 1; i < kFirstPeriod; ++i) {
    EXPECT_FALSE(preference.TakesLocal("digest"));
  }
}

TEST(DrafterPreferenceTest, ModelsAreApart) {
  DrafterPreference preference;
  CountLocal(&preference, 4 * kPeriod, 300, 400);
  EXPECT_TRUE(preference.TakesLocal("digest"));
  EXPECT_FALSE(preference.TakesLocal("other"));
}

}  // namespace
}  // namespace specwire::coordinator
