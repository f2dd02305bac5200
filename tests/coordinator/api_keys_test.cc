// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_keys.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Digest(const std::string& key) {
  Sha256 sha;
  sha.Update(key);
  return sha.FinishHex();
}

class ApiKeysTest : public testing::Test {
 protected:
  ApiKeysTest()
      : path_(
            (std::filesystem::path(testing::TempDir()) /
             absl::StrCat(
                 "keys-",
                 testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string()) {}
  ~ApiKeysTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
  }
  // By another file in its place, as an editor does.
  void Replace(const std::string& text) {
    std::ofstream(path_ + ".new", std::ios::trunc) << text;
    std::filesystem::rename(path_ + ".new", path_);
  }

  std::unique_ptr<ApiKeys> MustLoad(const std::string& text) {
    Write(text);
    auto keys = ApiKeys::Load(path_);
    EXPECT_TRUE(keys.ok()) << keys.status();
    return *std::move(keys);
  }
  absl::Status LoadError(const std::string& text) {
    Write(text);
    return ApiKeys::Load(path_).status();
  }

  const std::string path_;
};

TEST_F(ApiKeysTest, TakesTheKeysOfTheFileAndNoOthers) {
  const auto keys = MustLoad(absl::StrCat("# users\n\n",
                                          Digest("first"),
                                          "\n  ",
                                          Digest("second"),
                                          "  anna # x\n"));
  EXPECT_EQ(keys->size(), 2u);
  EXPECT_TRUE(keys->Check("Bearer first").ok());
  EXPECT_TRUE(keys->Check("bearer second").ok());
  for (const std::string& wrong : {std::string(),
                                   std::string("Bearer"),
                                   std::string("Bearer "),
                                   std::string("Bearer firs"),
                                   std::string("Bearer first1"),
                                   std::string("Basic first"),
                                   std::string("first"),
                                   absl::StrCat("Bearer ", Digest("first")),
                                   std::string("Bearer anna")}) {
    const absl::Status status = keys->Check(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << wrong;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("first")));
  }
}

TEST_F(ApiKeysTest, UpperCaseDigitsAreDigits) {
  std::string digest = Digest("key");
  for (char& c : digest) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(MustLoad(digest)->Check("Bearer key").ok());
}

TEST_F(ApiKeysTest, AFileWithoutKeysLetsNobodyIn) {
  EXPECT_FALSE(MustLoad("# none yet\n")->Check("Bearer ").ok());
}

TEST_F(ApiKeysTest, RefusesMalformedLinesByTheirNumber) {
  for (const std::string& line :
       {std::string("secret-key-itself"),
        Digest("a").substr(1),
        absl::StrCat(Digest("a"), "0"),
        absl::StrCat(Digest("a").substr(0, 63), "g")}) {
    const absl::Status status =
        LoadError(absl::StrCat(Digest("ok"), "\n", line, "\n"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2"));
    // Somebody may have put the key there.
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(line)));
  }
}

TEST_F(ApiKeysTest, RefusesFilesThatAreTooLargeOrAbsent) {
  EXPECT_THAT(std::string(LoadError(std::string((1 << 20) + 1, '#')).message()),
              HasSubstr("larger than"));
  std::string many;
  for (int i = 0; i < 4097; ++i) absl::StrAppend(&many, Digest("x"), "\n");
  EXPECT_THAT(std::string(LoadError(many).message()), HasSubstr("more than"));
  EXPECT_THAT(std::string(ApiKeys::Load("/no/such").status().message()),
              HasSubstr("cannot read /no/such"));
  EXPECT_FALSE(ApiKeys::Load(testing::TempDir()).ok());
}

TEST_F(ApiKeysTest, AChangedFileIsReadAgain) {
  const auto keys = MustLoad(Digest("old"));
  keys->Refresh();
  EXPECT_TRUE(keys->Check("Bearer old").ok());
  Replace(Digest("new"));
  keys->Refresh();
  EXPECT_FALSE(keys->Check("Bearer old").ok());
  EXPECT_TRUE(keys->Check("Bearer new").ok());
}

TEST_F(ApiKeysTest, AFileThatTurnsBadChangesNothing) {
  const auto keys = MustLoad(Digest("old"));
  Replace("nonsense");
  keys->Refresh();
  EXPECT_TRUE(keys->Check("Bearer old").ok());
  std::filesystem::remove(path_);
  keys->Refresh();
  EXPECT_TRUE(keys->Check("Bearer old").ok());
  Replace(Digest("new"));
  keys->Refresh();
  EXPECT_TRUE(keys->Check("Bearer new").ok());
}

}  // namespace
}  // namespace specwire::coordinator
