// SPDX-License-Identifier: Apache-2.0

// What judges the matrix must itself be able to fail.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/faults/cell.h"
#include "tests/faults/episode.h"
#include "tests/faults/table.h"

namespace specwire::faults {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FaultCellTest, NamesAreReadBack) {
  std::set<std::string> names;
  for (const Cell& cell : EveryCell()) {
    const absl::StatusOr<Cell> parsed = ParseCell(ToString(cell));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, cell);
    names.insert(ToString(cell));
  }
  EXPECT_EQ(names.size(), EveryCell().size());
  for (const char* bad : {"client/kill",
                          "nobody/kill/join",
                          "client/delay/join",
                          "client_link/kill/connect",
                          "client/kill/never"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCell(bad).status())) << bad;
  }
}

TEST(FaultCellTest, CellsAreRunOrSaidWhyNot) {
  size_t left_out = 0;
  for (const Cell& cell : EveryCell()) left_out += WhyNot(cell) ? 1 : 0;
  EXPECT_EQ(AllCells().size() + left_out, EveryCell().size());
  // 4 kinds of process with 6 faults, 4 links with 10, in 9 phases.
  EXPECT_EQ(EveryCell().size(), size_t{(4 * 6 + 4 * 10) * 9});
  EXPECT_LT(left_out, EveryCell().size() / 10);
}

TEST(FaultCellTest, AFewCellsCoverEveryPair) {
  const auto pairs = [](const std::vector<Cell>& cells) {
    std::set<std::pair<std::string, std::string>> all;
    for (const Cell& cell : cells) {
      const std::string target(Name(cell.target));
      const std::string fault(Name(cell.fault));
      const std::string phase(Name(cell.phase));
      all.insert({target, fault});
      all.insert({target, phase});
      all.insert({fault, phase});
    }
    return all;
  };
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Cell> few = PairwiseCells(seed);
    EXPECT_EQ(pairs(few), pairs(AllCells()));
    EXPECT_LT(few.size(), AllCells().size() / 2);
    EXPECT_EQ(few, PairwiseCells(seed));
  }
  EXPECT_NE(PairwiseCells(1), PairwiseCells(2));
}

class CheckLogTest : public testing::Test {
 protected:
  CheckLogTest() {
    log_.tokens = PlainTokens(request_);
    log_.finished = true;
    log_.end = "OK";
  }
  Verdict Judge(bool whole = true) const {
    Verdict verdict;
    CheckLog(request_, log_, whole, "client", &verdict);
    return verdict;
  }

  const v1::GenerateRequest request_ = MakeRequest(7, 20, 30);
  ClientLog log_;
};

TEST_F(CheckLogTest, AcceptsThePlainText) {
  EXPECT_THAT(Judge().problems, IsEmpty());
}

TEST_F(CheckLogTest, SeesAWrongToken) {
  log_.tokens[12] += 1;
  EXPECT_EQ(Judge().wrong, 1);
  EXPECT_FALSE(Judge(/*whole=*/false).ok());
}

TEST_F(CheckLogTest, SeesWhatIsMissing) {
  log_.tokens.pop_back();
  EXPECT_EQ(Judge().lost, 1);
  EXPECT_FALSE(Judge(/*whole=*/false).ok());
  // A client that was struck was not told of the end.
  log_.finished = false;
  log_.end.clear();
  EXPECT_TRUE(Judge(/*whole=*/false).ok());
  EXPECT_FALSE(Judge().ok());
}

TEST_F(CheckLogTest, SeesGapsAndRepetitions) {
  log_.lost = 2;
  EXPECT_EQ(Judge().lost, 2);
  EXPECT_FALSE(Judge().ok());
  log_.lost = 0;
  log_.doubled = 1;
  EXPECT_EQ(Judge().doubled, 1);
  EXPECT_FALSE(Judge().ok());
}

TEST_F(CheckLogTest, SeesAnError) {
  log_.end = "UNAVAILABLE: gone";
  EXPECT_FALSE(Judge().ok());
}

TEST(FaultTableTest, TellsWhatFailedAndWhatWasLeftOut) {
  Outcome good = {{Target::kVerifier, Fault::kKill, Phase::kPrefill}, {}};
  Outcome bad = {{Target::kVerifier, Fault::kKill, Phase::kVerify}, {}};
  bad.verdict.wrong = 3;
  bad.verdict.problems = {"wrong"};
  const std::string table = MakeTable({good, bad}, 9);
  EXPECT_THAT(table, HasSubstr("1 of 2 cells survived: wrong tokens 3"));
  EXPECT_THAT(table, HasSubstr("seed 9"));
  EXPECT_THAT(table,
              HasSubstr("| verifier | kill | – | – | ok | – | FAILED |"));
  EXPECT_THAT(table, HasSubstr("- client/*/join: A client does not join."));
}

}  // namespace
}  // namespace specwire::faults
