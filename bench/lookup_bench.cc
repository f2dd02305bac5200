// SPDX-License-Identifier: Apache-2.0

// What a proposal of a lookup costs: a few tokens more in the path, then a run
// behind it.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/ngram.h"
#include "common/drafting/suffix.h"
#include "common/sampling/philox.h"

namespace specwire {
namespace {

// Somewhat like language: few tokens are frequent, most are rare, and every
// other stretch is one that was there before.
std::vector<int32_t> MakeText(size_t size, uint64_t seed) {
  std::vector<int32_t> text;
  for (uint32_t i = 0; text.size() < size; ++i) {
    const auto words = Philox4x32({i, 0, 0, 0}, seed);
    const double uniform = (words[0] + 1.0) * 0x1p-32;
    if (words[1] % 32 == 0 && text.size() > 100) {
      const size_t from = words[2] % (text.size() - 40);
      for (size_t j = 0; j < 32; ++j) text.push_back(text[from + j]);
    } else {
      text.push_back(static_cast<int32_t>(1 / uniform) % 40000);
    }
  }
  text.resize(size);
  return text;
}

constexpr size_t kGrowth = 1000;

// Each round takes up `added` tokens more and proposes `run_length`.
void Measure(Drafter* drafter, benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  const auto added = static_cast<size_t>(state.range(1));
  const auto run_length = static_cast<int>(state.range(2));
  const std::vector<int32_t> text = MakeText(size + kGrowth, 1);
  const auto path = absl::MakeConstSpan(text);
  DraftSequenceParams params;
  params.context.prompt_length = static_cast<int>(size / 2);
  std::unique_ptr<DraftSequence> sequence;
  size_t length = text.size();
  for (auto _ : state) {
    if (length + added > text.size()) {
      state.PauseTiming();
      sequence = drafter->NewSequence(params);
      length = size;
      benchmark::DoNotOptimize(sequence->Propose(path.first(length), {1}));
      state.ResumeTiming();
    }
    length += added;
    benchmark::DoNotOptimize(
        sequence->Propose(path.first(length), {run_length}));
  }
}

void Ngram(benchmark::State& state) {
  const auto drafter = NgramDrafter::Create({});
  Measure(drafter->get(), state);
}

void Suffix(benchmark::State& state) {
  const auto drafter = SuffixDrafter::Create({});
  // A store that is full.
  for (uint64_t seed = 2; seed < 18; ++seed) {
    const auto sequence = (*drafter)->NewSequence({});
    benchmark::DoNotOptimize(sequence->Propose(MakeText(8192, seed), {1}));
  }
  Measure(drafter->get(), state);
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"history", "added", "run_length"});
  for (const int history : {500, 8000, 32000}) {
    for (const int added : {1, 5}) benchmark->Args({history, added, 4});
  }
  benchmark->Args({8000, 1, 16});
}
BENCHMARK(Ngram)->Apply(Shapes);
BENCHMARK(Suffix)->Apply(Shapes);

// A prompt of 8,000 tokens is taken up.
void SuffixPrompt(benchmark::State& state) {
  const auto drafter = SuffixDrafter::Create({});
  const std::vector<int32_t> text = MakeText(8000, 1);
  DraftSequenceParams params;
  params.context.prompt_length = 8000;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        (*drafter)->NewSequence(params)->Propose(text, {4}));
  }
}
BENCHMARK(SuffixPrompt)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace specwire
