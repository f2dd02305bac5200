// SPDX-License-Identifier: Apache-2.0
// Time that choosing a token costs beside the model, for one row of 49,152
// logits. Rows are spread as those of a small language model: a peak, a few
// dozen tokens within 8 of it, most of them 10 to 25 below.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "common/sampling/coupled.h"
#include "common/sampling/greedy.h"
#include "common/sampling/history.h"
#include "common/sampling/logprobs.h"
#include "common/sampling/params.h"
#include "common/sampling/pipeline.h"
#include "common/sampling/ratio.h"
#include "common/sampling/softmax.h"

namespace specwire {
namespace {

constexpr size_t kVocab = 49152;
constexpr size_t kRows = 8;

// Different rows, as in decoding: none is in the nearest cache already.
const std::vector<std::vector<float>>& Rows() {
  static const auto* const kAll = [] {
    auto* all = new std::vector<std::vector<float>>;
    std::mt19937 random(1);
    for (size_t r = 0; r < kRows; ++r) {
      std::normal_distribution<float> bulk(0, 3.8f);
      std::exponential_distribution<float> head(0.55f);
      std::vector<float> row(kVocab);
      for (float& logit : row) logit = bulk(random);
      for (int i = 0; i < 60; ++i) {
        row[random() % kVocab] = 19.0f - head(random);
      }
      all->push_back(std::move(row));
    }
    return all;
  }();
  return *kAll;
}

const std::vector<int32_t>& Text() {
  static const auto* const kText = [] {
    auto* text = new std::vector<int32_t>(512);
    std::mt19937 random(2);
    for (int32_t& token : *text) token = static_cast<int32_t>(random() % 4000);
    return text;
  }();
  return *kText;
}

// Chooses a token, at the next position each time.
void Choose(benchmark::State& state, const SamplingParams& params) {
  CoupledSampler sampler(
      params, 0, {.prompt_length = 200, .end_token_ids = {}});
  const std::vector<std::vector<float>>& rows = Rows();
  const absl::Span<const int32_t> text = Text();
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Choose(
        rows[i % kRows], {.settled = text.first(256 + i % 256), .run = {}}));
    ++i;
  }
}

void BM_ArgMax(benchmark::State& state) {
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(ArgMax(Rows()[i++ % kRows]));
}
BENCHMARK(BM_ArgMax);

void BM_ChooseAtTemperature1(benchmark::State& state) { Choose(state, {}); }
BENCHMARK(BM_ChooseAtTemperature1);

void BM_ChooseAtTemperature07(benchmark::State& state) {
  SamplingParams params;
  params.temperature = 0.7f;
  Choose(state, params);
}
BENCHMARK(BM_ChooseAtTemperature07);

void BM_ChooseWithTopP95(benchmark::State& state) {
  SamplingParams params;
  params.top_p = 0.95f;
  Choose(state, params);
}
BENCHMARK(BM_ChooseWithTopP95);

void BM_ChooseWithTopK40(benchmark::State& state) {
  SamplingParams params;
  params.top_k = 40;
  Choose(state, params);
}
BENCHMARK(BM_ChooseWithTopK40);

void BM_ChooseWithMinP05(benchmark::State& state) {
  SamplingParams params;
  params.min_p = 0.05f;
  Choose(state, params);
}
BENCHMARK(BM_ChooseWithMinP05);

void BM_ChooseWithTopK40TopP95(benchmark::State& state) {
  SamplingParams params;
  params.top_k = 40;
  params.top_p = 0.95f;
  Choose(state, params);
}
BENCHMARK(BM_ChooseWithTopK40TopP95);

void BM_ChooseGreedyWithPenalties(benchmark::State& state) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 1.1f;
  params.frequency_penalty = 0.2f;
  Choose(state, params);
}
BENCHMARK(BM_ChooseGreedyWithPenalties);

void BM_Logprobs(benchmark::State& state) {
  LogprobReader reader;
  PositionLogprobs out;
  size_t i = 0;
  for (auto _ : state) {
    reader.Read(Rows()[i++ % kRows], 5, static_cast<int>(state.range(0)), &out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(BM_Logprobs)->Arg(0)->Arg(20);

void BM_Confidence(benchmark::State& state) {
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Probability(Rows()[i++ % kRows], 5));
  }
}
BENCHMARK(BM_Confidence);

// A verified draft token under the ratio rule, over the whole vocabulary.
void BM_RatioRule(benchmark::State& state) {
  Pipeline of_target({}, {});
  SamplingParams cut;
  cut.top_k = 64;
  const DraftDistribution q = TruncateForDraft(
      Pipeline(cut, {}).Distribution(Rows()[0], {}), kMaxDraftDistribution);
  size_t i = 0;
  for (auto _ : state) {
    const DrawKey key = {.seed = 1, .position = static_cast<int>(i)};
    benchmark::DoNotOptimize(
        VerifyDraft(of_target.Distribution(Rows()[i % kRows], {}),
                    q,
                    DrawDraft(q, key),
                    key));
    ++i;
  }
}
BENCHMARK(BM_RatioRule);

}  // namespace
}  // namespace specwire
