// SPDX-License-Identifier: Apache-2.0

// Every RPC over HTTP: a coordinator with fake nodes, called both ways.

#include "coordinator/http/rpc_routes.h"

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"
#include "common/base/sha256.h"
#include "coordinator/coordinator.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "tests/common/http/http_client.h"
#include "tests/coordinator/http/http_cluster.h"
#include "tests/testing/certificates.h"

namespace specwire::coordinator {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

class RpcRoutesTest : public testing::Test {
 protected:
  HttpCluster cluster_;
};

v1::GenerateRequest Wanted() {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(1);
  request.mutable_token_ids()->add_ids(5);
  request.mutable_sampling()->set_seed(7);
  request.mutable_stop()->set_max_tokens(40);
  return request;
}

TEST_F(RpcRoutesTest, GenerateStreamsWhatGrpcStreams) {
  std::string json;
  ASSERT_TRUE(
      google::protobuf::util::MessageToJsonString(Wanted(), &json).ok());
  const HttpAnswer answer = cluster_.Post("/api/Generate", json);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.content_type, "text/event-stream");
  std::vector<int32_t> ids;
  std::string text;
  int num_finished = 0;
  for (const std::string& event : answer.events) {
    v1::GenerateResponse response;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(event, &response).ok());
    const auto& delta = response.delta();
    ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    absl::StrAppend(&text, delta.text(), response.finished().text());
    num_finished += response.has_finished() ? 1 : 0;
  }
  const GenerateResult direct = cluster_->Generate(Wanted());
  EXPECT_EQ(ids, direct.token_ids);
  EXPECT_EQ(text, direct.text);
  EXPECT_EQ(num_finished, 1);
}

TEST_F(RpcRoutesTest, UnaryMethodsAnswerWithJson) {
  HttpAnswer answer = cluster_.Post("/api/ListModels", "");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_EQ(answer.json["models"][0]["numVerifiers"], 1);

  answer = cluster_.Post("/api/Tokenize", R"({"text": "ab"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json ids = answer.json["tokenIds"];
  answer = cluster_.Post("/api/Detokenize", Json{{"tokenIds", ids}}.dump());
  EXPECT_EQ(answer.json["text"], "ab");

  answer = cluster_.Post("/api/ListNodes", "{}");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["nodes"][0]["state"], "NODE_STATE_SERVING");
  EXPECT_EQ(cluster_.Post("/api/GetStats", "{}").status, 200);
}

