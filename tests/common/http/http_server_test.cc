// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/metrics_routes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/http/http_client.h"
#include "tests/testing/loopback_socket.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(HttpServerTest, ServesMetricsAndHealth) {
  MetricsRegistry registry;
  registry.AddCounter("a_total", "A.")->Increment();
  std::atomic<bool> healthy = true;
  std::atomic<bool> ready = false;
  HttpServer server{HttpServerOptions()};
  AddMetricsRoutes(&server, &registry, [&] {
    return HealthReport{.healthy = healthy,
                        .ready = ready,
                        .json = healthy ? "{\"ok\":true}" : "{\"ok\":false}"};
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
  EXPECT_THAT(Get(server.port(), "/ready"), StartsWith("HTTP/1.1 503 "));
  ready = true;
  EXPECT_THAT(Get(server.port(), "/ready"), StartsWith("HTTP/1.1 200 "));
  healthy = false;
  health = Get(server.port(), "/health");
  EXPECT_THAT(health, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(health, HasSubstr("{\"ok\":false}"));
}

TEST(HttpServerTest, TargetsMayNameTheHost) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest& request) {
    HttpResponse response;
    response.body = absl::StrCat(
        request.Header("host"),
        " ",
        request.query.count("q") == 0 ? "" : request.query.at("q"));
    return response;
  });
  ASSERT_TRUE(server.Start().ok());
  const auto get = [&](const char* target) {
    return Get(server.port(), target);
  };
  EXPECT_EQ(BodyOf(get("http://other:80/a?q=1")), "other:80 1");
  EXPECT_EQ(BodyOf(get("HTTPS://other/a")), "other ");
  EXPECT_THAT(get("http://other"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("http:///a"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(get("http://anna@other/a"), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpServerTest, MessagesOfErrorsDoNothing) {
  const std::string body =
      HttpError(400, "a\u202eb\u2066c\x1b[2Jd\xff \u00e4\n").body;
  const auto json = nlohmann::json::parse(body, nullptr, false);
  ASSERT_TRUE(json.is_object()) << body;
  EXPECT_EQ(json["error"]["message"],
            "a\\u202eb\\u2066c\\x1b[2Jd\\xff \u00e4\n");
  EXPECT_EQ(HttpError(400, "a", "b\u202e").body.find("\u202e"),
            std::string::npos);
  HttpServer server{HttpServerOptions()};
  ASSERT_TRUE(server.Start().ok());
  const std::string told = Get(server.port(), "/x%E2%80%AEy");
  EXPECT_THAT(told, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(told, Not(HasSubstr("\u202e")));
}

TEST(HttpServerTest, HandlersSeeTheRequest) {
  HttpServer server{HttpServerOptions()};
  server.Handle(Post("/v1/echo", [](const HttpRequest& request) {
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
  }));
  ASSERT_TRUE(server.Start().ok());
  const std::string answer =
      Exchange(server.port(),
               "POST /v1/echo?q=a%20b HTTP/1.1\r\nHost: x\r\nX-Name: Value\r\n"
               "Content-Type: application/json\r\nContent-Length: "
               "4\r\nConnection: close\r\n\r\nbody");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 201 "));
  EXPECT_THAT(answer, HasSubstr("POST /v1/echo a b Value body"));
}

TEST(HttpServerTest, SaysWhatIsNearAPathThatIsNotThere) {
  HttpServer server{HttpServerOptions()};
  for (const char* path : {"/v1/b", "/v1/a", "/v1/a/", "/c"}) {
    server.Handle(path, [](const HttpRequest&) { return HttpResponse(); });
  }
  ASSERT_TRUE(server.Start().ok());
  EXPECT_THAT(Get(server.port(), "/v1/x"),
              HasSubstr("there is nothing at /v1/x; there are /v1/a, /v1/a/, "
                        "/v1/b\""));
}

TEST(HttpServerTest, PartsOfAnswersAreNotOffered) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) {
    HttpResponse response;
    response.body = "whole";
    return response;
  });
  server.Handle(Post("/p", [](const HttpRequest& request) {
    HttpResponse response;
    response.body = request.body;
    return response;
  }));
  ASSERT_TRUE(server.Start().ok());
  for (const char* range : {"bytes=0-1", "bytes=9-", "lines=1-2", "nonsense"}) {
    const std::string headers =
        absl::StrCat("Connection: close\r\nrange: ", range, "\r\n");
    const std::string answer = Exchange(
        server.port(), absl::StrCat("GET /a HTTP/1.1\r\n", headers, "\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 ")) << range;
    EXPECT_EQ(BodyOf(answer), "whole") << range;
    EXPECT_EQ(BodyOf(Exchange(server.port(), PostText("/p", "{}", headers))),
              "{}")
        << range;
  }
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
  server.Handle(Post("/p", [&](const HttpRequest&) {
    called = true;
    return HttpResponse();
  }));
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

TEST(HttpServerTest, EveryAnswerHasTheSecurityHeadersAndNoneOfCors) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_TRUE(server.Start().ok());
  for (const char* path : {"/a", "/nothing"}) {
    const std::string answer = Get(server.port(), path);
    EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nReferrer-Policy: no-referrer\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
    EXPECT_THAT(
        answer,
        HasSubstr(absl::StrCat(
            "\r\nContent-Security-Policy: ", kContentSecurityPolicy, "\r\n")));
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
  }
}

TEST(HttpServerTest, ErrorsAreJsonObjects) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_TRUE(server.Start().ok());
  const auto error = nlohmann::json::parse(BodyOf(Get(server.port(), "/b")));
  EXPECT_EQ(error["error"]["type"], "not_found_error");
  EXPECT_EQ(error["error"]["message"], "there is nothing at /b");
  EXPECT_TRUE(error["error"]["param"].is_null());
  EXPECT_TRUE(error["error"]["code"].is_null());
}

