// SPDX-License-Identifier: Apache-2.0
// What a forward pass costs by its rows, its sequences, its context and its
// threads, beside the read bandwidth of the machine: interleaved, medians,
// ratios. One run of this program is one machine's tables in
// docs/performance.md.
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/time/time.h"
#include "bench/measure.h"
#include "common/model/engine.h"

namespace specwire {
namespace {

struct Options {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::string engine = "int8";
  std::vector<std::string> tables = {"rows", "sequences", "mixed"};
  std::vector<int> threads = {1, 2};
  std::vector<int> contexts = {64, 256, 2048};
  std::vector<int> rows = {1, 2, 4, 5, 8, 16, 32};
  std::vector<int> sequences = {1, 4, 16, 64};
  std::vector<int> rows_each = {1, 2, 5};
  int batch_context = 256;
  int repeats = 15;
  bool cpu_time = false;
};

// What is in a pass: sequences of `rows` rows each behind `context` positions,
// all logits wanted, as greedy verify steps have; and a part of a prompt, none
// wanted.
struct Batch {
  int sequences = 1;
  int rows = 1;
  int context = 0;
  int chunk_rows = 0;
  int chunk_context = 0;

  int decode_rows() const { return sequences * rows; }
  // The positions that each row sees, summed over the rows.
  double decode_positions() const { return sequences * Sum(context, rows); }
  double chunk_positions() const { return Sum(chunk_context, chunk_rows); }

  static double Sum(int behind, int count) {
    return count * (behind + 0.5 * (count + 1));
  }
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

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

// A model's passes over sequences that it keeps.
class Passes {
 public:
  Passes(Engine* engine, bool cpu_time)
      : engine_(engine),
        cpu_time_(cpu_time),
        text_(SomeTokens(engine->info().max_model_len,
                         engine->info().vocab_size)) {}

  // Milliseconds of one pass; afterwards the sequences are as before.
  double Time(const Batch& batch) {
    std::vector<int32_t> best(static_cast<size_t>(batch.decode_rows()));
    std::vector<ForwardRun> runs;
    for (int i = 0; i < batch.sequences; ++i) {
      runs.push_back({.kv = At(batch.context, i),
                      .tokens = Text(batch.context, batch.rows),
                      .num_logits = batch.rows,
                      .best = absl::MakeSpan(best).subspan(
                          runs.size() * static_cast<size_t>(batch.rows),
                          static_cast<size_t>(batch.rows))});
    }
    if (batch.chunk_rows > 0) {
      // No sequence of the others.
      runs.push_back({.kv = At(batch.chunk_context, 1000),
                      .tokens = Text(batch.chunk_context, batch.chunk_rows)});
    }
    const double start = Milliseconds();
    const auto result = engine_->Forward(runs);
    const double elapsed = Milliseconds() - start;
    if (!result.ok()) Fail(result.status());
    for (const ForwardRun& run : runs) {
      run.kv->Truncate(run.kv->length() - static_cast<int>(run.tokens.size()));
    }
    return elapsed;
  }

  // Medians, of all in turn.
  std::vector<double> Times(const std::vector<Batch>& batches, int repeats) {
    std::vector<std::vector<double>> times(batches.size());
    for (int i = 0; i < repeats + 1; ++i) {
      for (size_t j = 0; j < batches.size(); ++j) {
        const double time = Time(batches[j]);
        // The first round makes the sequences.
        if (i > 0) times[j].push_back(time);
      }
    }
    std::vector<double> medians;
    for (auto& of_batch : times) medians.push_back(Median(std::move(of_batch)));
    return medians;
  }

  // Prompt tokens computed in a second.
  double PrefillRate(int context) {
    const auto kv = engine_->NewSequence();
    const double start = Milliseconds();
    Prefill(kv.get(), context);
    return context / (Milliseconds() - start) * 1e3;
  }

  // So that the next table has all of the cache.
  void Clear() { sequences_.clear(); }

