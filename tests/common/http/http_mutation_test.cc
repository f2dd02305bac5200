// SPDX-License-Identifier: Apache-2.0

// Bytes that are nearly HTTP, many of them.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_connection.h"
#include "common/http/http_exchange.h"
#include "common/http/http_head.h"
#include "gtest/gtest.h"
#include "tests/common/http/http_client.h"
#include "tests/testing/mutator.h"

namespace specwire {
namespace {

constexpr size_t kMaxBodyBytes = 256;
constexpr char kStatusLine[] = "HTTP/1.1 ";

std::vector<std::string> Examples() {
  const std::string type = "Content-Type: application/json\r\n";
  return {
      "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /a?b=c&d=%20e#f HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n"
      "User-Agent: a \"b\" (c; d)\r\nConnection: keep-alive\r\n\r\n",
      "HEAD /a HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1,3-\r\n\r\n",
      "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      "GET /files/b HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
      PostText("/p", "{\"a\": [1, 2]}", "Authorization: Bearer key\r\n"),
      PostText("/p", "", "Expect: 100-continue\r\n"),
      PostText("/p", "{}") + PostText("/p", "[]") +
          "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\n" + type +
          "Transfer-Encoding: chunked\r\n\r\n"
          "5\r\n12345\r\n3;a=b\r\n678\r\n0\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /p HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
      "Content-Length: 60\r\n\r\n--b\r\nContent-Disposition: form-data; "
      "name=\"a\"\r\n\r\nc\r\n--b--\r\n",
  };
}

std::vector<std::string> Words() {
  return {"\r\n",
          "\r\n\r\n",
          "\n",
          "\r",
          " ",
          "\t",
          ":",
          "%",
          "%00",
          "%u12",
          "..",
          "/",
          std::string(1, '\0'),
          "0",
          "-1",
          "99999999999999999999",
          "ffffffffffffffff",
          "GET /a HTTP/1.1\r\n\r\n",
          "HTTP/1.0",
          "Connection: close\r\n",
          "Content-Length: 5\r\n",
          "Transfer-Encoding: chunked\r\n",
          "Transfer-Encoding: gzip\r\n",
          "Content-Encoding: deflate\r\n",
          "Expect: 100-continue\r\n",
          "Content-Type: application/x-www-form-urlencoded\r\n",
          "Range: bytes=-\r\n",
          "Host: y\r\n",
          std::string(300, 'x'),
          std::string(3000, 'y')};
}

// What a route saw.
struct SeenRequest {
  std::map<std::string, std::string> headers;
  std::string body;
};

HttpServerOptions Options() {
  HttpServerOptions options;
  options.max_head_bytes = 1024;
  options.max_body_bytes = kMaxBodyBytes;
  return options;
}

// Whole answers to `bytes`, and what our routes saw of them.
class OneConnection {
 public:
  OneConnection() : context_(Options()) {
    Add("GET", "/a", "fine");
    Add("POST", "/p", "taken");
    Add("GET", "/files/", "file");
    context_.routes.back().prefix = true;
    Add("GET", "/stream", "");
    context_.routes.back().handler = [this](const HttpRequest& request) {
      requests_.push_back({request.headers, request.body});
      HttpResponse response;
      response.stream = [](HttpStream* out) {
        out->Write("one ");
        out->Write("two");
      };
      return response;
    };
  }

