// SPDX-License-Identifier: Apache-2.0

// Nodes come, go and come back, over real gRPC.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "coordinator/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/in_process_cluster.h"

namespace specwire::coordinator {
namespace {

using ::testing::HasSubstr;

// Reports are frequent; only a test of silence itself takes it for short.
CoordinatorOptions QuickOptions(
    absl::Duration max_silence = absl::Seconds(30)) {
  CoordinatorOptions options;
  options.report_interval = absl::Milliseconds(20);
  options.max_silence = max_silence;
  return options;
}

v1::ListNodesResponse ListNodes(InProcessCluster* cluster) {
  grpc::ClientContext context;
  v1::ListNodesResponse response;
  EXPECT_TRUE(cluster->cluster()
                  ->ListNodes(&context, v1::ListNodesRequest(), &response)
                  .ok());
  return response;
}

// The latest node of a name.
v1::Node FindNode(InProcessCluster* cluster, const std::string& name) {
  v1::Node found;
  const v1::ListNodesResponse response = ListNodes(cluster);
  for (const v1::Node& node : response.nodes()) {
    if (node.registration().name() == name) found = node;
  }
  return found;
}

bool WaitState(InProcessCluster* cluster,
               const std::string& name,
               v1::NodeState state) {
  return Eventually([&] { return FindNode(cluster, name).state() == state; });
}

TEST(MembershipTest, MeasuresTheWayToDraftNodesAndReadsStepCosts) {
  CoordinatorOptions options = QuickOptions();
  Registry registry({.max_silence = absl::Seconds(30)});
  ModelCatalog catalog;
  Membership membership(
      options,
      &registry,
      &catalog,
      {.drafters_gained = [] {},
       .model_gained = [](const std::string&) {},
       .node_suspect = [](const std::string&, const absl::Status&) {}});
  FakeDrafter drafter({});
  FakeVerifier verifier({.step_costs = {{1, absl::Milliseconds(7)},
                                        {9, absl::Milliseconds(15)}}});
  const auto join = [&](NodeRole role, const std::string& address) {
    const auto registration = membership.Join(
        {role == NodeRole::kDraft ? "d" : "v", role, address, "first", 1});
    EXPECT_TRUE(registration.ok()) << registration.status();
  };
  join(NodeRole::kDraft, drafter.address());
  join(NodeRole::kVerifier, verifier.address());
  ASSERT_TRUE(Eventually([&] {
    return registry.Count(NodeRole::kVerifier, NodeState::kServing);
  }));
  const StepCosts costs = registry.Nodes()[1].verifier->step_costs;
  EXPECT_DOUBLE_EQ(costs.PassSeconds(5), 0.011);
  EXPECT_TRUE(Eventually([&] {
    const absl::Duration round_trip = registry.Nodes()[0].round_trip;
    return round_trip > absl::ZeroDuration() && round_trip < absl::Seconds(1);
  }));
}

TEST(MembershipTest, ListsAllThatIsKnownOfANode) {
  InProcessCluster cluster(QuickOptions());
  const FakeVerifier* verifier = cluster.AddVerifier();
  const FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const v1::ListNodesResponse response = ListNodes(&cluster);
  ASSERT_EQ(response.nodes_size(), 2);
  const v1::Node& draft = response.nodes(0);
  EXPECT_EQ(draft.registration().name(), "draft-1");
  EXPECT_EQ(draft.registration().role(), v1::NODE_ROLE_DRAFT);
  EXPECT_EQ(draft.registration().address(), drafter->address());
  EXPECT_EQ(draft.state(), v1::NODE_STATE_SERVING);
  EXPECT_EQ(draft.reason(), "");
  EXPECT_EQ(draft.drafter(), "oracle");
  const v1::Node& target = response.nodes(1);
  EXPECT_EQ(target.registration().name(), "verifier-1");
  EXPECT_EQ(target.registration().role(), v1::NODE_ROLE_VERIFIER);
  EXPECT_EQ(target.registration().address(), verifier->address());
  EXPECT_EQ(target.registration().pid(), 1);
  EXPECT_EQ(target.model().name(), "fake");
  EXPECT_EQ(target.model().model_digest(), FakeModel().Info().model_digest);
  EXPECT_EQ(target.model().vocabulary_fingerprint(), FakeModel().Fingerprint());
  EXPECT_EQ(target.model().max_num_sequences(), 64);
}

TEST(MembershipTest, NodesMayStartInAnyOrder) {
  for (const bool drafter_first : {true, false}) {
    InProcessCluster cluster(QuickOptions());
    FakeDrafterOptions drafter;
    drafter.vocabulary_fingerprint = FakeModel().Fingerprint();
    if (drafter_first) {
      cluster.AddDrafter(drafter);
      ASSERT_TRUE(Eventually([&] {
        const v1::Node node = FindNode(&cluster, "draft-1");
        return node.state() == v1::NODE_STATE_JOINING &&
               absl::StrContains(node.reason(), "waits for a verifier");
      }));
      cluster.AddVerifier();
    } else {
      cluster.AddVerifier();
      ASSERT_TRUE(cluster.WaitServing(1, 0));
      cluster.AddDrafter(drafter);
    }
    EXPECT_TRUE(cluster.WaitServing(1, 1));
  }
}

TEST(MembershipTest, DrafterOfAnotherVocabularyIsIncompatible) {
  InProcessCluster cluster(QuickOptions());
  FakeDrafterOptions drafter;
  drafter.vocabulary_fingerprint = "abcdef";
  cluster.AddDrafter(drafter);
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  ASSERT_TRUE(WaitState(&cluster, "draft-1", v1::NODE_STATE_INCOMPATIBLE));
  EXPECT_THAT(FindNode(&cluster, "draft-1").reason(), HasSubstr("abcdef"));
  // It gets no work.
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 20));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.finished.speculation().num_drafted_tokens(), 0);
}

