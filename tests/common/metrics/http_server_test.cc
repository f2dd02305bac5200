// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/loopback_socket.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Sends raw bytes and returns all that comes back until the end.
std::string Exchange(int port, const std::string& bytes) {
  const int fd = DialLoopback(port);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count =
        send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  std::string answer;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  return answer;
}

std::string Get(int port, const std::string& target) {
  return Exchange(port,
                  absl::StrCat("GET ",
                               target,
                               " HTTP/1.1\r\nHost: x\r\nX-Name: Value\r\n"
                               "Connection: close\r\n\r\n"));
}

TEST(HttpServerTest, ServesMetricsAndHealth) {
  MetricsRegistry registry;
  registry.AddCounter("a_total", "A.")->Increment();
  std::atomic<bool> healthy = true;
  HttpServer server{HttpServerOptions()};
  AddMetricsRoutes(&server, &registry, [&] {
    return HealthReport{healthy, healthy ? "{\"ok\":true}" : "{\"ok\":false}"};
  });
  ASSERT_TRUE(server.Start().ok());
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(server.address(), absl::StrCat("127.0.0.1:", server.port()));

  const std::string metrics = Get(server.port(), "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(metrics, HasSubstr("text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_THAT(metrics, HasSubstr("\r\n\r\n# HELP a_total A.\n"));

  std::string health = Get(server.port(), "/health");
  EXPECT_THAT(health, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(health, HasSubstr("application/json"));
  EXPECT_THAT(health, HasSubstr("{\"ok\":true}"));
  healthy = false;
  health = Get(server.port(), "/health");
  EXPECT_THAT(health, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(health, HasSubstr("{\"ok\":false}"));
}

TEST(HttpServerTest, HandlersSeeTheRequest) {
  HttpServer server{HttpServerOptions()};
  server.Handle("POST", "/v1/echo", [](const HttpRequest& request) {
    HttpResponse response;
    response.status = 201;
    response.body = absl::StrCat(request.method,
                                 " ",
                                 request.path,
                                 " ",
                                 request.query.at("q"),
                                 " ",
                                 request.headers.at("x-name"),
                                 " ",
                                 request.body);
    return response;
  });
  ASSERT_TRUE(server.Start().ok());
  const std::string answer =
      Exchange(server.port(),
               "POST /v1/echo?q=a%20b HTTP/1.1\r\nHost: x\r\nX-Name: Value\r\n"
               "Content-Length: 4\r\nConnection: close\r\n\r\nbody");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 201 "));
  EXPECT_THAT(answer, HasSubstr("POST /v1/echo a b Value body"));
}

TEST(HttpServerTest, PathsAreNoPatterns) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a.b", [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_TRUE(server.Start().ok());
  EXPECT_THAT(Get(server.port(), "/a.b"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get(server.port(), "/axb"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server.port(), "/a.b/c"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server.port(), "/"), StartsWith("HTTP/1.1 404 "));
}

TEST(HttpServerTest, RefusesBodiesBeyondTheLimit) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  HttpServer server(options);
  bool called = false;
  server.Handle("POST", "/p", [&](const HttpRequest&) {
    called = true;
    return HttpResponse();
  });
  ASSERT_TRUE(server.Start().ok());
  EXPECT_THAT(
      Exchange(server.port(),
               absl::StrCat("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: "
                            "101\r\nConnection: close\r\n\r\n",
                            std::string(101, 'x'))),
      StartsWith("HTTP/1.1 413 "));
  EXPECT_FALSE(called);
}

TEST(HttpServerTest, SurvivesGarbage) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_TRUE(server.Start().ok());
  Exchange(server.port(), "\x16\x03\x01 not http at all\r\n\r\n");
  Exchange(
      server.port(),
      absl::StrCat("GET /", std::string(100000, 'a'), " HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(Get(server.port(), "/a"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServerTest, SaysThatThePortIsTaken) {
  HttpServer first{HttpServerOptions()};
  ASSERT_TRUE(first.Start().ok());
  HttpServerOptions options;
  options.listen = first.address();
  HttpServer second(options);
  EXPECT_EQ(
      second.Start(),
      absl::UnavailableError(absl::StrCat(
          "cannot listen on ", first.address(), ": address already in use")));
}

TEST(HttpServerTest, RefusesAMalformedAddress) {
  HttpServerOptions options;
  options.listen = "8080";
  HttpServer server(options);
  EXPECT_EQ(server.Start().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HttpServerTest, StopsPromptlyWithIdleConnections) {
  HttpServer server{HttpServerOptions()};
  ASSERT_TRUE(server.Start().ok());
  std::vector<int> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(DialLoopback(server.port()));
  const absl::Time start = absl::Now();
  server.Stop();
  server.Stop();
  EXPECT_LT(absl::Now() - start, absl::Seconds(8));
  for (const int fd : idle) close(fd);
}

TEST(HttpServerTest, CanBeDestroyedUnstarted) {
  HttpServer server{HttpServerOptions()};
  server.Stop();
}

}  // namespace
}  // namespace specwire
