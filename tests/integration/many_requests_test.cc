// SPDX-License-Identifier: Apache-2.0

// Ids of many requests together equal those of each alone: the tiny model on
// the int8 engine, random arrivals, options, drafts, cancels, and a KV cache
// that is too small for all.

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/model/engine.h"
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

INSTANTIATE_TEST_SUITE_P(Seeds, ManyRequestsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace specwire::verifier
