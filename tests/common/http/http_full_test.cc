// SPDX-License-Identifier: Apache-2.0

// Servers all of whose connections are taken.

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/http/metrics_routes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/http/http_client.h"

namespace specwire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A server of metrics and health, and of an answer that never rests.
class HttpFullTest : public testing::Test {
 protected:
  static constexpr int kPlaces = 8;

  void SetUp() override {
    registry_.AddCounter("a_total", std::string(100'000, 'A'));
    HttpServerOptions options;
    options.max_connections = kPlaces;
    server_ = std::make_unique<HttpServer>(options);
    AddMetricsRoutes(server_.get(), &registry_, [] {
      return HealthReport{true, true, "{}"};
    });
    server_->Handle("/busy", [this](const HttpRequest&) {
      HttpResponse response;
      response.stream = [this](HttpStream* out) {
        while (!end_ && out->Write("x")) absl::SleepFor(absl::Milliseconds(5));
      };
      return response;
    });
    ASSERT_TRUE(server_->Start().ok());
  }
  void TearDown() override {
    end_ = true;
    for (const int fd : fds_) close(fd);
    server_->Stop();
  }
  // Takes all places.
  void FillPlaces() {
    for (int i = 0; i < kPlaces; ++i) {
      fds_.push_back(DialLoopback(server_->port()));
      SendAll(fds_.back(), "GET /busy HTTP/1.1\r\n\r\n");
      ReceiveUntil(fds_.back(), "\r\n\r\n");
    }
  }
  void ExpectHealthy() {
    for (const char* path : {"/health", "/ready", "/metrics"}) {
      EXPECT_THAT(Get(server_->port(), path), StartsWith("HTTP/1.1 200 "))
          << path;
    }
  }

  MetricsRegistry registry_;
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> end_ = false;
  std::vector<int> fds_;
};

TEST_F(HttpFullTest, HealthAndMetricsHavePlacesOfTheirOwn) {
  FillPlaces();
  ExpectHealthy();
  for (const char* request : {"GET /busy HTTP/1.1\r\n\r\n",
                              "GET /none HTTP/1.1\r\n\r\n",
                              "POST /health HTTP/1.1\r\n\r\n"}) {
    const std::string told = Exchange(server_->port(), request);
    EXPECT_THAT(told, StartsWith("HTTP/1.1 503 ")) << request;
    EXPECT_THAT(told, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(told, HasSubstr("as many connections as it can"));
  }
  // One request each, although this one would go on.
  const std::string once =
      Exchange(server_->port(),
               "GET /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(once, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_EQ(once.find("HTTP/1.1", 1), std::string::npos);
}

TEST_F(HttpFullTest, WhoHoldsThosePlacesMakesRoom) {
  FillPlaces();
  for (int i = 0; i < 100; ++i) {
    fds_.push_back(DialLoopback(server_->port()));
    SendAll(fds_.back(), i % 2 == 0 ? "" : "GET /hea");
    if (i % 10 == 0) ExpectHealthy();
  }
  ExpectHealthy();
}

TEST_F(HttpFullTest, SlowReadersLeaveRoomForHealth) {
  std::string requests;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&requests, "GET /metrics HTTP/1.1\r\n\r\n");
  }
  for (int i = 0; i < 10 * kPlaces; ++i) {
    fds_.push_back(DialLoopback(server_->port()));
    SendAll(fds_.back(), requests);
  }
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      char byte = 0;
      for (const int fd : fds_) recv(fd, &byte, 1, MSG_DONTWAIT);
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(Get(server_->port(), "/health"), StartsWith("HTTP/1.1 200 "));
    absl::SleepFor(absl::Milliseconds(10));
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace specwire
