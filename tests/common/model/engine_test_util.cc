// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/engine_test_util.h"

#include <cmath>
#include <cstring>
#include <random>

namespace specwire {

std::vector<EngineCase> AllEngines() {
  return {{"reference", ""},
          {"int8", "scalar"},
          {"int8", "avx2"},
          {"int8", "avx512vnni"}};
}

std::vector<EngineCase> Int8Engines() {
  std::vector<EngineCase> engines;
  for (const EngineCase& engine : AllEngines()) {
    if (engine.engine == "int8" && IsSupported(engine)) {
      engines.push_back(engine);
    }
  }
  return engines;
}

bool IsSupported(const EngineCase& engine) {
  if (engine.isa == "avx2") return KernelsFor(Isa::kAvx2) != nullptr;
  if (engine.isa == "avx512vnni") {
    return KernelsFor(Isa::kAvx512Vnni) != nullptr;
  }
  return true;
}

std::unique_ptr<Engine> Load(const EngineCase& engine,
                             const std::string& path,
                             EngineOptions options) {
  const ScopedVariable isa("SPECWIRE_ISA", engine.isa);
  options.engine = engine.engine;
  auto loaded = LoadEngine(path, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

Tokens RandomTokens(uint32_t seed, int count, int vocab_size) {
  std::mt19937 random(seed);
  Tokens tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size)));
  }
  return tokens;
}

std::vector<LogitRow> Compute(Engine& engine,
                              const std::vector<ForwardRun>& runs) {
  const auto logits = engine.Forward(runs);
  EXPECT_TRUE(logits.ok()) << logits.status();
  std::vector<LogitRow> rows;
  if (logits.ok()) {
    const auto width = static_cast<size_t>(engine.info().num_logits());
    for (size_t i = 0; i < logits->size(); i += width) {
      const auto row = logits->subspan(i, width);
      rows.emplace_back(row.begin(), row.end());
    }
  }
  return rows;
}

std::vector<LogitRow> Compute(Engine& engine,
                              KvSequence* kv,
                              absl::Span<const int32_t> tokens) {
  return Compute(engine,
                 {{.kv = kv,
                   .tokens = tokens,
                   .num_logits = static_cast<int>(tokens.size())}});
}

std::vector<LogitRow> OneByOne(Engine& engine, const Tokens& tokens) {
  const auto kv = engine.NewSequence();
  std::vector<LogitRow> rows;
  for (const int32_t& token : tokens) {
    rows.push_back(
        Compute(engine, kv.get(), absl::MakeConstSpan(&token, 1)).at(0));
  }
  return rows;
}

bool SameBits(const LogitRow& a, const LogitRow& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameRows(const std::vector<LogitRow>& a,
                    const std::vector<LogitRow>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(SameBits(a[i], b[i])) << "row " << i;
  }
}

int32_t PlainArgMax(const LogitRow& row) {
  int32_t best = -1;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != row[i]) continue;
    if (best < 0 || row[i] > row[static_cast<size_t>(best)]) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

double RelativeError(const std::vector<LogitRow>& got,
                     const std::vector<LogitRow>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t id = 0; id < want[i].size(); ++id) {
      const double difference = static_cast<double>(got.at(i).at(id)) -
                                static_cast<double>(want[i][id]);
      error += difference * difference;
      size +=
          static_cast<double>(want[i][id]) * static_cast<double>(want[i][id]);
    }
  }
  return std::sqrt(error / size);
}

}  // namespace specwire