TEST(HttpServerTest, OtherMethodsAreToldWhichOneThePathTakes) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) { return HttpResponse(); });
  server.Handle(Post("/p", [](const HttpRequest&) { return HttpResponse(); }));
  ASSERT_TRUE(server.Start().ok());
  const std::string get = Get(server.port(), "/p");
  EXPECT_THAT(get, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(get, HasSubstr("\r\nAllow: POST\r\n"));
  const std::string put =
      Exchange(server.port(), "PUT /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(put, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(put, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
}

TEST(HttpServerTest, ThePathThatFitsBestCounts) {
  HttpServer server{HttpServerOptions()};
  const auto say = [](const char* what) {
    return [what](const HttpRequest&) {
      HttpResponse response;
      response.body = what;
      return response;
    };
  };
  server.Handle({.path = "/", .prefix = true, .handler = say("root")});
  server.Handle({.path = "/v1/", .prefix = true, .handler = say("v1")});
  server.Handle({.path = "/v1/models", .handler = say("models")});
  server.Handle(Post("/v1/chat", say("chat")));
  ASSERT_TRUE(server.Start().ok());
  EXPECT_EQ(BodyOf(Get(server.port(), "/x")), "root");
  EXPECT_EQ(BodyOf(Get(server.port(), "/v1/models/a")), "v1");
  EXPECT_EQ(BodyOf(Get(server.port(), "/v1/models")), "models");
  EXPECT_THAT(Get(server.port(), "/v1/chat"), StartsWith("HTTP/1.1 405 "));
}

TEST(HttpServerTest, HeadHasTheHeadersAlone) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/a", [](const HttpRequest&) {
    HttpResponse response;
    response.body = "12345";
    return response;
  });
  ASSERT_TRUE(server.Start().ok());
  const std::string answer =
      Exchange(server.port(), "HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(BodyOf(answer), "");
}

TEST(HttpServerTest, PostTakesJsonAndNothingElse) {
  HttpServer server{HttpServerOptions()};
  server.Handle(Post("/p", [](const HttpRequest&) { return HttpResponse(); }));
  ASSERT_TRUE(server.Start().ok());
  const auto status = [&](const std::string& headers) {
    return Exchange(server.port(),
                    absl::StrCat("POST /p HTTP/1.1\r\n",
                                 headers,
                                 "Content-Length: 2\r\nConnection: "
                                 "close\r\n\r\n{}"))
        .substr(9, 3);
  };
  EXPECT_EQ(status("Content-Type: application/json\r\n"), "200");
  EXPECT_EQ(status("Content-Type: Application/JSON ; charset=utf-8\r\n"),
            "200");
  EXPECT_EQ(status(""), "415");
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), "415");
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"),
            "415");
  EXPECT_EQ(status("Content-Type: application/json\r\nContent-Encoding: "
                   "gzip\r\n"),
            "415");
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
