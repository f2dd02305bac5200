// SPDX-License-Identifier: Apache-2.0

// Clients that are slow, rude or many.

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/http/http_client.h"

namespace specwire {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

class HttpAbuseTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options) {
    server_ = std::make_unique<HttpServer>(std::move(options));
    server_->Handle("/a", [](const HttpRequest&) {
      HttpResponse response;
      response.body = "fine";
      return response;
    });
    server_->Handle(Post("/p", [](const HttpRequest& request) {
      HttpResponse response;
      response.body = absl::StrCat("got ", request.body.size(), " bytes");
      return response;
    }));
    ASSERT_TRUE(server_->Start().ok());
  }
  int port() const { return server_->port(); }
  std::string Status(const std::string& request) {
    const std::string answer = Exchange(port(), request);
    return answer.empty() ? "closed" : answer.substr(9, 3);
  }
  // Works for others.
  void ExpectAlive() { EXPECT_EQ(BodyOf(Get(port(), "/a")), "fine"); }

  std::unique_ptr<HttpServer> server_;
};

std::string Chunked(const std::string& body) {
  return absl::StrCat(
      "POST /p HTTP/1.1\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n",
      body);
}

TEST_F(HttpAbuseTest, EndlessHeadersAreRefused) {
  Start({});
  EXPECT_EQ(
      Status(absl::StrCat(
          "GET /a HTTP/1.1\r\nX: ", std::string(100'000, 'x'), "\r\n\r\n")),
      "431");
  std::string many = "GET /a HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&many, "X", i, ": y\r\n");
  EXPECT_EQ(Status(absl::StrCat(many, "\r\n")), "431");
  EXPECT_EQ(Status(absl::StrCat(
                "GET /", std::string(3'000, 'x'), " HTTP/1.1\r\n\r\n")),
            "414");
  EXPECT_EQ(Status(absl::StrCat(
                "GET /", std::string(9'000, 'x'), " HTTP/1.1\r\n\r\n")),
            "414");
  EXPECT_EQ(Status(std::string(1'000'000, 'x')), "431");
  EXPECT_EQ(Status(absl::StrCat(
                "GET /", std::string(1'000'000, 'x'), " HTTP/1.1\r\n\r\n")),
            "431");
  ExpectAlive();
}

TEST_F(HttpAbuseTest, SlowHeadsEnd) {
  HttpServerOptions options;
  options.timeout = absl::Milliseconds(300);
  Start(options);
  const int silent = DialLoopback(port());
  const int slow = DialLoopback(port());
  const absl::Time start = absl::Now();
  // A byte now and then does not help.
  std::string rest = "GET /a HTTP/1.1\r\n";
  while (absl::Now() < start + absl::Seconds(20)) {
    if (send(slow, rest.data(), 1, MSG_NOSIGNAL) <= 0) break;
    rest = rest.size() > 1 ? rest.substr(1) : "X";
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(ReceiveAll(silent), "");
  close(silent);
  close(slow);
  ExpectAlive();
}

TEST_F(HttpAbuseTest, SlowBodiesEnd) {
  HttpServerOptions options;
  options.body_timeout = absl::Milliseconds(300);
  Start(options);
  const int fd = DialLoopback(port());
  SendAll(fd,
          "POST /p HTTP/1.1\r\nContent-Type: application/json\r\n"
          "Content-Length: 1000\r\n\r\n{");
  EXPECT_THAT(ReceiveAll(fd), StartsWith("HTTP/1.1 400 "));
  close(fd);
  ExpectAlive();
}

TEST_F(HttpAbuseTest, ChunkedBodiesAreReadAndBounded) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  Start(options);
  EXPECT_THAT(Exchange(port(), Chunked("5\r\n12345\r\n3\r\n678\r\n0\r\n\r\n")),
              EndsWith("got 8 bytes"));
  std::string chunk = "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  EXPECT_EQ(Status(Chunked(chunk + "0\r\n\r\n")), "200");
  EXPECT_EQ(Status(Chunked(chunk + chunk + "0\r\n\r\n")), "413");
  std::string endless;
  for (int i = 0; i < 1000; ++i) endless += chunk;
  EXPECT_EQ(Status(Chunked(endless)), "413");
  ExpectAlive();
}

TEST_F(HttpAbuseTest, BadChunksAreRefused) {
  Start({});
  for (const char* body : {"nonsense\r\n",
                           "ffffffffffffffff\r\nx\r\n",
                           "5\r\n123",
                           "5\r\n1234567\r\n0\r\n\r\n",
                           "0\r\nTrailer: x\r\n\r\n"}) {
    const int fd = DialLoopback(port());
    SendAll(fd, Chunked(body));
    shutdown(fd, SHUT_WR);
    const std::string answer = ReceiveAll(fd);
    EXPECT_THAT(answer, MatchesRegex("HTTP/1.1 4(00|13) (.|\n|\r)*")) << body;
    close(fd);
  }
  ExpectAlive();
}

TEST_F(HttpAbuseTest, AmbiguousBodiesAreRefused) {
  Start({});
  const std::string type = "Content-Type: application/json\r\n";
  const std::string post = "POST /p HTTP/1.1\r\n" + type;
  // Without a length there is no body.
  EXPECT_EQ(Status(post + "\r\n"), "200");
  EXPECT_EQ(Status(post + "Content-Length: -1\r\n\r\n"), "400");
  EXPECT_EQ(Status(post + "Content-Length: 0x5\r\n\r\n12345"), "400");
  EXPECT_EQ(Status(post + "Content-Length: 99999999999999999999\r\n\r\n"),
            "400");
  EXPECT_EQ(Status(post + "Content-Length: 9999999999\r\n\r\n"), "413");
  EXPECT_EQ(
      Status(post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456"),
      "400");
  EXPECT_EQ(Status(post + "Content-Length: 5\r\nTransfer-Encoding: "
                          "chunked\r\n\r\n0\r\n\r\n"),
            "400");
  EXPECT_EQ(Status(post + "Transfer-Encoding: gzip, chunked\r\n\r\n"), "501");
  EXPECT_EQ(Status("GET /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345"), "400");
  EXPECT_EQ(Status(post + "Expect: 100-continue\r\nContent-Length: "
                          "9999999999\r\n\r\n"),
            "413");
  ExpectAlive();
}

TEST_F(HttpAbuseTest, HeadersThatOthersMayReadOtherwiseAreRefused) {
  Start({});
  const std::string post =
      "POST /p HTTP/1.1\r\nContent-Type: application/json\r\n";
  const std::string body = "GET /a HTTP/1.1\r\n\r\n";
  const std::string length = absl::StrCat("Content-Length: ", body.size());
  EXPECT_EQ(Status(absl::StrCat(post, length, "\r\n\r\n", body)), "200");
  for (const char* line : {"Transfer-Encoding : chunked\r\n",
                           "Transfer-Encoding: chunked\n",
                           "Transfer-Encoding:\r\n chunked\r\n",
                           "X: y\rTransfer-Encoding: chunked\r\n",
                           "Host: a\r\nHost: b\r\n",
                           "no colon\r\n"}) {
    const std::string answer = Exchange(
        port(), absl::StrCat(post, length, "\r\n", line, "\r\n", body));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << line;
    // Nothing of it is taken for another request.
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << line;
  }
  EXPECT_EQ(Status(post + "Content-Length: %35\r\n\r\n12345"), "400");
  ExpectAlive();
}

TEST(HttpAdmitTest, WhoIsNotLetInNeedNotSendTheBody) {
  HttpServer server({});
  HttpRoute route;
  route.method = "POST";
  route.path = "/p";
  route.admit = [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.Header("authorization") == "yes") return std::nullopt;
    return HttpError(401, "no");
  };
  route.handler = [](const HttpRequest& request) {
    HttpResponse answer;
    answer.body = request.body;
    return answer;
  };
  server.Handle(std::move(route));
  ASSERT_TRUE(server.Start().ok());
  const std::string post =
      "POST /p HTTP/1.1\r\nContent-Type: application/json\r\n";
  // The answer comes although the body has not ended, and ends the connection.
  EXPECT_THAT(Exchange(server.port(),
                       post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
              StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(
      Exchange(server.port(), post + "Content-Length: 8000000\r\n\r\n{"),
      StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Exchange(server.port(),
                       post + "Authorization: yes\r\nConnection: close\r\n"
                              "Content-Length: 2\r\n\r\n{}"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpAbuseTest, WhatIsLeftOfARefusedRequestIsNoRequest) {
  Start({});
  const std::string answer = Exchange(
      port(),
      "GET /a HTTP/1.1\r\nContent-Length: 50\r\n\r\nGET /a HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("fine")));
}

TEST_F(HttpAbuseTest, PipelinedRequestsAreAnsweredInOrder) {
  Start({});
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += PostText("/p", std::string(i, ' '));
  absl::StrAppend(&requests, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  std::string answers = Exchange(port(), requests);
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = answers.find(absl::StrFormat("got %d bytes", i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_THAT(answers, EndsWith("fine"));
}

TEST_F(HttpAbuseTest, TwoHundredConnectionsAreServedAndMakeRoom) {
  HttpServerOptions options;
  options.max_connections = 100;
  Start(options);
  std::vector<int> fds;
  for (int i = 0; i < 200; ++i) {
    fds.push_back(DialLoopback(port()));
    if (i % 10 == 0) {
      // One that asks, in the middle of all that are silent.
      SendAll(fds.back(), "GET /a HTTP/1.1\r\n\r\n");
      EXPECT_THAT(ReceiveUntil(fds.back(), "fine"), HasSubstr("200 OK")) << i;
    }
    ExpectAlive();
  }
  for (const int fd : fds) close(fd);
  ExpectAlive();
}

TEST_F(HttpAbuseTest, WhoMakesRoomBeforeItIsAnsweredIsToldSo) {
  HttpServerOptions options;
  options.max_connections = 1;
  Start(options);
  const int first = DialLoopback(port());
  // A part of a request.
  SendAll(first, "GET /a HTT");
  // Until the first has a thread it cannot make room.
  while (BodyOf(Get(port(), "/a")) != "fine") {
  }
  const std::string told = ReceiveAll(first);
  EXPECT_THAT(told, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(told, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(told, HasSubstr("as many connections as it can"));
  close(first);
}

TEST_F(HttpAbuseTest, WhoReadsNothingMakesRoom) {
  HttpServerOptions options;
  options.max_connections = 8;
  // Not what ends them here.
  options.timeout = absl::Minutes(5);
  server_ = std::make_unique<HttpServer>(options);
  server_->Handle("/large", [](const HttpRequest&) {
    HttpResponse response;
    response.body = std::string(16 << 20, 'x');
    return response;
  });
  server_->Handle("/a", [](const HttpRequest&) {
    HttpResponse response;
    response.body = "fine";
    return response;
  });
  ASSERT_TRUE(server_->Start().ok());
  std::vector<int> fds;
  for (int i = 0; i < 16; ++i) {
    fds.push_back(DialLoopback(port()));
    SendAll(fds.back(), "GET /large HTTP/1.1\r\n\r\n");
  }
  // They hold all places, and go, the oldest first, once they have taken
  // nothing for a moment.
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  for (int i = 0; i < 4; ++i) {
    while (BodyOf(Get(port(), "/a")) != "fine" && absl::Now() < deadline) {
    }
    EXPECT_LT(absl::Now(), deadline);
  }
  for (const int fd : fds) close(fd);
}

TEST(HttpBodiesTest, LargeBodiesAreBoundedTogether) {
  constexpr size_t kLarge = 2 << 20;
  HttpServerOptions options;
  options.max_bodies_bytes = 3 << 20;
  HttpServer server(options);
  absl::Notification held;
  absl::Notification go_on;
  absl::Notification dropped;
  server.Handle(Post("/hold", [&](HttpRequest& request) {
    held.Notify();
    go_on.WaitForNotification();
    request.DropBody();
    dropped.Notify();
    return HttpResponse();
  }));
  server.Handle(Post("/p", [](const HttpRequest& request) {
    HttpResponse response;
    response.body = absl::StrCat("got ", request.body.size(), " bytes");
    return response;
  }));
  ASSERT_TRUE(server.Start().ok());
  const auto post = [&](const char* path, size_t size) {
    return Exchange(
        server.port(),
        PostText(path, std::string(size, 'x'), "Connection: close\r\n"));
  };
  std::string first;
  std::thread thread([&] { first = post("/hold", kLarge); });
  held.WaitForNotification();
  const std::string refused = post("/p", kLarge);
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused, HasSubstr("3145728 bytes"));
  // Small ones are let in in any case.
  EXPECT_THAT(post("/p", kSmallBodyBytes), EndsWith("got 65536 bytes"));
  go_on.Notify();
  dropped.WaitForNotification();
  EXPECT_THAT(post("/p", kLarge), EndsWith("got 2097152 bytes"));
  thread.join();
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpAbuseTest, PrefersNothingThatWasSentInGarbage) {
  Start({});
  for (const char* bytes : {"\r\n\r\n",
                            "GET\r\n\r\n",
                            "GET /a HTTP/9.9\r\n\r\n",
                            "BREW /a HTTP/1.1\r\n\r\n",
                            "GET /a%zz%00%ff HTTP/1.1\r\n\r\n",
                            "GET /a HTTP/1.1\r\nRange: bytes=x-\r\n\r\n",
                            "GET /a HTTP/1.1\r\nNoColon\r\n\r\n",
                            "\x16\x03\x01\x02\x00\x01\x00"}) {
    const int fd = DialLoopback(port());
    SendAll(fd, bytes);
    shutdown(fd, SHUT_WR);
    EXPECT_THAT(ReceiveAll(fd), Not(HasSubstr("HTTP/1.1 5"))) << bytes;
    close(fd);
  }
  ExpectAlive();
}

}  // namespace
}  // namespace specwire