  std::string Exchange(const std::string& bytes) {
    requests_.clear();
    int fds[2] = {-1, -1};
    EXPECT_EQ(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
        0);
    // There is room for all of it: nobody need read meanwhile.
    EXPECT_EQ(send(fds[0], bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    shutdown(fds[0], SHUT_WR);
    {
      HttpConnection connection(fds[1], nullptr);
      HttpExchange exchange(&context_, &connection, nullptr);
      while (connection.WaitForData(absl::Seconds(10)) && exchange.Next()) {
      }
    }
    std::string answer = ReceiveAll(fds[0]);
    close(fds[0]);
    return answer;
  }

  const std::vector<SeenRequest>& requests() const { return requests_; }
  int num_slow() const { return context_.num_slow; }

 private:
  void Add(const char* method, const char* path, const char* body) {
    HttpRoute route;
    route.method = method;
    route.path = path;
    route.slow = true;
    route.handler = [this, body](const HttpRequest& request) {
      requests_.push_back({request.headers, request.body});
      HttpResponse response;
      response.body = body;
      return response;
    };
    context_.routes.push_back(std::move(route));
  }

  HttpContext context_;
  std::vector<SeenRequest> requests_;
};

// The status codes of the answers.
std::vector<int> StatusesOf(const std::string& answers) {
  std::vector<int> statuses;
  for (size_t at = answers.find(kStatusLine); at != std::string::npos;
       at = answers.find(kStatusLine, at + 1)) {
    int status = 0;
    EXPECT_TRUE(absl::SimpleAtoi(
        answers.substr(at + sizeof(kStatusLine) - 1, 3), &status));
    if (status != 100) statuses.push_back(status);
  }
  return statuses;
}

void ExpectSound(const SeenRequest& request, const std::string& bytes) {
  EXPECT_LE(request.body.size(), kMaxBodyBytes);
  if (!request.headers.contains("transfer-encoding")) {
    EXPECT_NE(bytes.find(request.body), std::string::npos);
  }
  for (const auto& [name, value] : request.headers) {
    EXPECT_EQ(name, absl::AsciiStrToLower(name));
    EXPECT_EQ(value.find_first_of("\r\n"), std::string::npos);
    EXPECT_EQ(value.find('\0'), std::string::npos);
  }
}

TEST(HttpMutationTest, EveryRequestIsAnsweredOrRefused) {
  Mutator mutator(1, Examples(), Words());
  OneConnection connection;
  int num_answered = 0;
  int num_refused = 0;
  const int num = NumMutations(2'000);
  for (int i = 0; i < num && !testing::Test::HasFailure(); ++i) {
    const std::string bytes = mutator.Next();
    SCOPED_TRACE(testing::PrintToString(bytes));
    const std::string answers = connection.Exchange(bytes);
    const std::vector<int> statuses = StatusesOf(answers);
    if (!answers.empty()) {
      EXPECT_EQ(answers.substr(0, sizeof(kStatusLine) - 1), kStatusLine);
    }
    // What our routes see is what is answered, and nothing fails inside.
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 200),
              static_cast<long>(connection.requests().size()))
        << answers;
    for (const int status : statuses) {
      EXPECT_TRUE(status == 200 || (status >= 400 && status < 500) ||
                  status == 501)
          << answers;
      ++(status == 200 ? num_answered : num_refused);
    }
    for (const SeenRequest& request : connection.requests()) {
      ExpectSound(request, bytes);
    }
    EXPECT_EQ(connection.num_slow(), 0);
  }
  // The inputs are neither all right nor all wrong.
  EXPECT_GT(num_answered, num / 20);
  EXPECT_GT(num_refused, num / 10);
}

TEST(HttpMutationTest, HeadsAreTakenWholeOrNotAtAll) {
  Mutator mutator(2, Examples(), Words());
  int num_taken = 0;
  const int num = NumMutations(20'000);
  for (int i = 0; i < num && !testing::Test::HasFailure(); ++i) {
    const std::string bytes = mutator.Next();
    SCOPED_TRACE(testing::PrintToString(bytes));
    const auto headers =
        ParseHeaders(bytes.substr(0, bytes.find("\r\n\r\n") + 4));
    if (!headers.has_value()) continue;
    ++num_taken;
    // Written again, they say the same.
    std::string again = "GET / HTTP/1.1\r\n";
    for (const auto& [name, value] : *headers) {
      absl::StrAppend(&again, name, ": ", value, "\r\n");
    }
    EXPECT_EQ(ParseHeaders(again + "\r\n"), headers);
  }
  EXPECT_GT(num_taken, num / 10);
}

}  // namespace
}  // namespace specwire
