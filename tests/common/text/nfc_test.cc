// SPDX-License-Identifier: Apache-2.0
#include "common/text/nfc.h"

#include <gtest/gtest.h>

#include <string>

namespace specwire {
namespace {

TEST(NfcTest, Composes) {
  EXPECT_EQ(ToNfc("plain"), "plain");
  EXPECT_EQ(ToNfc("e\u0301"), "\u00E9");
  EXPECT_EQ(ToNfc("\u212B"), "\u00C5");
  EXPECT_EQ(ToNfc("\u1112\u1161\u11AB"), "\uD55C");
  // Marks are ordered by class first: dot below, then acute.
  EXPECT_EQ(ToNfc("o\u0301\u0323"), "\u1ECD\u0301");
  // A composition exclusion stays decomposed.
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C");
  // Compatibility characters are not touched.
  EXPECT_EQ(ToNfc("\uFB01\u00BD"), "\uFB01\u00BD");
}

TEST(NfcTest, KeepsMalformedBytes) {
  EXPECT_EQ(ToNfc("e\u0301\xFF"
                  "e\u0301\xE2\x82"),
            "\u00E9\xFF\u00E9\xE2\x82");
}

TEST(NfcTest, OrdersLongRunsOfMarksQuickly) {
  // The worst order for sorting by swaps: 200,000 marks of falling class.
  std::string text = "x";
  for (int i = 0; i < 100'000; ++i) text += "\u0301";
  for (int i = 0; i < 100'000; ++i) text += "\u0323";
  const std::string normal = ToNfc(text);
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_EQ(normal.substr(1, 2), "\u0323");
}

}  // namespace
}  // namespace specwire
