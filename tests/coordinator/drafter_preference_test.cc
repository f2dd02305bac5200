// SPDX-License-Identifier: Apache-2.0
#include "coordinator/drafter_preference.h"

#include <optional>

#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

constexpr int kPeriod = DrafterPreference::kRequestsPerTrial;

// How many of the next requests take the local drafter.
int CountLocal(DrafterPreference* preference,
               int num_requests,
               std::optional<double> draft_nodes,
               std::optional<double> local) {
  int count = 0;
  for (int i = 0; i < num_requests; ++i) {
    count += preference->TakesLocal("digest", draft_nodes, local) ? 1 : 0;
  }
  return count;
}

TEST(DrafterPreferenceTest, WithoutKnowledgeDraftNodesComeFirst) {
  DrafterPreference preference;
  EXPECT_EQ(CountLocal(&preference, kPeriod - 1, std::nullopt, std::nullopt),
            0);
  // Now and then the local one is tried, so that it becomes known.
  EXPECT_EQ(CountLocal(&preference, 1, std::nullopt, std::nullopt), 1);
  EXPECT_EQ(CountLocal(&preference, 3 * kPeriod, 1.3, std::nullopt), 3);
}

TEST(DrafterPreferenceTest, WhatIsNotKnownIsTriedWhereNothingCanBeLost) {
  DrafterPreference preference;
  EXPECT_EQ(CountLocal(&preference, kPeriod - 1, 1.0, std::nullopt),
            kPeriod - 1);
}

TEST(DrafterPreferenceTest, TheFasterOneIsTakenAndTheOtherStaysKnown) {
  DrafterPreference preference;
  EXPECT_EQ(CountLocal(&preference, 2 * kPeriod, 1.1, 1.5), 2 * kPeriod - 2);
  EXPECT_EQ(CountLocal(&preference, 2 * kPeriod, 1.5, 1.1), 2);
}

TEST(DrafterPreferenceTest, ASmallDifferenceChangesNothing) {
  DrafterPreference preference;
  EXPECT_EQ(CountLocal(&preference, kPeriod - 1, 1.2, 1.22), 0);
  EXPECT_EQ(CountLocal(&preference, 1, 1.2, 1.5), 0);
  EXPECT_EQ(CountLocal(&preference, kPeriod - 1, 1.22, 1.2), kPeriod - 1);
}

TEST(DrafterPreferenceTest, ModelsAreApart) {
  DrafterPreference preference;
  EXPECT_TRUE(preference.TakesLocal("a", 1.1, 1.5));
  EXPECT_FALSE(preference.TakesLocal("b", 1.5, 1.1));
  EXPECT_TRUE(preference.TakesLocal("a", 1.1, 1.5));
}

}  // namespace
}  // namespace specwire::coordinator
