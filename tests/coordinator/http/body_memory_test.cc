// SPDX-License-Identifier: Apache-2.0

// Many clients that post the largest bodies at once.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/common/http/http_client.h"
#include "tests/coordinator/http/http_cluster.h"

namespace specwire {
namespace {

constexpr int kNumClients = 40;
constexpr size_t kBodyBytes = (8 << 20) - 100;
constexpr int kManyClients = 300;
constexpr size_t kMiddleBytes = 390'000;
// What is allowed beyond what there was before: bodies, what is parsed of them,
// and some room. Without bounds forty such bodies take gigabytes.
constexpr int64_t kMostGrowth = int64_t{700} << 20;
constexpr int64_t kMostLeft = int64_t{200} << 20;

int64_t ResidentBytes() {
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// `part` as often as a body has room for it.
std::string Body(const std::string& begin,
                 const std::string& part,
                 const std::string& end,
                 size_t most_bytes = kBodyBytes) {
  std::string body = begin;
  while (body.size() + part.size() < most_bytes) body += part;
  body.pop_back();
  return body + end;
}

class BodyMemoryTest : public testing::Test {
 protected:
  void Flood(const char* path,
             const std::string& body,
             int num_clients = kNumClients);

  // A variable, or this compiler takes a part of it for uninitialized.
  const FakeVerifierOptions verifier_;
  HttpCluster cluster_{nullptr, verifier_};
};

void BodyMemoryTest::Flood(const char* path,
                           const std::string& body,
                           int num_clients) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps what is freed";
#endif
  const std::string request = absl::StrCat(
      "POST ",
      path,
      " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
      "application/json\r\nContent-Length: ",
      body.size(),
      "\r\n\r\n",
      body);
  const int64_t before = ResidentBytes();
  std::atomic<int> num_left = num_clients;
  std::atomic<int> num_told = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < num_clients; ++i) {
    clients.emplace_back([&] {
      const std::string answer = Exchange(cluster_.port(), request);
      // Read, and answered or found wrong, or told to come later.
      num_told += absl::StartsWith(answer, "HTTP/1.1 200 ") ||
                          absl::StartsWith(answer, "HTTP/1.1 400 ") ||
                          absl::StartsWith(answer, "HTTP/1.1 429 ") ||
                          absl::StartsWith(answer, "HTTP/1.1 503 ")
                      ? 1
                      : 0;
      --num_left;
    });
  }
  int64_t most = before;
  int num_healthy = 0;
  while (num_left > 0) {
    EXPECT_EQ(cluster_.Get("/health").status, 200);
    ++num_healthy;
    most = std::max(most, ResidentBytes());
    absl::SleepFor(absl::Milliseconds(5));
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_told, num_clients);
  EXPECT_GT(num_healthy, 0);
  EXPECT_LT(most - before, kMostGrowth);
  EXPECT_TRUE(Eventually([&] { return ResidentBytes() - before < kMostLeft; }));
  RecordProperty("growth_mib", absl::StrCat((most - before) >> 20));
  std::cout << "grew by " << ((most - before) >> 20) << " MiB, "
            << ((ResidentBytes() - before) >> 20) << " MiB are left, "
            << num_healthy << " times healthy\n";
}

TEST_F(BodyMemoryTest, ManyTokenIdsOnOpenAisRoute) {
  Flood("/v1/completions", Body("{\"prompt\":[", "1234567,", "]}"));
}

TEST_F(BodyMemoryTest, ManyTokenIdsOnOurs) {
  Flood("/api/Generate", Body("{\"tokenIds\":{\"ids\":[", "1234567,", "]}}"));
}

TEST_F(BodyMemoryTest, ManyEmptyObjects) {
  Flood("/v1/completions", Body("{\"prompt\":[", "{},", "]}"));
}

TEST_F(BodyMemoryTest, ManyBodiesOfManyEmptyObjects) {
  Flood("/v1/completions",
        Body("{\"prompt\":\"hi\",\"max_tokens\":1,\"x\":[",
             "{},",
             "]}",
             kMiddleBytes),
        kManyClients);
}

TEST_F(BodyMemoryTest, ALongText) {
  Flood("/v1/completions", Body("{\"prompt\":\"", "word ", "\"}"));
}

}  // namespace
}  // namespace specwire
