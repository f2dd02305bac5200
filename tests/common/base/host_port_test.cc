// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(HostPortTest, ParsesAndSpells) {
  for (const char* text :
       {"127.0.0.1:7070", "localhost:0", "[::1]:65535", "node-3.example:80"}) {
    const auto address = ParseHostPort(text, "listen");
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:1", "listen")->host, "::1");
}

TEST(HostPortTest, RefusesWhatIsNoAddress) {
  for (const char* text : {"",
                           "127.0.0.1",
                           ":7070",
                           "[]:1",
                           "host:",
                           "host:65536",
                           "host:-1",
                           "host:+1",
                           "host: 1",
                           "host:1x",
                           "host:000001",
                           "::1:7070",
                           "ho st:1",
                           "http://host:1",
                           "unix:/tmp/x:1"}) {
    const auto address = ParseHostPort(text, "--listen");
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("--listen"));
  }
  EXPECT_FALSE(ParseHostPort(std::string(300, 'a') + ":1", "x").ok());
}

TEST(HostPortTest, ParsesLists) {
  const auto list = ParseAddressList("a:1, [::1]:2", "--coordinator");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, testing::ElementsAre("a:1", "[::1]:2"));
}

TEST(HostPortTest, RefusesBadLists) {
  for (const char* text : {"", "a:1,", "a:0", "a:1,b", "a:1,a:1"}) {
    EXPECT_FALSE(ParseAddressList(text, "--coordinator").ok()) << text;
  }
  std::string many = "a:1";
  for (int i = 2; i <= 17; ++i) absl::StrAppend(&many, ",a:", i);
  EXPECT_THAT(
      std::string(ParseAddressList(many, "--coordinator").status().message()),
      HasSubstr("more than 16"));
}

TEST(HostPortTest, TargetsMayBeNames) {
  const auto targets =
      ParseTargetList("10.0.0.1:7070, dns:///nodes.example:7071", "list");
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_THAT(*targets,
              ElementsAre("10.0.0.1:7070", "dns:///nodes.example:7071"));
  EXPECT_EQ(NameOfTarget((*targets)[0]), std::nullopt);
  EXPECT_EQ(NameOfTarget((*targets)[1])->host, "nodes.example");
  EXPECT_EQ(NameOfTarget((*targets)[1])->port, 7071);
  for (const char* bad : {"dns:///nodes.example",
                          "dns:///:7070",
                          "dns:///a:0",
                          "dns://server/a:1",
                          "dns:///a:1,dns:///a:1"}) {
    EXPECT_EQ(ParseTargetList(bad, "list").status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
  // Clients have no use for them yet.
  EXPECT_FALSE(ParseAddressList("dns:///nodes.example:7071", "list").ok());
}

TEST(HostPortTest, AnAddressResolvesToItself) {
  EXPECT_THAT(*ResolveAddresses({"127.0.0.1", 7070}),
              ElementsAre("127.0.0.1:7070"));
  EXPECT_THAT(*ResolveAddresses({"::1", 7070}), ElementsAre("[::1]:7070"));
  EXPECT_THAT(*ResolveAddresses({"localhost", 7070}), Not(IsEmpty()));
  EXPECT_EQ(ResolveAddresses({"not a name", 7070}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(HostPortTest, KnowsLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.com", "127"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostPortTest, TellsThatAPortIsTaken) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const HostPort taken{"127.0.0.1", ntohs(address.sin_port)};
  EXPECT_EQ(
      CheckCanListen(taken),
      absl::UnavailableError(absl::StrCat(
          "cannot listen on ", taken.ToString(), ": address already in use")));
  close(fd);
  EXPECT_TRUE(CheckCanListen(taken).ok());
}

TEST(HostPortTest, TellsThatAnAddressIsNotHere) {
  EXPECT_EQ(CheckCanListen({"192.0.2.1", 7070}),
            absl::UnavailableError("cannot listen on 192.0.2.1:7070: cannot "
                                   "assign requested address"));
}

TEST(HostPortTest, PortZeroIsAlwaysFree) {
  EXPECT_TRUE(CheckCanListen({"127.0.0.1", 0}).ok());
  EXPECT_TRUE(CheckCanListen({"localhost", 0}).ok());
}

}  // namespace
}  // namespace specwire
