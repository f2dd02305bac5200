// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls_files.h"

#include <filesystem>
#include <fstream>

#include "common/rpc/server_security.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"

namespace specwire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Fails(const TlsFiles& files, const std::string& name = "") {
  const absl::Status status = CheckTlsFiles(files, true, name);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(TlsFilesTest, NoneAreRight) {
  EXPECT_TRUE(CheckTlsFiles({}, true, kNodeCertificate).ok());
  EXPECT_FALSE(TlsFiles().enabled());
}

TEST(TlsFilesTest, ACertificateWithItsNameIsRight) {
  TestAuthority authority;
  const TlsFiles files = authority.Issue(kNodeCertificate, "node");
  EXPECT_EQ(CheckTlsFiles(files, true, kNodeCertificate), absl::OkStatus());
  EXPECT_EQ(CheckTlsFiles(files, false, ""), absl::OkStatus());
  EXPECT_TRUE(files.enabled());
}

TEST(TlsFilesTest, AClientMayHaveTheRootAlone) {
  TestAuthority authority;
  EXPECT_EQ(CheckTlsFiles(authority.Root(), false, ""), absl::OkStatus());
  EXPECT_THAT(Fails(authority.Root()), HasSubstr("--tls_cert"));
}

TEST(TlsFilesTest, NamesTheFlagThatIsMissing) {
  TestAuthority authority;
  const TlsFiles files = authority.Issue(kNodeCertificate, "node");
  EXPECT_THAT(Fails({files.cert, "", files.ca}), HasSubstr("--tls_key"));
  EXPECT_THAT(Fails({"", files.key, files.ca}), HasSubstr("--tls_cert"));
  EXPECT_THAT(Fails({files.cert, files.key, ""}), HasSubstr("--tls_ca"));
}

TEST(TlsFilesTest, SaysWhichFileCannotBeRead) {
  TestAuthority authority;
  TlsFiles files = authority.Issue(kNodeCertificate, "node");
  files.key = "/no/such/file";
  EXPECT_THAT(Fails(files),
              HasSubstr("--tls_key: /no/such/file cannot be read"));
}

TEST(TlsFilesTest, RefusesWhatIsNoCertificateOrNoKey) {
  TestAuthority authority;
  const TlsFiles files = authority.Issue(kNodeCertificate, "node");
  std::ofstream(authority.Path("junk")) << "junk\n";
  EXPECT_THAT(Fails({authority.Path("junk"), files.key, files.ca}),
              HasSubstr("--tls_cert"));
  EXPECT_THAT(Fails({files.cert, files.cert, files.ca}),
              HasSubstr("--tls_key"));
  EXPECT_THAT(Fails({files.cert, files.key, files.key}), HasSubstr("--tls_ca"));
}

TEST(TlsFilesTest, RefusesAnothersKey) {
  TestAuthority authority;
  TlsFiles files = authority.Issue(kNodeCertificate, "node");
  files.key = authority.Issue(kNodeCertificate, "other").key;
  EXPECT_THAT(Fails(files), HasSubstr("is not the key of --tls_cert"));
}

TEST(TlsFilesTest, RefusesACertificateOfAnotherRoot) {
  TestAuthority authority;
  TestAuthority other;
  TlsFiles files = authority.Issue(kNodeCertificate, "node");
  files.ca = other.Root().ca;
  EXPECT_THAT(Fails(files), HasSubstr("is not accepted by --tls_ca"));
}

TEST(TlsFilesTest, RefusesAnExpiredCertificate) {
  TestAuthority authority;
  EXPECT_THAT(Fails(authority.Issue(
                  kNodeCertificate, "old", absl::Now() - absl::Hours(1))),
              HasSubstr("expired"));
}

TEST(TlsFilesTest, RefusesACertificateOfAnotherRole) {
  TestAuthority authority;
  EXPECT_THAT(
      Fails(authority.Issue(kNodeCertificate, "node"), kCoordinatorCertificate),
      HasSubstr("lacks the name specwire-coordinator"));
}

TEST(ServerSecurityTest, LoopbackNeedsNothing) {
  for (const char* listen : {"127.0.0.1:0", "[::1]:7070", "localhost:1"}) {
    EXPECT_TRUE(CheckServerSecurity({}, listen, kNodeCertificate).ok());
  }
}

TEST(ServerSecurityTest, OtherAddressesNeedTlsOrAWord) {
  for (const char* listen :
       {"0.0.0.0:0", "[::]:7070", "10.1.2.3:1", "host:1"}) {
    const absl::Status refused =
        CheckServerSecurity({}, listen, kNodeCertificate);
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr("--listen"),
                      HasSubstr("--tls_cert"),
                      HasSubstr("--allow_insecure")));
    ServerSecurity allowed;
    allowed.allow_insecure = true;
    EXPECT_TRUE(CheckServerSecurity(allowed, listen, kNodeCertificate).ok());
    TestAuthority authority;
    ServerSecurity tls;
    tls.tls = authority.Issue(kNodeCertificate, "node");
    EXPECT_TRUE(CheckServerSecurity(tls, listen, kNodeCertificate).ok());
    EXPECT_FALSE(
        CheckServerSecurity(tls, listen, kCoordinatorCertificate).ok());
  }
}

TEST(ServerSecurityTest, ConnectionsAreBounded) {
  for (const int count : {0, -1, (1 << 20) + 1}) {
    ServerSecurity security;
    security.max_connections = count;
    EXPECT_THAT(CheckServerSecurity(security, "127.0.0.1:0", "").message(),
                HasSubstr("--max_connections"));
  }
}

}  // namespace
}  // namespace specwire
