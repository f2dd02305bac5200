// SPDX-License-Identifier: Apache-2.0

// The programs verifier_node and draft_node, run as users run them.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/draining.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "tests/testing/child_process.h"
#include "tests/verifier_node/verifier_harness.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Nobody listens there; nodes go on trying.
constexpr char kNoCoordinator[] = "--coordinator=127.0.0.1:1";

std::string Program(const std::string& name) {
  return absl::StrCat(SPECWIRE_BIN_DIR, "/", name);
}

std::vector<std::string> Verifier(std::vector<std::string> more = {}) {
  std::vector<std::string> command = {Program("verifier_node"),
                                      kNoCoordinator,
                                      "--threads=1",
                                      "--kv_cache_mib=8"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<std::string> TinyVerifier(std::vector<std::string> more = {}) {
  more.push_back(absl::StrCat("--model=", SPECWIRE_TINY_MODEL));
  return Verifier(more);
}

// The address in a line "what on HOST:PORT".
std::string Address(const std::string& line, const std::string& what) {
  EXPECT_THAT(line, StartsWith(what));
  return std::string(absl::StripPrefix(line, what));
}

// The answer to a GET, headers included.
std::string HttpGet(const std::string& address, const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts.back(), &port));
  peer.sin_port = htons(static_cast<uint16_t>(port));
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: test\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()),
              static_cast<ssize_t>(request.size()));
    char buffer[4096];
    for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

struct Failure {
  std::vector<std::string> command;
  int exit_code;
  std::string error;
};

class NodeProgramFailureTest : public testing::TestWithParam<Failure> {};

TEST_P(NodeProgramFailureTest, TellsWhatIsWrongInOneLine) {
  ChildProcess program(GetParam().command);
  EXPECT_EQ(program.Wait(), GetParam().exit_code);
  const std::string errors = program.errors();
  EXPECT_THAT(errors, HasSubstr(GetParam().error));
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
}

INSTANTIATE_TEST_SUITE_P(
    Verifier,
    NodeProgramFailureTest,
    testing::Values(
        Failure{{Program("verifier_node"), "--model=x"}, 2, "--coordinator"},
        Failure{{Program("verifier_node"), kNoCoordinator}, 2, "--model"},
        Failure{{Program("verifier_node"), "--model=x", "--coordinator=here"},
                2,
                "--coordinator"},
        Failure{Verifier({"--model=/nowhere/x.gguf"}), 1, "/nowhere/x.gguf"},
        Failure{Verifier({"--model=" + Program("verifier_node")}),
                1,
                Program("verifier_node")},
        Failure{TinyVerifier({"--engine=magic"}), 2, "known: int8, reference"},
        Failure{TinyVerifier({"--device=cuda"}),
                2,
                "--device: cuda needs --engine reference"},
        Failure{TinyVerifier({"--engine=reference", "--dtype=float16"}),
                2,
                "--dtype: \"float16\" is unknown"},
        Failure{TinyVerifier({"--threads=many"}), 2, "--threads"},
        Failure{TinyVerifier({"--threads=-1"}), 2, "--threads"},
        Failure{TinyVerifier({"--kv_cache_mib=0"}), 2, "--kv_cache_mib"},
        Failure{TinyVerifier({"--max_model_len=100000"}), 1, "max_model_len"},
        Failure{
            TinyVerifier({"--max_num_sequences=0"}), 2, "--max_num_sequences"},
        Failure{TinyVerifier({"--max_queued_sequences=-1"}),
                2,
                "--max_queued_sequences"},
        Failure{TinyVerifier({"--local_drafter=magic"}),
                2,
                "--local_drafter: \"magic\" is unknown; known: suffix, hybrid, "
                "none"},
        Failure{TinyVerifier({"--local_drafter=hybrid"}),
                2,
                "--local_draft_model: the local drafter hybrid needs a model"},
        Failure{TinyVerifier({"--local_draft_model=x"}),
                2,
                "--local_draft_model: the local drafter suffix has no model"},
        Failure{TinyVerifier({"--log_level=error",
                              "--local_drafter=hybrid",
                              "--local_draft_model=/nowhere/x.gguf"}),
                1,
                "/nowhere/x.gguf"},
        // Made for a target with another vocabulary.
        Failure{TinyVerifier({"--log_level=error",
                              "--local_drafter=hybrid",
                              "--local_draft_model=" SPECWIRE_TEST_DATA
                              "/../../draft_node/models/"
                              "SmolLM2-135M-Instruct-draft.gguf"}),
                1,
                "SmolLM2-135M-Instruct-draft.gguf has the vocabulary"},
        Failure{Verifier({"--engine=synthetic",
                          "--allow_synthetic",
                          "--local_drafter=suffix"}),
                2,
                "--local_drafter: the engine synthetic"},
        Failure{TinyVerifier({"--listen=nonsense"}), 2, "--listen"},
        Failure{TinyVerifier({"--listen=0.0.0.0:0"}), 2, "--advertise"},
        Failure{TinyVerifier({"--name=two words"}), 2, "--name"},
        Failure{TinyVerifier({"--grace=-1"}), 2, "--grace"},
        Failure{
            TinyVerifier({"--coordinator=dns:///nowhere"}), 2, "--coordinator"},
        Failure{TinyVerifier({"--log_level=loud"}), 2, "--log_level"},
        Failure{TinyVerifier({"--unknown=1"}), 2, "--unknown"}));

