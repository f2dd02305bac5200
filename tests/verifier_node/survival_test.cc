// SPDX-License-Identifier: Apache-2.0
#include "verifier_node/survival.h"

#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

TEST(SurvivalTest, AFreshSequenceIsPromising) {
  const Survival survival;
  for (int place = 0; place < 20; ++place) {
    EXPECT_GE(survival.Acceptance(place), 0.5);
    EXPECT_LT(survival.Acceptance(place), 1);
  }
}

TEST(SurvivalTest, AFewWrongTokensCorrectIt) {
  Survival survival;
  for (int i = 0; i < 4; ++i) survival.OnVerified(4, 0);
  EXPECT_LT(survival.Acceptance(0), 0.25);
  // Nothing was seen of later places but that the drafter is bad.
  EXPECT_LT(survival.Acceptance(3), 0.4);
}

TEST(SurvivalTest, LearnsEachPlace) {
  Survival survival;
  // The first two are always right, the third never.
  for (int i = 0; i < 40; ++i) survival.OnVerified(5, 2);
  EXPECT_GT(survival.Acceptance(0), 0.9);
  EXPECT_GT(survival.Acceptance(1), 0.9);
  EXPECT_LT(survival.Acceptance(2), 0.2);
}

TEST(SurvivalTest, APassTellsNothingBeyondItsFirstWrongToken) {
  Survival one, other;
  one.OnVerified(1, 0);
  other.OnVerified(8, 0);
  for (int place = 0; place < 8; ++place) {
    EXPECT_EQ(one.Acceptance(place), other.Acceptance(place));
  }
}

TEST(SurvivalTest, ComparedTokensCountLikeVerifiedOnes) {
  Survival compared, verified;
  compared.OnCompared(0, true);
  compared.OnCompared(1, false);
  verified.OnVerified(2, 1);
  EXPECT_EQ(compared.Acceptance(0), verified.Acceptance(0));
  EXPECT_EQ(compared.Acceptance(1), verified.Acceptance(1));
}

TEST(SurvivalTest, NoticesAChangeOfQuality) {
  Survival survival;
  for (int i = 0; i < 500; ++i) survival.OnVerified(4, 0);
  EXPECT_LT(survival.Acceptance(0), 0.05);
  // Only compared, since such tokens get no rows.
  for (int i = 0; i < 12; ++i) survival.OnCompared(0, true);
  EXPECT_GT(survival.Acceptance(0), 0.5);
  // Later places are tried again too.
  EXPECT_GT(survival.Acceptance(1), 0.4);
  for (int i = 0; i < 12; ++i) survival.OnCompared(0, false);
  EXPECT_LT(survival.Acceptance(0), 0.4);
}

TEST(SurvivalTest, FarPlacesShareAnEstimate) {
  Survival survival;
  for (int i = 0; i < 30; ++i) survival.OnCompared(100, false);
  EXPECT_LT(survival.Acceptance(7), 0.2);
  EXPECT_EQ(survival.Acceptance(7), survival.Acceptance(1000));
}

}  // namespace
}  // namespace specwire::verifier