TEST_F(RpcRoutesTest, ErrorsHaveTheirStatusCodeAndField) {
  HttpAnswer answer = cluster_.Post("/api/Tokenize", R"({"model": "none"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.json["error"]["code"], "model_not_found");
  answer = cluster_.Post("/api/Generate", "{}");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["param"], "prompt");
  answer = cluster_.Post("/api/Generate",
                         R"({"text": "a", "sampling": {"temperature": -1}})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.json["error"]["param"].dump(), HasSubstr("temperature"));
  for (const char* body : {R"({"nonsense": 1})",
                           R"({"text": 1})",
                           R"({"text": "a", "text": "b"})",
                           "[]",
                           "{"}) {
    EXPECT_EQ(cluster_.Post("/api/Tokenize", body).status, 400) << body;
  }
}

TEST_F(RpcRoutesTest, ErrorsInJsonNameTheFieldThatIsWrong) {
  const HttpAnswer answer = cluster_.Post(
      "/api/Generate", R"({"text": "a", "sampling": {"seed": 1e30}})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["param"], "sampling.seed");
  EXPECT_EQ(answer.json["error"]["message"],
            "sampling.seed: 1e+30 is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
}

TEST_F(RpcRoutesTest, NothingElseIsServed) {
  EXPECT_EQ(cluster_.Post("/api/Join", "{}").status, 404);
  const HttpAnswer nothing = cluster_.Post("/api/Nothing", "{}");
  EXPECT_EQ(nothing.status, 404);
  EXPECT_THAT(nothing.json["error"]["message"].get<std::string>(),
              HasSubstr("/api/Generate, "));
  EXPECT_EQ(cluster_.Get("/api/Generate").status, 405);
  EXPECT_EQ(cluster_.Post("/api/ListModels", "{}", {}, "text/plain").status,
            415);
}

TEST_F(RpcRoutesTest, AClientThatGoesEndsItsRequest) {
  v1::GenerateRequest request = Wanted();
  request.mutable_stop()->clear_max_tokens();
  std::string json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(request, &json).ok());
  cluster_.PostAndLeave("/api/Generate", json);
  EXPECT_TRUE(
      Eventually([&] { return cluster_->coordinator()->num_requests() == 0; }));
  EXPECT_TRUE(Eventually([&] { return cluster_.verifier()->num_open() == 0; }));
}

class RpcAccessTest : public testing::Test {
 protected:
  static void AddKey(const std::string& path, const std::string& key) {
    Sha256 sha;
    sha.Update(key);
    std::ofstream(path, std::ios::app) << sha.FinishHex() << "\n";
  }
  static httplib::Headers Bearer(const std::string& key) {
    return {{"Authorization", "Bearer " + key}};
  }
  // Draining is refused, without a key and with another's, in words that say
  // whose is wanted.
  static void ExpectsAnOperator(HttpCluster* cluster) {
    const char* drain = R"({"node": "nobody"})";
    for (const httplib::Headers& headers :
         {httplib::Headers(), Bearer("user"), Bearer("")}) {
      const HttpAnswer answer = cluster->Post("/api/DrainNode", drain, headers);
      EXPECT_EQ(answer.status, 401);
      EXPECT_THAT(answer.json["error"]["message"].get<std::string>(),
                  HasSubstr("operator's"));
    }
  }
  std::string Path(const std::string& name) {
    return testing::TempDir() + "rpc_access_" + name;
  }
  void SetUp() override {
    std::remove(Path("users").c_str());
    std::remove(Path("operators").c_str());
    AddKey(Path("users"), "user");
    AddKey(Path("operators"), "operator");
  }
};

TEST_F(RpcAccessTest, UsersNeedAKeyAndOperatorsOneOfTheirs) {
  HttpCluster cluster([&](CoordinatorOptions* options) {
    options->api_keys = Path("users");
    options->operator_keys = Path("operators");
  });
  for (const char* path :
       {"/api/ListModels", "/api/ListNodes", "/api/GetStats"}) {
    HttpAnswer answer = cluster.Post(path, "{}");
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.json["error"]["code"], "invalid_api_key");
    EXPECT_EQ(cluster.Post(path, "{}", Bearer("wrong")).status, 401);
    EXPECT_EQ(cluster.Post(path, "{}", Bearer("user")).status, 200);
    EXPECT_EQ(cluster.Post(path, "{}", Bearer("operator")).status, 200);
  }
  const char* drain = R"({"node": "nobody"})";
  ExpectsAnOperator(&cluster);
  // Let in, and told that there is no such node.
  EXPECT_EQ(cluster.Post("/api/DrainNode", drain, Bearer("operator")).status,
            404);
  EXPECT_EQ(cluster.Get("/console.json").json["drain"], "key");
  EXPECT_EQ(cluster.Get("/health").status, 200);
  EXPECT_EQ(cluster.Get("/metrics").status, 200);
}

TEST_F(RpcAccessTest, WithoutUsersKeysDrainingStillWantsAnOperators) {
  HttpCluster cluster([&](CoordinatorOptions* options) {
    options->operator_keys = Path("operators");
  });
  EXPECT_EQ(cluster.Post("/api/ListModels", "{}").status, 200);
  ExpectsAnOperator(&cluster);
}

TEST_F(RpcAccessTest, NobodyDrainsWithoutAnOperatorsFile) {
  HttpCluster cluster;
  const HttpAnswer answer =
      cluster.Post("/api/DrainNode", R"({"node": "verifier-1"})");
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.json["error"]["message"].get<std::string>(),
              HasSubstr("--operator_keys"));
  EXPECT_EQ(cluster.Get("/console.json").json["drain"], "no");
}