INSTANTIATE_TEST_SUITE_P(
    Draft,
    NodeProgramFailureTest,
    testing::Values(
        Failure{{Program("draft_node"), kNoCoordinator}, 2, "--drafter"},
        Failure{{Program("draft_node"), "--drafter=ngram"}, 2, "--coordinator"},
        Failure{{Program("draft_node"), kNoCoordinator, "--drafter=magic"},
                2,
                "known: ngram, suffix, model, hybrid, oracle"},
        Failure{{Program("draft_node"), kNoCoordinator, "--drafter=oracle"},
                2,
                "--draft_model"},
        Failure{{Program("draft_node"),
                 kNoCoordinator,
                 "--drafter=ngram",
                 "--engine=magic"},
                2,
                "--engine"},
        Failure{{Program("draft_node"),
                 kNoCoordinator,
                 "--drafter=ngram",
                 "--max_num_sequences=4097"},
                2,
                "--max_num_sequences"},
        Failure{{Program("draft_node"),
                 kNoCoordinator,
                 "--drafter=ngram",
                 "--draft_model=x"},
                2,
                "--draft_model"},
        Failure{{Program("draft_node"),
                 kNoCoordinator,
                 "--drafter=ngram",
                 "--draft_layers=4"},
                2,
                "--draft_layers"},
        Failure{{Program("draft_node"),
                 kNoCoordinator,
                 "--drafter=oracle",
                 "--draft_model=/nowhere/x.gguf"},
                1,
                "/nowhere/x.gguf"}));

TEST(NodeProgramTest, VerifierServesUntilItIsTold) {
  ChildProcess node(TinyVerifier({"--metrics=127.0.0.1:0", "--grace=0"}));
  const std::string address = Address(node.ReadLine(), "listening on ");
  const std::string metrics = Address(node.ReadLine(), "metrics on ");
  const auto stub = v1::VerifierService::NewStub(MakeChannel(address));
  {
    verifier::DecodeClient client(stub.get());
    client.Send(verifier::OpenRequest({10, 20, 30}, 8, 0));
    EXPECT_TRUE(client.Drain().ok());
    EXPECT_THAT(
        HttpGet(metrics, "/metrics"),
        HasSubstr("specwire_generation_tokens_total{model_name=\"tiny\","
                  "node_role=\"verifier\"} 8"));
  }
  EXPECT_THAT(HttpGet(metrics, "/health"), HasSubstr("200 OK"));

  // A second one cannot have its port, and says so before it loads anything.
  ChildProcess rival(TinyVerifier({"--listen=" + address}));
  EXPECT_EQ(rival.Wait(), 1);
  EXPECT_THAT(rival.errors(), HasSubstr("cannot listen on " + address));

  verifier::DecodeClient client(stub.get());
  client.Send(verifier::OpenRequest({10, 20, 30}, 200, -1));
  ASSERT_TRUE(Eventually([&] {
    return HttpGet(metrics, "/health").find("\"num_sequences\":1") !=
           std::string::npos;
  }));
  node.Signal(SIGTERM);
  const grpc::Status status = client.Drain();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "shutting down");
  EXPECT_EQ(node.Wait(), 0);
}

