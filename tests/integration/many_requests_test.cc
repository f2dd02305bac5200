// SPDX-License-Identifier: Apache-2.0

// Ids of many requests together equal those of each alone: the tiny model on
// the int8 engine, random arrivals, options, drafts, cancels, and a KV cache
// that is too small for all.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/drafting/drafter.h"
#include "common/model/engine.h"
#include "common/model_drafting/model_drafter.h"
#include "gtest/gtest.h"
#include "tests/verifier_node/request_mix.h"

namespace specwire::verifier {
namespace {

std::unique_ptr<Engine> LoadSmallCache() {
  EngineOptions options;
  options.kv_cache_mib = 1;
  // What belongs to nobody must not be read.
  options.poison_free_kv = true;
  auto engine = LoadEngine(SPECWIRE_TINY_MODEL, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

class ManyRequestsTest : public testing::TestWithParam<uint32_t> {};

TEST_P(ManyRequestsTest, TogetherTheyAreWhatTheyAreAlone) {
  const std::unique_ptr<Engine> engine = LoadSmallCache();
  ASSERT_NE(engine, nullptr);
  CheckMix({.num_requests = 64,
            .max_prompt = 100,
            .max_tokens = 150,
            .arrivals = absl::Milliseconds(4)},
           {},
           GetParam(),
           /*least_preemptions=*/1,
           engine.get());
}

// Counts the drafts that another drafter makes.
class CountingDrafter final : public Drafter {
 public:
  CountingDrafter(std::unique_ptr<Drafter> drafter, int* num_drafts)
      : drafter_(std::move(drafter)), num_drafts_(num_drafts) {}

  const std::string& name() const override { return drafter_->name(); }
  const std::string& vocabulary_fingerprint() const override {
    return drafter_->vocabulary_fingerprint();
  }
  const std::string& model_digest() const override {
    return drafter_->model_digest();
  }
  int max_model_len() const override { return drafter_->max_model_len(); }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override {
    return drafter_->NewSequence(params);
  }
  int max_batch() const override { return drafter_->max_batch(); }
  DraftPass Propose(absl::Span<DraftTask> tasks) override {
    const DraftPass pass = drafter_->Propose(tasks);
    for (const DraftTask& task : tasks) {
      const bool drafted = task.result.has_value() && task.result->ok() &&
                           !(*task.result)->tokens.empty();
      if (drafted) ++*num_drafts_;
    }
    return pass;
  }

 private:
  const std::unique_ptr<Drafter> drafter_;
  int* const num_drafts_;
};

// The same, with a few at a time, whose drafts a model makes inside the
// verifier: the tiny draft model, which is seldom right, or the target's own
// file, which always is.
class LocalModelTest : public testing::TestWithParam<const char*> {};

TEST_P(LocalModelTest, TogetherTheyAreWhatTheyAreAlone) {
  const std::unique_ptr<Engine> engine = LoadSmallCache();
  ASSERT_NE(engine, nullptr);
  EngineOptions options;
  options.kv_cache_mib = 1;
  options.poison_free_kv = true;
  options.allow_draft_model = true;
  auto loaded = LoadEngine(GetParam(), options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto model = ModelDrafter::Create(*std::move(loaded), ModelDrafterOptions());
  ASSERT_TRUE(model.ok()) << model.status();
  int num_drafts = 0;
  CheckMix({.num_requests = 64,
            .max_prompt = 100,
            .max_tokens = 150,
            .arrivals = absl::Milliseconds(100)},
           {.max_num_sequences = 3},
           /*seed=*/7,
           /*least_preemptions=*/0,
           engine.get(),
           std::make_unique<CountingDrafter>(*std::move(model), &num_drafts));
  EXPECT_GT(num_drafts, 100);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         LocalModelTest,
                         testing::Values(SPECWIRE_TINY_DRAFT_MODEL,
                                         SPECWIRE_TINY_MODEL));

INSTANTIATE_TEST_SUITE_P(Seeds, ManyRequestsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace specwire::verifier
