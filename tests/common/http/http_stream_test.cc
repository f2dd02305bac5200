// SPDX-License-Identifier: Apache-2.0

// Answers that are streamed, and clients that go meanwhile.

#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/http/metrics_routes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/http/http_client.h"

namespace specwire {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

HttpResponse Streamed(std::function<void(HttpStream*)> stream) {
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.stream = std::move(stream);
  return response;
}

constexpr char kRequest[] = "GET /s HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(HttpStreamTest, PartsArriveAsTheyAreWritten) {
  HttpServer server{HttpServerOptions()};
  absl::Notification seen;
  server.Handle("/s", [&](const HttpRequest&) {
    return Streamed([&](HttpStream* out) {
      EXPECT_TRUE(out->Write("one"));
      EXPECT_TRUE(out->Write(""));
      seen.WaitForNotification();
      EXPECT_TRUE(out->Write("two"));
    });
  });
  ASSERT_TRUE(server.Start().ok());
  const int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  EXPECT_THAT(ReceiveUntil(fd, "\r\n\r\n"), HasSubstr("text/event-stream"));
  EXPECT_EQ(ReceiveUntil(fd, "one"), "3\r\none");
  seen.Notify();
  EXPECT_THAT(ReceiveUntil(fd, "0\r\n\r\n"), EndsWith("two\r\n0\r\n\r\n"));
  // The connection takes the next request.
  SendAll(fd, "GET /none HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(ReceiveAll(fd), StartsWith("HTTP/1.1 404 "));
  close(fd);
}

TEST(HttpStreamTest, OldClientsGetTheBodyWithoutChunks) {
  HttpServer server{HttpServerOptions()};
  server.Handle("/s", [&](const HttpRequest&) {
    return Streamed([](HttpStream* out) {
      out->Write("one");
      out->Write("two");
    });
  });
  ASSERT_TRUE(server.Start().ok());
  const std::string answer = Exchange(
      server.port(), "GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_EQ(BodyOf(answer), "onetwo");
}

TEST(HttpStreamTest, HeadDoesNotRunTheStream) {
  HttpServer server{HttpServerOptions()};
  std::atomic<bool> ran = false;
  server.Handle("/s", [&](const HttpRequest&) {
    return Streamed([&](HttpStream*) { ran = true; });
  });
  ASSERT_TRUE(server.Start().ok());
  EXPECT_THAT(
      Exchange(server.port(), "HEAD /s HTTP/1.1\r\nConnection: close\r\n\r\n"),
      StartsWith("HTTP/1.1 200 "));
  EXPECT_FALSE(ran);
}

// A handler that waits until its client has gone, then tells so.
struct Waiting {
  absl::Notification started;
  absl::Notification gone;

  HttpResponse operator()(const HttpRequest& request) {
    absl::Notification told;
    const auto watch = request.client->OnGone([&] { told.Notify(); });
    started.Notify();
    told.WaitForNotification();
    gone.Notify();
    return HttpResponse();
  }
};

TEST(HttpStreamTest, HandlersAreToldOfAClientThatHangsUp) {
  HttpServer server{HttpServerOptions()};
  Waiting waiting;
  server.Handle("/s",
                [&](const HttpRequest& request) { return waiting(request); });
  ASSERT_TRUE(server.Start().ok());
  const int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  waiting.started.WaitForNotification();
  close(fd);
  waiting.gone.WaitForNotification();
}

TEST(HttpStreamTest, AClientThatClosesItsSideCountsAsGoneOnceItsAnswerIsMade) {
  HttpServer server{HttpServerOptions()};
  Waiting waiting;
  server.Handle("/s",
                [&](const HttpRequest& request) { return waiting(request); });
  server.Handle("/a", [](const HttpRequest&) {
    HttpResponse response;
    response.body = "whole";
    return response;
  });
  ASSERT_TRUE(server.Start().ok());
  int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  waiting.started.WaitForNotification();
  shutdown(fd, SHUT_WR);
  waiting.gone.WaitForNotification();
  // It still gets what there is to say.
  EXPECT_THAT(ReceiveAll(fd), StartsWith("HTTP/1.1 200 "));
  close(fd);
  fd = DialLoopback(server.port());
  SendAll(fd, "GET /a HTTP/1.1\r\n\r\n");
  shutdown(fd, SHUT_WR);
  EXPECT_THAT(ReceiveAll(fd), EndsWith("whole"));
  close(fd);
}

TEST(HttpStreamTest, StopTellsHandlers) {
  HttpServer server{HttpServerOptions()};
  Waiting waiting;
  server.Handle("/s",
                [&](const HttpRequest& request) { return waiting(request); });
  ASSERT_TRUE(server.Start().ok());
  const int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  waiting.started.WaitForNotification();
  server.Stop();
  EXPECT_TRUE(waiting.gone.HasBeenNotified());
  close(fd);
}

TEST(HttpStreamTest, WritesToAClientThatHasGoneFail) {
  HttpServer server{HttpServerOptions()};
  absl::Notification failed;
  server.Handle("/s", [&](const HttpRequest&) {
    return Streamed([&](HttpStream* out) {
      while (out->Write("something")) {
      }
      failed.Notify();
    });
  });
  ASSERT_TRUE(server.Start().ok());
  const int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  ReceiveUntil(fd, "something");
  close(fd);
  failed.WaitForNotification();
}

TEST(HttpStreamTest, AClientThatReadsNothingIsGivenUp) {
  HttpServerOptions options;
  options.timeout = absl::Milliseconds(200);
  HttpServer server(options);
  absl::Notification failed;
  server.Handle("/s", [&](const HttpRequest&) {
    return Streamed([&](HttpStream* out) {
      const std::string much(1 << 20, 'x');
      while (out->Write(much)) {
      }
      failed.Notify();
    });
  });
  ASSERT_TRUE(server.Start().ok());
  const int fd = DialLoopback(server.port());
  SendAll(fd, kRequest);
  failed.WaitForNotification();
  close(fd);
}

TEST(HttpStreamTest, ManyStreamsLeaveRoomForHealth) {
  HttpServerOptions options;
  options.max_connections = 100;
  options.max_slow_requests = 80;
  HttpServer server(options);
  MetricsRegistry registry;
  AddMetricsRoutes(&server, &registry, [] {
    return HealthReport{true, true, "{}"};
  });
  absl::Notification end;
  std::atomic<int> running = 0;
  HttpRoute route;
  route.path = "/s";
  route.slow = true;
  route.handler = [&](const HttpRequest&) {
    return Streamed([&](HttpStream* out) {
      out->Write("begun");
      ++running;
      end.WaitForNotification();
    });
  };
  server.Handle(route);
  ASSERT_TRUE(server.Start().ok());
  std::vector<int> clients;
  for (int i = 0; i < 80; ++i) {
    clients.push_back(DialLoopback(server.port()));
    SendAll(clients.back(), kRequest);
  }
  for (const int fd : clients) ReceiveUntil(fd, "begun");
  EXPECT_EQ(running, 80);
  const std::string refused = Get(server.port(), "/s");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refused, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(Get(server.port(), "/health"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get(server.port(), "/metrics"), StartsWith("HTTP/1.1 200 "));
  end.Notify();
  for (const int fd : clients) {
    EXPECT_THAT(ReceiveUntil(fd, "0\r\n\r\n"), EndsWith("0\r\n\r\n"));
    close(fd);
  }
  // Their places are free again.
  EXPECT_THAT(Get(server.port(), "/s"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace specwire