TEST(NodeProgramTest, ADrainingVerifierFinishesWhatItHasAndRefusesMore) {
  ChildProcess node(TinyVerifier({"--metrics=127.0.0.1:0"}));
  const std::string address = Address(node.ReadLine(), "listening on ");
  const std::string metrics = Address(node.ReadLine(), "metrics on ");
  const auto stub = v1::VerifierService::NewStub(MakeChannel(address));
  verifier::DecodeClient client(stub.get());
  // It waits for a draft until it is told not to.
  client.Send(verifier::OpenRequest({10, 20, 30}, 50, -1));
  ASSERT_TRUE(Eventually([&] {
    return HttpGet(metrics, "/health").find("\"num_sequences\":1") !=
           std::string::npos;
  }));
  node.Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] {
    const std::string health = HttpGet(metrics, "/health");
    return health.find("503") != std::string::npos &&
           health.find("\"draining\"") != std::string::npos;
  }));
  verifier::DecodeClient late(stub.get());
  late.Send(verifier::OpenRequest({10, 20, 30}, 50, 0));
  EXPECT_TRUE(IsDraining(FromGrpcStatus(late.Drain())));
  client.Send(verifier::TuneRequest(0, std::nullopt));
  EXPECT_TRUE(client.Drain().ok());
  EXPECT_EQ(client.tokens().size(), 50u);
  EXPECT_EQ(node.Wait(), 0);
}

TEST(NodeProgramTest, AVerifierDraftsForItselfUnlessItIsToldNotTo) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {TinyVerifier(), "suffix"},
      {TinyVerifier({"--local_drafter=suffix"}), "suffix"},
      {TinyVerifier({"--local_drafter=none"}), ""},
      {TinyVerifier(
           {"--local_drafter=hybrid",
            absl::StrCat("--local_draft_model=", SPECWIRE_TINY_DRAFT_MODEL)}),
       "hybrid"},
      {Verifier({"--engine=synthetic", "--allow_synthetic"}), ""}};
  for (const auto& [command, drafter] : cases) {
    ChildProcess node(command);
    const std::string address = Address(node.ReadLine(), "listening on ");
    const auto stub = v1::VerifierService::NewStub(MakeChannel(address));
    grpc::ClientContext context;
    const auto reader = stub->GetModel(&context, {});
    v1::GetModelResponse message;
    ASSERT_TRUE(reader->Read(&message));
    EXPECT_EQ(message.model().local_drafter(), drafter);
    while (reader->Read(&message)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
    node.Signal(SIGTERM);
    EXPECT_EQ(node.Wait(), 0);
  }
}

TEST(NodeProgramTest, FlagsComeFromTheEnvironmentAndAFileToo) {
  const std::string path = testing::TempDir() + "/draft_node_test.conf";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("drafter=ngram\nmax_num_sequences=3\n", file);
  std::fclose(file);
  ChildProcess node({Program("draft_node"), "--config", path},
                    {{"SPECWIRE_COORDINATOR", "127.0.0.1:1,127.0.0.1:2"}});
  const std::string address = Address(node.ReadLine(), "listening on ");
  const auto stub = v1::DraftService::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  v1::GetDrafterResponse drafter;
  ASSERT_TRUE(stub->GetDrafter(&context, {}, &drafter).ok());
  EXPECT_EQ(drafter.drafter(), "ngram");
  EXPECT_EQ(drafter.max_num_sequences(), 3);
  node.Signal(SIGINT);
  EXPECT_EQ(node.Wait(), 0);
  std::remove(path.c_str());
}

TEST(NodeProgramTest, OracleServesTheTargetsModel) {
  ChildProcess node({Program("draft_node"),
                     kNoCoordinator,
                     "--drafter=oracle",
                     absl::StrCat("--draft_model=", SPECWIRE_TINY_MODEL),
                     "--kv_cache_mib=8"});
  const std::string address = Address(node.ReadLine(), "listening on ");
  const auto stub = v1::DraftService::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  v1::GetDrafterResponse drafter;
  ASSERT_TRUE(stub->GetDrafter(&context, {}, &drafter).ok());
  EXPECT_EQ(drafter.drafter(), "oracle");
  EXPECT_EQ(drafter.model_digest().size(), 64u);
  EXPECT_EQ(drafter.vocabulary_fingerprint().size(), 64u);
}

}  // namespace
}  // namespace specwire
