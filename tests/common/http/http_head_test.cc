// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_head.h"

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

}  // namespace
}  // namespace specwire
