// SPDX-License-Identifier: Apache-2.0

// batch_bench: tokens a second of the verifier's engine thread by the number of
// streams at once, without gRPC: greedy, all of the same length, with or
// without draft tokens. With --long_prompt also what a long prompt that arrives
// does to the time between tokens.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/model/engine.h"
#include "verifier_node/engine_thread.h"
#include "verifier_node/step_costs.h"
#include "verifier_node/verifier_metrics.h"

namespace specwire::verifier {
namespace {

struct Flags {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::vector<int> streams = {1, 4, 16, 64};
  int threads = 1;
  int prompt_tokens = 32;
  int tokens = 128;
  int repeats = 3;
  int run_length = 4;
  int long_prompt = 0;
  std::string drafts = "none";
};

// Counts the ends of all streams.
class Ends {
 public:
  void Count() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  void Wait(int count) {
    MutexLock lock(&mutex_);
    while (count_ < count) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ = 0;
};

// A stream's peer: proposes as soon as it has a commit.
class Sink final : public DecodeSink {
 public:
  Sink(const Flags& flags,
       int vocab_size,
       int prompt,
       const std::vector<int32_t>* text,
       EngineThread* thread,
       Ends* ends)
      : flags_(flags),
        vocab_size_(vocab_size),
        prompt_(prompt),
        text_(text),
        thread_(thread),
        ends_(ends) {}

  bool Send(const Commit& commit, const StepReport& /*report*/) override {
    tokens.insert(tokens.end(), commit.tokens.begin(), commit.tokens.end());
    times.resize(tokens.size(), absl::Now());
    if (commit.finish == FinishReason::kNone) Propose();
    return true;
  }
  bool SendPrompt(const LogprobRun& /*run*/) override { return true; }
  void Finish(absl::Status status) override {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    ends_->Count();
  }

  EngineThread::StreamId stream = 0;
  std::vector<int32_t> tokens;
  std::vector<absl::Time> times;

 private:
  void Propose() {
    if (flags_.drafts == "none") return;
    Proposal proposal;
    proposal.position = prompt_ + static_cast<int>(tokens.size());
    proposal.based_on = proposal.position;
    for (int i = 0; i < flags_.run_length; ++i) {
      const size_t place = tokens.size() + static_cast<size_t>(i);
      const bool right = flags_.drafts == "good" && place < text_->size();
      proposal.tokens.push_back(
          right ? (*text_)[place]
                : static_cast<int32_t>(random_() %
                                       static_cast<uint32_t>(vocab_size_)));
    }
    thread_->worker()->Post(stream, std::move(proposal), 100);
  }