 private:
  double Milliseconds() const {
    timespec now;
    clock_gettime(cpu_time_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return absl::ToDoubleMilliseconds(absl::DurationFromTimespec(now));
  }

  absl::Span<const int32_t> Text(int first, int count) const {
    return absl::MakeConstSpan(text_).subspan(static_cast<size_t>(first),
                                              static_cast<size_t>(count));
  }

  void Prefill(KvSequence* kv, int context) {
    while (kv->length() < context) {
      const ForwardRun run = {
          .kv = kv,
          .tokens = Text(kv->length(),
                         std::min(context - kv->length(), +Engine::kMaxRows))};
      const auto result = engine_->Forward({&run, 1});
      if (!result.ok()) Fail(result.status());
    }
  }

  // The sequence of this number behind `context` positions.
  KvSequence* At(int context, int number) {
    auto& kv = sequences_[{context, number}];
    if (kv == nullptr) {
      kv = engine_->NewSequence();
      Prefill(kv.get(), context);
    }
    return kv.get();
  }

  Engine* const engine_;
  const bool cpu_time_;
  const std::vector<int32_t> text_;
  std::map<std::pair<int, int>, std::unique_ptr<KvSequence>> sequences_;
};

void RowsTable(const Options& options, Passes* passes) {
  std::printf("%8s", "context");
  for (const int rows : options.rows) std::printf("  %13d", rows);
  std::printf("  rows: ms (x one row)\n");
  for (const int context : options.contexts) {
    const double rate = passes->PrefillRate(context);
    std::vector<Batch> batches;
    for (const int rows : options.rows) {
      batches.push_back({.rows = rows, .context = context});
    }
    const auto times = passes->Times(batches, options.repeats);
    std::printf("%8d", context);
    for (const double time : times) {
      std::printf("  %6.2f (%4.2f)", time, time / times[0]);
    }
    std::printf("  prefill %.0f tokens/s\n", rate);
    passes->Clear();
  }
}

void SequencesTable(const Options& options, Passes* passes) {
  std::vector<Batch> batches;
  for (const int sequences : options.sequences) {
    for (const int rows : options.rows_each) {
      batches.push_back({.sequences = sequences,
                         .rows = rows,
                         .context = options.batch_context});
    }
  }
  const auto times = passes->Times(batches, options.repeats);
  std::printf("context %d; ms, rows/s (x the first)\n%9s",
              options.batch_context,
              "sequences");
  for (const int rows : options.rows_each) {
    std::printf("  %17d rows each", rows);
  }
  const double first = batches[0].decode_rows() / times[0];
  for (size_t i = 0; i < batches.size(); ++i) {
    if (i % options.rows_each.size() == 0)
      std::printf("\n%9d", batches[i].sequences);
    std::printf("  %8.2f %7.0f (%6.2f)",
                times[i],
                batches[i].decode_rows() / times[i] * 1e3,
                batches[i].decode_rows() / times[i] / first);
  }
  std::printf("\n");
  passes->Clear();
}

// The part of a pass's time that each of its counts explains, by least squares
// of relative errors.
class TimeModel {
 public:
  static constexpr size_t kTerms = 5;
  using Terms = std::array<double, kTerms>;

  TimeModel(const std::vector<Batch>& batches,
            const std::vector<double>& times) {
    std::array<Terms, kTerms> matrix = {};
    Terms right = {};
    for (size_t i = 0; i < batches.size(); ++i) {
      const Terms of_batch = TermsOf(batches[i]);
      for (size_t j = 0; j < kTerms; ++j) {
        for (size_t k = 0; k < kTerms; ++k) {
          matrix[j][k] += of_batch[j] * of_batch[k] / (times[i] * times[i]);
        }
        right[j] += of_batch[j] / times[i];
      }
    }
    Solve(&matrix, &right);
    factors_ = right;
  }

  double Predict(const Batch& batch) const {
    const Terms terms = TermsOf(batch);
    double time = 0;
    for (size_t j = 0; j < kTerms; ++j) time += factors_[j] * terms[j];
    return time;
  }

  const Terms& factors() const { return factors_; }

 private:
  static Terms TermsOf(const Batch& batch) {
    return {1,
            static_cast<double>(batch.decode_rows() + batch.chunk_rows),
            static_cast<double>(batch.decode_rows()),
            batch.decode_positions(),
            batch.chunk_positions()};
  }