TEST(MembershipTest, AsksAgainUntilTheNodeAnswers) {
  InProcessCluster cluster(QuickOptions());
  FakeVerifierOptions verifier;
  verifier.failing_probes = 3;
  cluster.AddVerifier(verifier);
  EXPECT_TRUE(cluster.WaitServing(1, 0));
}

TEST(MembershipTest, LostJoinStreamIsGoneWithReason) {
  InProcessCluster cluster(QuickOptions());
  FakeDrafter* drafter = cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(0, 1));
  drafter->Kill();
  ASSERT_TRUE(WaitState(&cluster, "draft-1", v1::NODE_STATE_GONE));
  EXPECT_NE(FindNode(&cluster, "draft-1").reason(), "");
}

TEST(MembershipTest, RestartedNodeServesUnderItsName) {
  InProcessCluster cluster(QuickOptions());
  FakeVerifier* first = cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const std::string id = FindNode(&cluster, "verifier-1").node_id();
  first->Kill();
  cluster.AddVerifier();
  EXPECT_TRUE(Eventually([&] {
    const v1::Node node = FindNode(&cluster, "verifier-1");
    return node.state() == v1::NODE_STATE_SERVING && node.node_id() != id;
  }));
}

TEST(MembershipTest, SecondNodeOfALiveNameIsRefused) {
  InProcessCluster cluster(QuickOptions());
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  cluster.AddVerifier();
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(ListNodes(&cluster).nodes_size(), 1);
}

TEST(MembershipTest, NodesRejoinARestartedCoordinator) {
  InProcessCluster cluster(QuickOptions());
  cluster.AddVerifier();
  cluster.AddDrafter();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  ASSERT_TRUE(cluster.WaitServing(1, 1));
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 20));
  EXPECT_TRUE(result.status.ok()) << result.status;
}

// A Join stream of our own making.
class RawJoin {
 public:
  explicit RawJoin(InProcessCluster* cluster) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    stream_ = cluster->cluster()->Join(&context_);
  }
  void Register(const std::string& name) {
    v1::JoinRequest request;
    v1::NodeRegistration* registration = request.mutable_registration();
    registration->set_name(name);
    registration->set_role(v1::NODE_ROLE_VERIFIER);
    // Nothing answers there.
    registration->set_address("127.0.0.1:1");
    registration->set_incarnation_id("x");
    stream_->Write(request);
  }
  // The accepted answer; false if the stream has ended.
  bool Read(v1::JoinResponse* response) { return stream_->Read(response); }
  bool Write(const v1::JoinRequest& request) { return stream_->Write(request); }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::JoinRequest, v1::JoinResponse>>
      stream_;
};

TEST(MembershipTest, FirstMessageMustBeARegistration) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  v1::JoinRequest request;
  request.mutable_load();
  join.Write(request);
  v1::JoinResponse response;
  EXPECT_FALSE(join.Read(&response));
  const grpc::Status status = join.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("registration"));
}

