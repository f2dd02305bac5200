// SPDX-License-Identifier: Apache-2.0
#include "common/base/random_id.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

TEST(RandomIdTest, IdsAreHexadecimalAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomHexId();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(RandomHexId(1).size(), 2u);
  EXPECT_EQ(RandomHexId(256).size(), 512u);
}

TEST(RandomIdTest, SeedsAreExactAsDoubles) {
  std::set<int64_t> seeds;
  for (int i = 0; i < 1000; ++i) {
    const int64_t seed = RandomSeed();
    EXPECT_GE(seed, 0);
    EXPECT_LT(seed, int64_t{1} << 53);
    EXPECT_EQ(static_cast<int64_t>(static_cast<double>(seed)), seed);
    seeds.insert(seed);
  }
  EXPECT_EQ(seeds.size(), 1000u);
}

TEST(RandomIdTest, UnitNumbersFillTheUnitInterval) {
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double unit = RandomUnit();
    EXPECT_GE(unit, 0);
    EXPECT_LT(unit, 1);
    sum += unit;
  }
  // The mean's standard deviation is 0.0029.
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace specwire
