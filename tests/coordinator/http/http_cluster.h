// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coordinator/options.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "tests/testing/in_process_cluster.h"

namespace specwire {

struct HttpAnswer {
  int status = 0;
  std::string content_type;
  std::string body;
  httplib::Headers headers;
  // The body, if it is JSON; discarded if not.
  nlohmann::json json;
  // What stands behind "data: ", if it is a stream of events.
  std::vector<std::string> events;
};

// An in-process cluster of one fake verifier and one fake drafter that serves
// HTTP, and a client of it.
class HttpCluster {
 public:
  using Change = std::function<void(coordinator::CoordinatorOptions*)>;
  explicit HttpCluster(const Change& change = nullptr,
                       FakeVerifierOptions verifier = {});

  HttpAnswer Get(const std::string& path, const httplib::Headers& headers = {});
  HttpAnswer Post(const std::string& path,
                  const std::string& body,
                  const httplib::Headers& headers = {},
                  const std::string& content_type = "application/json");
  // Hangs up once something of the answer's body has come.
  void PostAndLeave(const std::string& path, const std::string& body);

  InProcessCluster* operator->() { return &cluster_; }
  FakeVerifier* verifier() { return verifier_; }
  int port();

 private:
  InProcessCluster cluster_;
  FakeVerifier* verifier_ = nullptr;
};

}  // namespace specwire
