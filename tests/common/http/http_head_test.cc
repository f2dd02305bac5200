// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_head.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

TEST(HttpHeadTest, ValuesAreAsSent) {
  const auto headers = ParseHeaders(
      "GET /a HTTP/1.1\r\nHost: %6cocalhost\r\nA:\r\nb:\t x y \t\r\na: \xc3\xa4"
      "\r\n\r\n");
  ASSERT_TRUE(headers.has_value());
  EXPECT_EQ(*headers,
            (Headers{{"Host", "%6cocalhost"},
                     {"A", ""},
                     {"b", "x y"},
                     {"a", "\xc3\xa4"}}));
  EXPECT_EQ(ParseHeaders("GET / HTTP/1.1\r\n\r\n"), Headers());
}

TEST(HttpHeadTest, RefusesWhatOthersMayReadOtherwise) {
  for (const std::string& line :
       {std::string("Transfer-Encoding : chunked\r\n"),
        std::string("Transfer-Encoding\t: chunked\r\n"),
        std::string("Transfer-Encoding: chunked\n"),
        std::string("Transfer-Encoding:\r\n chunked\r\n"),
        std::string(" Transfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding\0: chunked\r\n", 29),
        std::string("X: a\0b\r\n", 8),
        std::string("X: y\rTransfer-Encoding: chunked\r\n"),
        std::string("no colon\r\n"),
        std::string(": empty\r\n"),
        std::string("a b: c\r\n")}) {
    EXPECT_FALSE(ParseHeaders(absl::StrCat("POST / HTTP/1.1\r\n", line, "\r\n"))
                     .has_value())
        << line;
  }
  EXPECT_FALSE(ParseHeaders("").has_value());
  EXPECT_FALSE(ParseHeaders("GET / HTTP/1.1\r\nA: b\r\n").has_value());
  EXPECT_FALSE(ParseHeaders("GET / HTTP/1.1\n\r\n\r\n").has_value());
}

TEST(HttpHeadTest, TakesTheHostOutOfTheRequestLine) {
  const auto take = [](const std::string& line) {
    std::string head = absl::StrCat(line, "\r\nHost: a\r\n\r\n");
    std::optional<std::string> host;
    if (!TakeTargetHost(&head, &host)) return std::string("malformed");
    return absl::StrCat(
        host.value_or("none"), " ", head.substr(0, head.find('\r')));
  };
  EXPECT_EQ(take("GET http://b/c HTTP/1.1"), "b GET /c HTTP/1.1");
  EXPECT_EQ(take("GET HTTPS://[::1]:80/c?d HTTP/1.1"),
            "[::1]:80 GET /c?d HTTP/1.1");
  EXPECT_EQ(take("GET http://b HTTP/1.1"), "b GET / HTTP/1.1");
  EXPECT_EQ(take("GET http://b?c HTTP/1.1"), "b GET /?c HTTP/1.1");
  EXPECT_EQ(take("GET http://b"), "b GET /");
  EXPECT_EQ(take("GET /http://b HTTP/1.1"), "none GET /http://b HTTP/1.1");
  EXPECT_EQ(take("GET /c HTTP/1.1"), "none GET /c HTTP/1.1");
  EXPECT_EQ(take("GET"), "none GET");
  EXPECT_EQ(take(""), "none ");
  EXPECT_EQ(take("GET http:///c HTTP/1.1"), "malformed");
  EXPECT_EQ(take("GET http:// HTTP/1.1"), "malformed");
  EXPECT_EQ(take("GET http://u@b/c HTTP/1.1"), "malformed");
}

}  // namespace
}  // namespace specwire
