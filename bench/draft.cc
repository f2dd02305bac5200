// SPDX-License-Identifier: Apache-2.0
// What a model drafter makes of several sequences at once: draft tokens a
// second, interleaved, medians.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bench/measure.h"
#include "common/model/engine.h"
#include "common/model_drafting/model_drafter.h"

namespace specwire::draft {
namespace {

struct Options {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  EngineOptions engine;
  std::vector<int> sequences = {1, 4, 16, 64};
  std::vector<int> threads = {1, 2};
  int context = 128;
  int run_length = 5;
  int proposals = 8;
  int repeats = 7;
  double temperature = 0;
  bool cpu_time = false;
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::vector<int32_t> SomeTokens(int count, uint32_t seed, int vocab_size) {
  std::vector<int32_t> tokens;
  uint32_t state = seed;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    tokens.push_back(
        static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size)));
  }
  return tokens;
}

// Sequences whose proposals are all accepted.
class Batch {
 public:
  Batch(ModelDrafter* drafter, const Options& options, int size, int vocab_size)
      : drafter_(drafter), options_(options) {
    for (int i = 0; i < size; ++i) {
      DraftSequenceParams params;
      params.sampling.temperature = static_cast<float>(options.temperature);
      params.sampling.seed = i;
      params.tenant_salt = std::to_string(i);
      sequences_.push_back(
          {.drafter = drafter->NewSequence(params),
           .path = SomeTokens(
               options.context, static_cast<uint32_t>(i), vocab_size)});
    }
    // The prompts.
    Draft(1);
  }

  // Draft tokens a second.
  double Rate() {
    const double start = Milliseconds();
    int64_t num_tokens = 0;
    for (int i = 0; i < options_.proposals; ++i) {
      num_tokens += Draft(options_.run_length);
    }
    return static_cast<double>(num_tokens) / (Milliseconds() - start) * 1e3;
  }

 private:
  struct Sequence {
    std::unique_ptr<DraftSequence> drafter;
    std::vector<int32_t> path;
  };

  double Milliseconds() const {
    timespec now;
    clock_gettime(
        options_.cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return absl::ToDoubleMilliseconds(absl::DurationFromTimespec(now));
  }

  // A proposal for each sequence; returns their tokens.
  int64_t Draft(int run_length) {
    std::vector<Sequence*> left;
    for (Sequence& sequence : sequences_) left.push_back(&sequence);
    int64_t num_tokens = 0;
    while (!left.empty()) {
      std::vector<DraftTask> tasks;
      for (const Sequence* sequence : left) {
        tasks.push_back({.sequence = sequence->drafter.get(),
                         .path = sequence->path,
                         .limits = {.max_tokens = run_length}});
      }
      drafter_->Propose(absl::MakeSpan(tasks));
      std::vector<Sequence*> unfinished;
      for (size_t i = 0; i < tasks.size(); ++i) {
        if (!tasks[i].result.has_value()) {
          unfinished.push_back(left[i]);
          continue;
        }
        if (!tasks[i].result->ok()) Fail(tasks[i].result->status());
        const std::vector<int32_t>& tokens = (*tasks[i].result)->tokens;
        num_tokens += static_cast<int64_t>(tokens.size());
        left[i]->path.insert(left[i]->path.end(), tokens.begin(), tokens.end());
      }
      left = std::move(unfinished);
    }
    return num_tokens;
  }

  ModelDrafter* const drafter_;
  const Options options_;
  std::vector<Sequence> sequences_;
};

void Run(Options options) {
  for (const int threads : options.threads) {
    options.engine.num_threads = threads;
    options.engine.allow_draft_model = true;
    auto engine = LoadEngine(options.model, options.engine);
    if (!engine.ok()) Fail(engine.status());
    const int vocab_size = (*engine)->info().vocab_size;
    auto drafter = ModelDrafter::Create(*std::move(engine), {});
    if (!drafter.ok()) Fail(drafter.status());
    std::vector<std::vector<double>> rates(options.sequences.size());
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      for (size_t i = 0; i < rates.size(); ++i) {
        rates[i].push_back(
            Batch(drafter->get(), options, options.sequences[i], vocab_size)
                .Rate());
      }
    }
    const double one = Median(rates[0]);
    std::printf("%d threads, %d layers, context %d, runs of %d\n",
                threads,
                options.engine.num_layers,
                options.context,
                options.run_length);
    std::printf("%10s %16s %8s\n", "sequences", "draft tokens/s", "ratio");
    for (size_t i = 0; i < rates.size(); ++i) {
      const double rate = Median(rates[i]);
      std::printf(
          "%10d %16.0f %8.2f\n", options.sequences[i], rate, rate / one);
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  options.engine.num_layers = 4;
  CLI::App app("Draft tokens a second of a model drafter by sequences.");
  app.add_option("--model", options.model);
  app.add_option("--engine", options.engine.engine)->capture_default_str();
  app.add_option("--draft_layers", options.engine.num_layers)
      ->capture_default_str();
  app.add_option("--sequences", options.sequences, "at most 64 each")
      ->delimiter(',')
      ->check(CLI::Range(1, ModelDrafter::kMaxBatch));
  app.add_option("--threads", options.threads)->delimiter(',');
  app.add_option("--context", options.context)->capture_default_str();
  app.add_option("--run_length", options.run_length)->capture_default_str();
  app.add_option("--temperature", options.temperature)->capture_default_str();
  app.add_option("--repeats", options.repeats)->capture_default_str();
  app.add_flag("--cpu_time",
               options.cpu_time,
               "processor time, for a busy machine; of one thread only");
  CLI11_PARSE(app, argc, argv);
  Run(options);
  return 0;
}

}  // namespace
}  // namespace specwire::draft

int main(int argc, char** argv) { return specwire::draft::Main(argc, argv); }