TEST(MembershipTest, RefusesBadRegistration) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  join.Register("");
  v1::JoinResponse response;
  EXPECT_FALSE(join.Read(&response));
  const grpc::Status status = join.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("registration.name"));
}

TEST(MembershipTest, AModelWhoseNameIsNoTextDoesNotServe) {
  for (const char* name : {"a\nb", "a\x1b[2J"}) {
    InProcessCluster cluster(QuickOptions());
    FakeVerifierOptions options;
    options.model.name = name;
    cluster.AddVerifier(options);
    EXPECT_TRUE(Eventually([&] {
      const v1::Node node = FindNode(&cluster, "verifier-1");
      return node.state() == v1::NODE_STATE_JOINING &&
             absl::StrContains(node.reason(), "without control characters");
    })) << FindNode(&cluster, "verifier-1").ShortDebugString();
  }
}

TEST(MembershipTest, UnreachableNodeStaysJoiningWithReason) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  join.Register("v");
  v1::JoinResponse response;
  ASSERT_TRUE(join.Read(&response));
  EXPECT_EQ(response.accepted().report_interval_ms(), 20);
  EXPECT_NE(response.accepted().node_id(), "");
  EXPECT_TRUE(Eventually([&] {
    const v1::Node node = FindNode(&cluster, "v");
    return node.state() == v1::NODE_STATE_JOINING &&
           node.reason().find("cannot be asked") != std::string::npos;
  }));
}

TEST(MembershipTest, SilentNodeIsSuspectAndComesBack) {
  InProcessCluster cluster(QuickOptions(absl::Milliseconds(300)));
  RawJoin join(&cluster);
  join.Register("v");
  ASSERT_TRUE(WaitState(&cluster, "v", v1::NODE_STATE_SUSPECT));
  v1::JoinRequest request;
  request.mutable_load()->set_num_sequences(3);
  ASSERT_TRUE(join.Write(request));
  ASSERT_TRUE(WaitState(&cluster, "v", v1::NODE_STATE_JOINING));
  EXPECT_EQ(FindNode(&cluster, "v").load().num_sequences(), 3);
}

TEST(MembershipTest, EveryReportIsAnswered) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  join.Register("v");
  v1::JoinResponse response;
  ASSERT_TRUE(join.Read(&response));
  EXPECT_EQ(response.accepted().max_silence_ms(), 15'000);
  v1::JoinRequest request;
  request.mutable_load();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(join.Write(request));
    ASSERT_TRUE(join.Read(&response));
    EXPECT_TRUE(response.has_alive());
  }
}

TEST(MembershipTest, ANodeThatIsSilentForTooLongMustJoinAnew) {
  coordinator::CoordinatorOptions options = QuickOptions();
  options.stream_deadline = absl::Seconds(1);
  InProcessCluster cluster(options);
  RawJoin join(&cluster);
  join.Register("v");
  v1::JoinResponse response;
  ASSERT_TRUE(join.Read(&response));
  EXPECT_FALSE(join.Read(&response));
  const grpc::Status status = join.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("nothing has come"));
  EXPECT_TRUE(WaitState(&cluster, "v", v1::NODE_STATE_GONE));
}

grpc::Status Drain(InProcessCluster* cluster,
                   const std::string& node,
                   std::optional<int64_t> grace_ms,
                   v1::Node* drained = nullptr) {
  grpc::ClientContext context;
  v1::DrainNodeRequest request;
  request.set_node(node);
  if (grace_ms.has_value()) request.set_grace_ms(*grace_ms);
  v1::DrainNodeResponse response;
  const grpc::Status status =
      cluster->cluster()->DrainNode(&context, request, &response);
  if (drained != nullptr) *drained = response.node();
  return status;
}

TEST(MembershipTest, DrainNodePassesOnTheGrace) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  join.Register("v");
  v1::JoinResponse response;
  ASSERT_TRUE(join.Read(&response));
  v1::Node drained;
  ASSERT_TRUE(Drain(&cluster, "v", 1500, &drained).ok());
  EXPECT_EQ(drained.registration().name(), "v");
  EXPECT_EQ(drained.state(), v1::NODE_STATE_DRAINING);
  EXPECT_THAT(drained.reason(), HasSubstr("operator"));
  ASSERT_TRUE(join.Read(&response));
  EXPECT_EQ(response.drain().grace_ms(), 1500);
  // By its id, and without a grace.
  ASSERT_TRUE(Drain(&cluster, drained.node_id(), std::nullopt).ok());
  ASSERT_TRUE(join.Read(&response));
  EXPECT_TRUE(response.has_drain());
  EXPECT_FALSE(response.drain().has_grace_ms());
}

