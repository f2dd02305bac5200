// SPDX-License-Identifier: Apache-2.0
#include "cli/client.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"

namespace specwire::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kVariable[] = "SPECWIRE_API_KEY";

class ClientKeyTest : public testing::Test {
 protected:
  ClientKeyTest() { unsetenv(kVariable); }
  ~ClientKeyTest() override {
    unsetenv(kVariable);
    std::filesystem::remove(path_);
  }

  ClientFlags WithFile(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    ClientFlags flags;
    flags.api_key_file = path_;
    return flags;
  }
  static std::string Error(const ClientFlags& flags) {
    const absl::Status status = MakeChannelOptions(flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string path_ =
      (std::filesystem::path(testing::TempDir()) / "client-key").string();
};

TEST_F(ClientKeyTest, ThereIsNoneByDefault) {
  const auto options = MakeChannelOptions({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->api_key, "");
  EXPECT_EQ(options->credentials, nullptr);
}

TEST_F(ClientKeyTest, AFileComesBeforeTheVariable) {
  setenv(kVariable, "from-variable", 1);
  EXPECT_EQ(MakeChannelOptions({})->api_key, "from-variable");
  EXPECT_EQ(MakeChannelOptions(WithFile("from-file\n"))->api_key, "from-file");
}

TEST_F(ClientKeyTest, RefusesWhatIsNoKeyWithoutRepeatingIt) {
  for (const std::string& text : {std::string(),
                                  std::string("\n"),
                                  std::string("two words"),
                                  std::string("k\xc3\xa9y"),
                                  std::string(513, 'k')}) {
    EXPECT_THAT(Error(WithFile(text)), HasSubstr("--api_key_file"));
  }
  setenv(kVariable, "two words", 1);
  EXPECT_THAT(Error({}), AllOf(HasSubstr(kVariable), Not(HasSubstr("two"))));
  ClientFlags absent;
  absent.api_key_file = "/no/such/file";
  EXPECT_THAT(Error(absent), HasSubstr("/no/such/file"));
}

TEST_F(ClientKeyTest, DoesNotTravelInTheClear) {
  ClientFlags flags = WithFile("canary");
  flags.coordinators = "127.0.0.1:1,10.0.0.1:2";
  EXPECT_THAT(Error(flags),
              AllOf(HasSubstr("10.0.0.1:2"),
                    HasSubstr("--tls_ca"),
                    HasSubstr("--allow_insecure"),
                    Not(HasSubstr("canary"))));
  flags.allow_insecure = true;
  EXPECT_TRUE(MakeChannelOptions(flags).ok());
  TestAuthority authority;
  flags.allow_insecure = false;
  flags.tls = authority.Root();
  const auto options = MakeChannelOptions(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_NE(options->credentials, nullptr);
  EXPECT_EQ(options->peer_name, kCoordinatorCertificate);
}

TEST_F(ClientKeyTest, FilesForTlsAreChecked) {
  ClientFlags flags;
  flags.tls.cert = "cert.pem";
  EXPECT_THAT(Error(flags), HasSubstr("--tls_key"));
}

}  // namespace
}  // namespace specwire::cli
