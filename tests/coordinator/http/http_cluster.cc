// SPDX-License-Identifier: Apache-2.0
#include "tests/coordinator/http/http_cluster.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"

namespace specwire {
namespace {

coordinator::CoordinatorOptions Options(const HttpCluster::Change& change) {
  coordinator::CoordinatorOptions options = InProcessCluster::PatientOptions();
  options.http = "127.0.0.1:0";
  if (change != nullptr) change(&options);
  return options;
}

HttpAnswer FromResult(const httplib::Result& result) {
  HttpAnswer answer;
  EXPECT_TRUE(result) << httplib::to_string(result.error());
  if (!result) return answer;
  answer.status = result->status;
  answer.content_type = result->get_header_value("Content-Type");
  answer.body = result->body;
  answer.headers = result->headers;
  answer.json = nlohmann::json::parse(answer.body, nullptr, false);
  for (absl::string_view line : absl::StrSplit(answer.body, '\n')) {
    if (absl::ConsumePrefix(&line, "data: ")) answer.events.emplace_back(line);
  }
  return answer;
}

}  // namespace

HttpCluster::HttpCluster(const Change& change, FakeVerifierOptions verifier)
    : cluster_(Options(change)) {
  verifier_ = cluster_.AddVerifier(std::move(verifier));
  // A variable, or this compiler takes a part of it for uninitialized.
  const FakeDrafterOptions drafter;
  cluster_.AddDrafter(drafter);
  EXPECT_TRUE(cluster_.WaitServing(1, 1));
}

int HttpCluster::port() {
  return ParseHostPort(cluster_.coordinator()->http_address(), "http")->port;
}

HttpAnswer HttpCluster::Get(const std::string& path,
                            const httplib::Headers& headers) {
  httplib::Client client("127.0.0.1", port());
  client.set_read_timeout(60);
  return FromResult(client.Get(path, headers));
}

HttpAnswer HttpCluster::Post(const std::string& path,
                             const std::string& body,
                             const httplib::Headers& headers,
                             const std::string& content_type) {
  httplib::Client client("127.0.0.1", port());
  client.set_read_timeout(60);
  return FromResult(client.Post(path, headers, body, content_type));
}

void HttpCluster::PostAndLeave(const std::string& path,
                               const std::string& body) {
  httplib::Client client("127.0.0.1", port());
  client.set_read_timeout(60);
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.set_header("Content-Type", "application/json");
  request.body = body;
  request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) {
    return false;
  };
  EXPECT_FALSE(client.send(request));
}

}  // namespace specwire