// Ids look like the names that people give.
TEST(MembershipTest, DrainNodeTellsOfTheNodeThatDrains) {
  InProcessCluster cluster(QuickOptions());
  RawJoin first(&cluster);
  first.Register("v");
  v1::JoinResponse response;
  ASSERT_TRUE(first.Read(&response));
  const std::string id = response.accepted().node_id();
  RawJoin second(&cluster);
  second.Register(id);
  ASSERT_TRUE(second.Read(&response));
  v1::Node drained;
  ASSERT_TRUE(Drain(&cluster, "v", std::nullopt, &drained).ok());
  EXPECT_EQ(drained.registration().name(), "v");
  EXPECT_EQ(drained.state(), v1::NODE_STATE_DRAINING);
  ASSERT_TRUE(Drain(&cluster, id, std::nullopt, &drained).ok());
  EXPECT_EQ(drained.registration().name(), id);
}

TEST(MembershipTest, DrainNodeRefusesWhatIsNotThere) {
  InProcessCluster cluster(QuickOptions());
  cluster.AddVerifier();
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const grpc::Status unknown = Drain(&cluster, "nobody", std::nullopt);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("nobody"));
  for (const int64_t grace_ms : {int64_t{-1}, int64_t{86'400'001}}) {
    const grpc::Status status = Drain(&cluster, "verifier-1", grace_ms);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("grace_ms"));
  }
  EXPECT_EQ(FindNode(&cluster, "verifier-1").state(), v1::NODE_STATE_SERVING);
}

TEST(MembershipTest, ANodeThatSaysSoDrains) {
  InProcessCluster cluster(QuickOptions());
  RawJoin join(&cluster);
  join.Register("v");
  v1::JoinRequest request;
  request.mutable_draining()->set_reason("a signal\n");
  request.mutable_draining()->set_grace_ms(30'000);
  ASSERT_TRUE(join.Write(request));
  ASSERT_TRUE(WaitState(&cluster, "v", v1::NODE_STATE_DRAINING));
  EXPECT_EQ(FindNode(&cluster, "v").reason(),
            "a signal?; 30s for running sequences to end");
}

TEST(MembershipTest, AHungVerifierIsSuspectAndItsSequencesGoOnElsewhere) {
  CoordinatorOptions options = QuickOptions();
  options.max_stall = absl::Milliseconds(500);
  InProcessCluster cluster(options);
  FakeVerifier* hung = cluster.AddVerifier({.name = "hung", .hang_after = 20});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  bool second = false;
  const GenerateResult result =
      cluster.Generate(GreedyRequest("hello", 60), [&](const auto&) {
        // Only now, so that the request began on the other one.
        if (!std::exchange(second, true))
          cluster.AddVerifier({.name = "sound"});
        return true;
      });
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(
      result.token_ids,
      FakeModel().Complete(std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'}, 60));
  EXPECT_EQ(cluster.Metric("specwire_request_migrations_total"), 1);
  EXPECT_TRUE(hung->hangs());
  EXPECT_EQ(FindNode(&cluster, "hung").state(), v1::NODE_STATE_SUSPECT);
  EXPECT_THAT(FindNode(&cluster, "hung").reason(), HasSubstr("no progress"));
  EXPECT_TRUE(Eventually([&] { return hung->num_open() == 0; }));
  // It gets on again.
  hung->Wake();
  EXPECT_TRUE(WaitState(&cluster, "hung", v1::NODE_STATE_SERVING));
}

TEST(MembershipTest, AHungVerifierAloneEndsItsSequencesInTime) {
  // Four times that.
  CoordinatorOptions options = QuickOptions(absl::Seconds(2));
  options.max_stall = absl::Milliseconds(500);
  InProcessCluster cluster(options);
  cluster.AddVerifier({.hang_after = 20});
  ASSERT_TRUE(cluster.WaitServing(1, 0));
  const GenerateResult result = cluster.Generate(GreedyRequest("hello", 60));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("no progress"));
  EXPECT_GE(result.token_ids.size(), 20u);
}

}  // namespace
}  // namespace specwire::coordinator
