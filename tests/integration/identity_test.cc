// SPDX-License-Identifier: Apache-2.0

// Who may serve whom, in real processes.

#include <signal.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_test_util.h"
#include "tests/testing/process_cluster.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

std::string Model(const std::string& name,
                  const std::vector<std::string>& flags) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name, ".gguf");
  MakeTinyModel(SPECWIRE_TEST_DATA, path, flags);
  return path;
}

std::string DraftModel(const std::string& path) {
  return absl::StrCat("--draft_model=", path);
}

v1::GenerateRequest Request(const std::string& drafter) {
  v1::GenerateRequest request =
      SeededRequest(RepeatingPrompt(), {"T=0.7", 0.7f}, 60);
  request.mutable_speculation()->set_drafter(drafter);
  request.mutable_speculation()->set_patience_us(kLockStep);
  return request;
}

TEST(IdentityTest, APermutedVocabularyGetsNoWork) {
  ProcessCluster cluster(SPECWIRE_BIN_DIR);
  cluster.AddVerifier("verifier-0", SPECWIRE_TINY_MODEL);
  cluster.AddDraftNode("permuted",
                       "model",
                       {DraftModel(Model("permuted", {"--permute_vocab"}))});
  ASSERT_TRUE(Eventually(
      [&] {
        return cluster.Node("permuted").state() == v1::NODE_STATE_INCOMPATIBLE;
      },
      absl::Seconds(30)));
  EXPECT_THAT(cluster.Node("permuted").reason(), HasSubstr("vocabulary"));
  ASSERT_TRUE(cluster.WaitServing({"verifier-0"}));
  const absl::Status named = cluster.Generate(Request("model")).status;
  EXPECT_EQ(named.code(), absl::StatusCode::kNotFound) << named;
  const GenerateResult any = cluster.Generate(Request(""));
  ASSERT_TRUE(any.status.ok()) << any.status;
  EXPECT_EQ(any.fault, "");
  EXPECT_EQ(any.finished.speculation().num_drafted_tokens(), 0);
  EXPECT_EQ(any.token_ids, cluster.Generate(Plain(Request(""))).token_ids);
}

TEST(IdentityTest, PaddedVocabulariesDraftForOneAnother) {
  const std::string padded = Model("padded", {"--vocab_padding", "64"});
  const std::string rows = Model("rows", {"--extra_rows", "64"});
  for (const auto& [target, drafter] :
       std::vector<std::pair<std::string, std::string>>{
           {SPECWIRE_TINY_MODEL, padded},
           {padded, SPECWIRE_TINY_MODEL},
           {SPECWIRE_TINY_MODEL, rows},
           {rows, padded}}) {
    SCOPED_TRACE(absl::StrCat(target, " with ", drafter));
    ProcessCluster cluster(SPECWIRE_BIN_DIR);
    cluster.AddVerifier("verifier-0", target);
    cluster.AddDraftNode("draft-0", "model", {DraftModel(drafter)});
    ASSERT_TRUE(cluster.WaitServing({"verifier-0", "draft-0"}));
    const GenerateResult result = cluster.Generate(Request("model"));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.token_ids, cluster.Generate(Plain(Request(""))).token_ids);
    // The weights of the real tokens are equal, and so is what they choose.
    EXPECT_GT(result.finished.speculation().num_draft_tokens(), 0);
    EXPECT_EQ(result.finished.speculation().num_accepted_draft_tokens(),
              result.finished.speculation().num_draft_tokens());
  }
}

TEST(IdentityTest, ASequenceNeverMovesToAnotherDigest) {
  const std::vector<std::string> slow = {
      "--layers", "12", "--context_length", "512"};
  const auto flags = [&slow](std::vector<std::string> more) {
    more.insert(more.end(), slow.begin(), slow.end());
    return more;
  };
  const std::string first = Model("first", flags({"--name", "first"}));
  const std::string other =
      Model("other", flags({"--name", "other", "--seed", "2"}));
  ProcessCluster cluster(SPECWIRE_BIN_DIR);
  cluster.AddVerifier("verifier-0", first);
  cluster.AddVerifier("verifier-1", other);
  ASSERT_TRUE(cluster.WaitServing({"verifier-0", "verifier-1"}));
  v1::GenerateRequest request =
      SeededRequest(RepeatingPrompt(), {"greedy"}, 200);
  request.set_model("first");
  const GenerateResult plain = cluster.Generate(request);
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  bool killed = false;
  const GenerateResult result =
      cluster.Generate(request, [&](const v1::GenerateDelta& delta) {
        if (!killed && delta.first_index() > 20) {
          cluster.Signal("verifier-0", SIGKILL);
          killed = true;
        }
        return true;
      });
  ASSERT_TRUE(killed);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable)
      << result.status;
  // What did come is a part of the right text.
  ASSERT_LT(result.token_ids.size(), plain.token_ids.size());
  EXPECT_TRUE(std::equal(result.token_ids.begin(),
                         result.token_ids.end(),
                         plain.token_ids.begin()));
  // The other one serves on.
  request.set_model("other");
  const GenerateResult still = cluster.Generate(request);
  ASSERT_TRUE(still.status.ok()) << still.status;
  EXPECT_NE(still.started.model_digest(), plain.started.model_digest());
}

}  // namespace
}  // namespace specwire