  // Gauss-Jordan elimination; the matrix is symmetric and positive.
  static void Solve(std::array<Terms, kTerms>* matrix, Terms* right) {
    for (size_t j = 0; j < kTerms; ++j) {
      for (size_t i = 0; i < kTerms; ++i) {
        if (i == j) continue;
        const double factor = (*matrix)[i][j] / (*matrix)[j][j];
        for (size_t k = 0; k < kTerms; ++k) {
          (*matrix)[i][k] -= factor * (*matrix)[j][k];
        }
        (*right)[i] -= factor * (*right)[j];
      }
    }
    for (size_t j = 0; j < kTerms; ++j) (*right)[j] /= (*matrix)[j][j];
  }

  Terms factors_;
};

// Sixteen sequences that decode, beside part of a prompt: what a scheduler that
// mixes both has to reckon with.
void MixedTable(const Options& options, Passes* passes) {
  constexpr std::array<int, 5> kChunkRows = {0, 16, 32, 64, 128};
  constexpr std::array<int, 3> kChunkContexts = {0, 1000, 3500};
  std::vector<Batch> batches;
  for (const int context : kChunkContexts) {
    for (const int rows : kChunkRows) {
      batches.push_back({.sequences = 16,
                         .context = options.batch_context,
                         .chunk_rows = rows,
                         .chunk_context = context});
    }
  }
  const size_t shown = batches.size();
  // So that the model can tell rows from positions. With fewer rows time is
  // that of reading the weights.
  for (const int sequences : {8, 32, 64}) {
    for (const int context : {1, options.batch_context, 1000}) {
      batches.push_back({.sequences = sequences, .context = context});
    }
  }
  const auto times = passes->Times(batches, options.repeats);
  const TimeModel model(batches, times);
  std::printf("16 sequences of one row at context %d and a chunk: ms (model)\n",
              options.batch_context);
  std::printf("%13s", "chunk context");
  for (const int rows : kChunkRows) std::printf("  %10d rows", rows);
  double worst = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double predicted = model.Predict(batches[i]);
    worst = std::max(worst, std::abs(predicted / times[i] - 1));
    if (i >= shown) continue;
    if (i % kChunkRows.size() == 0) {
      std::printf("\n%13d", batches[i].chunk_context);
    }
    std::printf("  %6.2f (%5.2f)", times[i], predicted);
  }
  std::printf(
      "\nmodel: %.3f ms + %.4f a row + %.4f a row with logits + per thousand "
      "positions seen %.4f (sequences) and %.4f (chunk); off by at most %.0f "
      "%%\n",
      model.factors()[0],
      model.factors()[1],
      model.factors()[2],
      model.factors()[3] * 1e3,
      model.factors()[4] * 1e3,
      worst * 100);
  passes->Clear();
}

void Tables(const Options& options, int threads) {
  EngineOptions engine_options;
  engine_options.engine = options.engine;
  engine_options.num_threads = threads;
  // Reserved, not used.
  engine_options.kv_cache_mib = 4096;
  auto engine = LoadEngine(options.model, engine_options);
  if (!engine.ok()) Fail(engine.status());
  std::printf("\n%s, %d thread(s); read bandwidth %.1f GB/s\n",
              (*engine)->info().engine.c_str(),
              threads,
              ReadBandwidth(threads) / 1e9);
  Passes passes(engine->get(), options.cpu_time);
  for (const std::string& table : options.tables) {
    if (table == "rows") RowsTable(options, &passes);
    if (table == "sequences") SequencesTable(options, &passes);
    if (table == "mixed") MixedTable(options, &passes);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times forward passes by rows, sequences, context and threads."};
  app.add_option("--model", options.model, "GGUF file")->capture_default_str();
  app.add_option("--engine", options.engine, "int8 or reference")
      ->capture_default_str();
  app.add_option("--tables", options.tables, "which tables")
      ->delimiter(',')
      ->check(CLI::IsMember({"rows", "sequences", "mixed"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "thread counts")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option(
         "--contexts", options.contexts, "positions in the cache, table rows")
      ->delimiter(',')
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--rows",
                 options.rows,
                 "rows of a pass, table rows; ratios are to the first")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--sequences", options.sequences, "of a pass, table sequences")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option(
         "--rows_each", options.rows_each, "of a sequence, table sequences")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--batch_context",
                 options.batch_context,
                 "positions in the cache, tables sequences and mixed")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "passes of each kind")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--cpu_time",
               options.cpu_time,
               "processor time, for one thread beside busy neighbours");
  CLI11_PARSE(app, argc, argv);
  for (const int threads : options.threads) Tables(options, threads);
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
