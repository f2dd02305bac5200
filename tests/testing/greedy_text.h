// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/engine.h"
#include "common/sampling/greedy.h"
#include "gtest/gtest.h"

namespace specwire {

// Loads the test's tiny model; null, and a failed test, if that fails.
inline std::unique_ptr<Engine> LoadTinyEngine(const std::string& path) {
  EngineOptions options;
  options.kv_cache_mib = 8;
  auto engine = LoadEngine(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// What greedy decoding makes of `tokens`, one token a pass and nothing else at
// work: the yardstick.
inline std::vector<int32_t> GreedyText(Engine* engine,
                                       std::vector<int32_t> tokens,
                                       int count) {
  const size_t length = tokens.size();
  const auto kv = engine->NewSequence();
  while (tokens.size() < length + static_cast<size_t>(count)) {
    const ForwardRun run = {.kv = kv.get(),
                            .tokens = absl::MakeConstSpan(tokens).subspan(
                                static_cast<size_t>(kv->length())),
                            .num_logits = 1};
    const auto logits = engine->Forward(absl::MakeConstSpan(&run, 1));
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) break;
    tokens.push_back(ArgMax(*logits));
  }
  tokens.erase(tokens.begin(),
               tokens.begin() + static_cast<std::ptrdiff_t>(length));
  return tokens;
}

}  // namespace specwire