TEST_F(RpcAccessTest, WhereOthersReachItOnlyHealthAndMetricsAreServed) {
  HttpCluster cluster(
      [](CoordinatorOptions* options) { options->http = "0.0.0.0:0"; });
  const HttpAnswer answer = cluster.Post("/api/ListModels", "{}");
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.json["error"]["message"].get<std::string>(),
              HasSubstr("--http_tls"));
  EXPECT_EQ(cluster.Get("/health").status, 200);
  EXPECT_EQ(cluster.Get("/metrics").status, 200);
}

TEST_F(RpcAccessTest, AnotherNameForThisMachineNeedsAKey) {
  const auto status = [](HttpCluster* cluster, const std::string& host) {
    return cluster
        ->Post("/api/ListModels",
               "{}",
               {{"Host", host}, {"Authorization", "Bearer user"}})
        .status;
  };
  HttpCluster open;
  for (const char* host :
       {"localhost", "localhost:80", "127.0.0.1:8080", "[::1]:8080"}) {
    EXPECT_EQ(status(&open, host), 200) << host;
  }
  EXPECT_EQ(status(&open, "elsewhere.example"), 403);
  EXPECT_EQ(status(&open, "localhost.example:8080"), 403);
  // What the target names stands in place of it.
  const auto named = [&](const char* authority, const char* host) {
    return Exchange(open.port(),
                    absl::StrCat("POST http://",
                                 authority,
                                 "/api/ListModels HTTP/1.1\r\nHost: ",
                                 host,
                                 "\r\nContent-Type: application/json\r\n"
                                 "Connection: close\r\n\r\n"));
  };
  EXPECT_THAT(named("localhost", "elsewhere.example"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(named("elsewhere.example", "localhost"),
              StartsWith("HTTP/1.1 403 "));
  HttpCluster with_keys(
      [&](CoordinatorOptions* options) { options->api_keys = Path("users"); });
  EXPECT_EQ(status(&with_keys, "elsewhere.example"), 200);
}

TEST_F(RpcAccessTest, WithTlsCertificatesCountAsOverGrpc) {
  TestAuthority authority;
  CoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.http_tls = true;
  options.security.tls = authority.Issue(kCoordinatorCertificate, "server");
  const auto coordinator = Coordinator::Start(options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const int port = ParseHostPort((*coordinator)->http_address(), "http")->port;
  const auto status = [&](const TlsFiles& files, const char* path) {
    httplib::SSLClient client("127.0.0.1", port, files.cert, files.key);
    // The certificate carries a role, not an address.
    client.enable_server_certificate_verification(false);
    const auto result = client.Post(path, "{}", "application/json");
    return result ? result->status : 0;
  };
  const TlsFiles nobody;
  EXPECT_EQ(status(nobody, "/api/ListNodes"), 401);
  const TlsFiles user = authority.Issue("anna", "user");
  EXPECT_EQ(status(user, "/api/ListNodes"), 200);
  EXPECT_EQ(status(user, "/api/DrainNode"), 403);
  // Let in, and told that it names no node.
  const TlsFiles op = authority.Issue(kOperatorCertificate, "operator");
  EXPECT_EQ(status(op, "/api/DrainNode"), 404);
  const auto told = [&](const TlsFiles& files) {
    httplib::SSLClient client("127.0.0.1", port, files.cert, files.key);
    client.enable_server_certificate_verification(false);
    const auto result = client.Get("/console.json");
    return result ? result->body : "";
  };
  EXPECT_THAT(told(user), HasSubstr("\"no\""));
  EXPECT_THAT(told(op), HasSubstr("\"yes\""));
}

TEST_F(RpcAccessTest, UnlessTheNetworkIsTrusted) {
  HttpCluster cluster([](CoordinatorOptions* options) {
    options->http = "0.0.0.0:0";
    options->security.allow_insecure = true;
  });
  EXPECT_EQ(cluster.Post("/api/ListModels", "{}").status, 200);
}

}  // namespace
}  // namespace specwire::coordinator
