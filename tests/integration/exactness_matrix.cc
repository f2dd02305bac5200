// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/exactness_matrix.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

struct Case {
  v1::GenerateRequest request;
  std::vector<int32_t> expected;
  std::string what = {};
};

std::string Judge(const Case& one, const GenerateResult& result) {
  const v1::SpeculationStats& stats = result.finished.speculation();
  if (!result.status.ok()) return result.status.ToString();
  if (!result.fault.empty()) return result.fault;
  if (result.token_ids != one.expected) return "other tokens";
  const std::string& drafter = one.request.speculation().drafter();
  const int64_t accepted = stats.num_accepted_draft_tokens();
  if (drafter == "oracle" && accepted != stats.num_draft_tokens()) {
    return "a token of the oracle was rejected";
  }
  if (drafter == "adversarial" && accepted != 0) {
    return "a token of the adversary was accepted";
  }
  if (drafter == "none" && stats.num_drafted_tokens() != 0) {
    return "drafted without a drafter";
  }
  return "";
}

std::string Describe(const v1::GenerateRequest& request,
                     const SamplingSetting& setting) {
  const v1::Speculation& how = request.speculation();
  return absl::StrCat(request.token_ids().ids_size(),
                      " prompt tokens, ",
                      setting.name,
                      ", ",
                      how.drafter(),
                      ", run length ",
                      how.max_draft_tokens(),
                      ", patience ",
                      how.patience_us());
}

// The ways of speculation for one request.
void AddCases(const v1::GenerateRequest& base,
              const SamplingSetting& setting,
              const std::vector<int32_t>& expected,
              const ExactnessMatrix& matrix,
              std::vector<Case>* cases) {
  for (const char* drafter : matrix.drafters) {
    for (const int run_length : matrix.run_lengths) {
      for (const int64_t patience : matrix.patiences) {
        Case one = {base, expected};
        v1::Speculation* how = one.request.mutable_speculation();
        how->set_drafter(drafter);
        how->set_max_draft_tokens(run_length);
        how->set_patience_us(patience);
        one.what = Describe(one.request, setting);
        cases->push_back(std::move(one));
      }
    }
  }
}

}  // namespace

std::unique_ptr<ProcessCluster> StartWithEveryDrafter(
    const std::string& model) {
  auto cluster = std::make_unique<ProcessCluster>(SPECWIRE_BIN_DIR, "suffix");
  cluster->AddVerifier("verifier-0", model);
  std::set<std::string> names = {"verifier-0"};
  const std::string flag = absl::StrCat("--draft_model=", model);
  const std::map<std::string, std::vector<std::string>> flags = {
      {"ngram", {}},
      {"model", {flag, "--draft_layers=1"}},
      {"oracle", {flag}},
      {"adversarial", {flag}},
      {"random", {}}};
  for (const auto& [drafter, more] : flags) {
    cluster->AddDraftNode(drafter, drafter, more);
    names.insert(drafter);
  }
  const bool serving = cluster->WaitServing(names);
  EXPECT_TRUE(serving) << model;
  if (!serving) cluster.reset();
  return cluster;
}

std::map<std::string, int64_t> ExpectExact(ProcessCluster& cluster,
                                           const ExactnessMatrix& matrix) {
  std::vector<Case> cases;
  for (const std::vector<int32_t>& prompt : matrix.prompts) {
    for (const SamplingSetting& setting : matrix.settings) {
      const v1::GenerateRequest base =
          SeededRequest(prompt, setting, matrix.max_tokens);
      const GenerateResult plain = cluster.Generate(Plain(base));
      EXPECT_TRUE(plain.status.ok()) << plain.status;
      EXPECT_EQ(plain.token_ids.size(), static_cast<size_t>(matrix.max_tokens));
      AddCases(base, setting, plain.token_ids, matrix, &cases);
    }
  }
  Mutex mutex;
  std::vector<std::string> faults;
  std::map<std::string, int64_t> accepted;
  InParallel(static_cast<int>(cases.size()), kMatrixConcurrency, [&](int i) {
    const Case& one = cases[static_cast<size_t>(i)];
    const GenerateResult result = cluster.Generate(one.request);
    const std::string fault = Judge(one, result);
    MutexLock lock(&mutex);
    if (!fault.empty()) faults.push_back(absl::StrCat(one.what, ": ", fault));
    accepted[one.request.speculation().drafter()] +=
        result.finished.speculation().num_accepted_draft_tokens();
  });
  EXPECT_THAT(faults, testing::IsEmpty());
  return accepted;
}

}  // namespace specwire
