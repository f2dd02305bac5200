// SPDX-License-Identifier: Apache-2.0

// A coordinator whose names and errors would steer the user's terminal: what
// the commands print does not.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/text/printable.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "specwire/v1/cluster.grpc.pb.h"

namespace specwire::cli {
namespace {

using ::testing::HasSubstr;

// Colours, the title, CSI as one character, right-to-left override.
constexpr char kHostile[] =
    "\033[31m\033]0;mine\a\xc2\x9b"
    "2J\xe2\x80\xae";

v1::Node HostileNode() {
  v1::Node node;
  node.mutable_registration()->set_name(kHostile);
  node.mutable_registration()->set_address(kHostile);
  node.mutable_registration()->set_role(v1::NODE_ROLE_VERIFIER);
  node.mutable_model()->set_name(kHostile);
  node.set_reason(kHostile);
  return node;
}

class HostileCoordinator final : public v1::ClusterService::Service {
 public:
  grpc::Status ListNodes(grpc::ServerContext* /*context*/,
                         const v1::ListNodesRequest* /*request*/,
                         v1::ListNodesResponse* response) override {
    *response->add_nodes() = HostileNode();
    return grpc::Status::OK;
  }
  grpc::Status GetStats(grpc::ServerContext* /*context*/,
                        const v1::GetStatsRequest* /*request*/,
                        v1::GetStatsResponse* response) override {
    for (v1::NamedCount* count :
         {response->add_requests(), response->add_failures()}) {
      count->set_name(kHostile);
      count->set_count(1);
    }
    v1::PairStats* const pair = response->add_pairs();
    pair->set_draft_node(kHostile);
    pair->set_verifier_node(kHostile);
    pair->set_model(kHostile);
    return grpc::Status::OK;
  }
  grpc::Status DrainNode(grpc::ServerContext* /*context*/,
                         const v1::DrainNodeRequest* request,
                         v1::DrainNodeResponse* response) override {
    if (request->node() == "refused") {
      return {grpc::StatusCode::NOT_FOUND, absl::StrCat("first\n", kHostile)};
    }
    *response->mutable_node() = HostileNode();
    return grpc::Status::OK;
  }
};

class HostileCoordinatorTest : public testing::Test {
 protected:
  HostileCoordinatorTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
  }
  ~HostileCoordinatorTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // What the command writes to standard output and standard error.
  std::string Run(const std::string& command, int code = kExitDone) {
    CLI::App app;
    Runner runner;
    AddNodesCommand(&app, &runner);
    AddStatsCommand(&app, &runner);
    AddDrainCommand(&app, &runner);
    AddTopCommand(&app, &runner);
    app.parse(absl::StrCat(command, " --coordinator 127.0.0.1:", port_));
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(runner(), code) << command;
    std::string text = testing::internal::GetCapturedStdout();
    return text + testing::internal::GetCapturedStderr();
  }

  HostileCoordinator coordinator_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

bool IsHarmless(absl::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (step.kind != Utf8Step::Kind::kCharacter ||
        (SteersTerminal(step.code_point) && step.code_point != '\n')) {
      return false;
    }
    text.remove_prefix(step.length);
  }
  return true;
}

TEST_F(HostileCoordinatorTest, NamesAreShownAndNotObeyed) {
  for (const char* command : {"nodes", "stats", "drain node", "top --once"}) {
    const std::string text = Run(command);
    EXPECT_TRUE(IsHarmless(text)) << command;
    EXPECT_THAT(text, HasSubstr("\\x1b]0;mine\\x07")) << command;
  }
  for (const char* command : {"nodes --json", "stats --json"}) {
    const std::string text = Run(command);
    EXPECT_TRUE(IsHarmless(text)) << command;
    EXPECT_THAT(text, HasSubstr("\\u001b]0;mine\\u0007\\u009b2J\\u202e"));
  }
}

TEST_F(HostileCoordinatorTest, AnErrorIsOneHarmlessLine) {
  const std::string text = Run("drain refused", kExitFailed);
  EXPECT_TRUE(IsHarmless(text));
  EXPECT_EQ(text,
            "specwire: first "
            "\\x1b[31m\\x1b]0;mine\\x07\\u009b2J\\u202e\n");
}

}  // namespace
}  // namespace specwire::cli