  const Flags& flags_;
  const int vocab_size_;
  const int prompt_;
  const std::vector<int32_t>* const text_;
  EngineThread* const thread_;
  Ends* const ends_;
  std::mt19937 random_{7};
};

struct Run {
  double seconds = 0;
  std::vector<std::unique_ptr<Sink>> sinks;
};

OpenSequence Open(const Flags& flags, int index, int length, int tokens) {
  OpenSequence open;
  std::mt19937 random(static_cast<uint32_t>(index));
  for (int i = 0; i < length; ++i) {
    open.params.tokens.push_back(static_cast<int32_t>(1000 + random() % 20000));
  }
  open.params.prompt_length = length;
  open.params.max_tokens = tokens;
  open.params.decode_until = 1 << 30;
  open.params.max_draft_rows = flags.run_length;
  open.sampling.temperature = 0;
  return open;
}

// `texts` are what plain decoding gave, for good drafts.
Run RunStreams(const Flags& flags,
               int count,
               const std::vector<std::vector<int32_t>>& texts,
               Engine* engine,
               EngineThread* thread) {
  Run run;
  Ends ends;
  const absl::Time start = absl::Now();
  const auto begin = [&](int index, int length, int tokens) {
    static const std::vector<int32_t> kNothing;
    const auto place = static_cast<size_t>(index);
    run.sinks.push_back(
        std::make_unique<Sink>(flags,
                               engine->info().vocab_size,
                               length,
                               place < texts.size() ? &texts[place] : &kNothing,
                               thread,
                               &ends));
    Sink* const sink = run.sinks.back().get();
    sink->stream = thread->worker()->Open();
    OpenSequence open = Open(flags, index, length, tokens);
    // The run outlives the sequence.
    open.sink = std::shared_ptr<DecodeSink>(std::shared_ptr<void>(), sink);
    thread->worker()->Post(sink->stream, std::move(open), 100);
  };
  for (int i = 0; i < count; ++i) begin(i, flags.prompt_tokens, flags.tokens);
  if (flags.long_prompt > 0) {
    absl::SleepFor(absl::Milliseconds(100 + 15 * count));
    begin(count, flags.long_prompt, 1);
    ends.Wait(count + 1);
  } else {
    ends.Wait(count);
  }
  run.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return run;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q *
                                    static_cast<double>(values.size() - 1))];
}

// Times between the tokens of all streams but the last, while the last, a long
// prompt, was computed, and before that.
void PrintGaps(const Run& run, absl::Duration prompt_time_guess) {
  const absl::Time end = run.sinks.back()->times.back();
  const absl::Time begin = end - prompt_time_guess;
  std::vector<double> before, during;
  for (size_t s = 0; s + 1 < run.sinks.size(); ++s) {
    const std::vector<absl::Time>& times = run.sinks[s]->times;
    for (size_t i = 2; i < times.size(); ++i) {
      const double gap = absl::ToDoubleMilliseconds(times[i] - times[i - 1]);
      if (times[i] <= begin) before.push_back(gap);
      if (times[i - 1] >= begin && times[i] <= end) during.push_back(gap);
    }
  }
  std::printf(
      "  gaps, ms: before p50 %.2f p99 %.2f (%zu); with the prompt p50 "
      "%.2f p99 %.2f (%zu)\n",
      Quantile(before, 0.5),
      Quantile(before, 0.99),
      before.size(),
      Quantile(during, 0.5),
      Quantile(during, 0.99),
      during.size());
}

int Main(const Flags& flags) {
  EngineOptions options;
  options.num_threads = flags.threads;
  auto engine = LoadEngine(flags.model, options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  const auto costs = MeasureStepCosts(engine->get(), kStepCostRows);
  if (!costs.ok()) return 1;
  MetricsRegistry registry;
  VerifierMetrics metrics(&registry);
  const SteadyClock clock;
  EngineThread thread(engine->get(), {.step_costs = *costs}, &clock, &metrics);
  thread.Start();
  double one = 0;
  for (const int count : flags.streams) {
    Flags plain = flags;
    plain.drafts = "none";
    plain.long_prompt = 0;
    std::vector<std::vector<int32_t>> texts;
    const Run warm_up = RunStreams(plain, count, {}, engine->get(), &thread);
    for (const auto& sink : warm_up.sinks) texts.push_back(sink->tokens);
    std::vector<double> rates, ratios;
    bool equal = true;
    for (int i = 0; i < flags.repeats; ++i) {
      const Run run = RunStreams(flags, count, texts, engine->get(), &thread);
      if (flags.drafts != "none") {
        const Run other = RunStreams(plain, count, {}, engine->get(), &thread);
        ratios.push_back(other.seconds / run.seconds);
      }
      for (size_t s = 0; s < texts.size(); ++s) {
        equal = equal && run.sinks[s]->tokens == texts[s];
      }
      rates.push_back(count * flags.tokens / run.seconds);
      if (flags.long_prompt > 0) {
        const absl::Duration took = run.sinks.back()->times.back() -
                                    run.sinks[0]->times[0] -
                                    absl::Milliseconds(100 + 15 * count);
        PrintGaps(run, took);
      }
    }
    const double rate = Quantile(rates, 0.5);
    if (one == 0) one = rate;
    std::printf(
        "%3d streams: %7.1f token/s (%.1f to %.1f), %.2f times the "
        "first; ids %s\n",
        count,
        rate,
        Quantile(rates, 0),
        Quantile(rates, 1),
        rate / one,
        equal ? "equal" : "DIFFER");
    if (!ratios.empty()) {
      std::printf("  %.2f times without drafts (%.2f to %.2f), run by run\n",
                  Quantile(ratios, 0.5),
                  Quantile(ratios, 0),
                  Quantile(ratios, 1));
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace specwire::verifier

int main(int argc, char** argv) {
  specwire::verifier::Flags flags;
  CLI::App app("Tokens a second of the engine thread by streams at once.");
  app.add_option("--model", flags.model, "GGUF file")->capture_default_str();
  app.add_option("--streams", flags.streams, "numbers of streams")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "engine threads")
      ->capture_default_str();
  app.add_option("--prompt_tokens", flags.prompt_tokens, "of each prompt")
      ->capture_default_str();
  app.add_option("--tokens", flags.tokens, "of each completion")
      ->capture_default_str();
  app.add_option("--repeats", flags.repeats, "measurements")
      ->capture_default_str();
  app.add_option("--run_length", flags.run_length, "draft tokens in a proposal")
      ->capture_default_str();
  app.add_option("--drafts", flags.drafts, "draft tokens")
      ->check(CLI::IsMember({"none", "good", "random"}))
      ->capture_default_str();
  app.add_option("--long_prompt",
                 flags.long_prompt,
                 "tokens of a prompt that comes while the others decode")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return specwire::verifier::Main(flags);
}
