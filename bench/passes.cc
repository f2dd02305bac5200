// SPDX-License-Identifier: Apache-2.0
// What a forward pass costs by its rows, its context and its threads, beside
// the read bandwidth of the machine: interleaved, medians, ratios. One run of
// this program is one machine's table in docs/performance.md.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/measure.h"
#include "common/model/engine.h"

namespace specwire {
namespace {

struct Options {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::string engine = "int8";
  std::vector<int> threads = {1, 2};
  std::vector<int> contexts = {64, 256, 2048};
  std::vector<int> rows = {1, 2, 4, 5, 8, 16, 32};
  int repeats = 15;
};

std::vector<int32_t> SomeTokens(int count, int vocab_size) {
  std::vector<int32_t> tokens;
  uint32_t state = 12345;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    tokens.push_back(
        static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size)));
  }
  return tokens;
}

// Milliseconds of one pass with all arg-maxes, as a greedy verify step has.
double TimePass(Engine* engine,
                KvSequence* kv,
                absl::Span<const int32_t> tokens) {
  std::vector<int32_t> best(tokens.size());
  const ForwardRun run = {.kv = kv,
                          .tokens = tokens,
                          .num_logits = static_cast<int>(tokens.size()),
                          .best = absl::MakeSpan(best)};
  const int length = kv->length();
  const absl::Time start = absl::Now();
  const auto result = engine->Forward({&run, 1});
  const double elapsed = MillisecondsSince(start);
  if (!result.ok()) {
    std::fprintf(
        stderr, "%s\n", std::string(result.status().message()).c_str());
    std::exit(1);
  }
  kv->Truncate(length);
  return elapsed;
}

double Prefill(Engine* engine, KvSequence* kv, absl::Span<const int32_t> text) {
  const absl::Time start = absl::Now();
  while (!text.empty()) {
    const auto chunk = text.first(std::min<size_t>(text.size(), 512));
    text.remove_prefix(chunk.size());
    const ForwardRun run = {.kv = kv, .tokens = chunk};
    if (!engine->Forward({&run, 1}).ok()) std::exit(1);
  }
  return MillisecondsSince(start);
}

void Table(const Options& options, int threads) {
  EngineOptions engine_options;
  engine_options.engine = options.engine;
  engine_options.num_threads = threads;
  auto engine = LoadEngine(options.model, engine_options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    std::exit(1);
  }
  std::printf("\n%s, %d thread(s); read bandwidth %.1f GB/s\n",
              (*engine)->info().engine.c_str(),
              threads,
              ReadBandwidth(threads) / 1e9);
  std::printf("%8s", "context");
  for (const int rows : options.rows) std::printf("  %13d", rows);
  std::printf("  rows: ms (x one row)\n");
  for (const int context : options.contexts) {
    const auto text = SomeTokens(context + 64, (*engine)->info().vocab_size);
    const auto kv = (*engine)->NewSequence();
    const double prefill = Prefill(
        engine->get(), kv.get(), absl::MakeConstSpan(text).first(context));
    std::vector<std::vector<double>> times(options.rows.size());
    for (int i = 0; i < options.repeats; ++i) {
      for (size_t j = 0; j < options.rows.size(); ++j) {
        times[j].push_back(TimePass(engine->get(),
                                    kv.get(),
                                    absl::MakeConstSpan(text).subspan(
                                        static_cast<size_t>(context),
                                        static_cast<size_t>(options.rows[j]))));
      }
    }
    std::printf("%8d", context);
    for (const auto& of_rows : times) {
      std::printf("  %6.2f (%4.2f)",
                  Median(of_rows),
                  Median(of_rows) / Median(times[0]));
    }
    std::printf("  prefill %.0f tokens/s\n", context / prefill * 1e3);
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times forward passes by rows, context and threads."};
  app.add_option("--model", options.model, "GGUF file")->capture_default_str();
  app.add_option("--engine", options.engine, "int8 or reference")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "thread counts")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--contexts", options.contexts, "positions in the cache")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option(
         "--rows", options.rows, "rows of a pass; ratios are to the first")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "passes of each kind")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const int threads : options.threads) Table(options, threads);
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
