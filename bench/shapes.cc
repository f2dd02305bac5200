// SPDX-License-Identifier: Apache-2.0
// What a pass costs by its rows in the shapes of larger models, on weights
// without a meaning, and the speed-up that speculation could then reach at
// most. docs/performance.md explains the tables.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/measure.h"
#include "bench/random_model.h"
#include "common/kernels/kernels.h"
#include "common/model/config.h"
#include "common/model/float_control.h"

namespace specwire {
namespace {

struct Shape {
  const char* name;
  int num_layers;
  int hidden_size;
  int intermediate_size;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int vocab_size;
};

constexpr Shape kShapes[] = {
    {"SmolLM2-135M", 30, 576, 1536, 9, 3, 64, 49152},
    {"SmolLM2-360M", 32, 960, 2560, 15, 5, 64, 49152},
    {"SmolLM2-1.7B", 24, 2048, 8192, 32, 32, 64, 49152},
    {"Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128256},
    {"Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256},
};

// Small models get more passes than they are asked for.
constexpr double kLeastMilliseconds = 1000;

// Chances that a draft token is right, given that those before it were.
constexpr double kSurvivals[] = {0.6, 0.7, 0.8};

struct Options {
  std::vector<std::string> models;
  std::string form = "int8";
  std::string isa;
  std::vector<int> threads = {1, 2};
  std::vector<int> rows = {1, 5, 8, 16};
  int context = 256;
  int repeats = 9;
  bool json = false;
};

ModelConfig ConfigOf(const Shape& shape) {
  ModelConfig config;
  config.architecture = "llama";
  config.num_layers_in_file = shape.num_layers;
  config.num_layers = shape.num_layers;
  config.hidden_size = shape.hidden_size;
  config.intermediate_size = shape.intermediate_size;
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_dim = shape.head_dim;
  config.rms_norm_eps = 1e-5f;
  config.rope_theta = 10000.0f;
  config.attention_scale =
      1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.max_position_embeddings = 8192;
  config.vocab_size = shape.vocab_size;
  return config;
}

struct Speedup {
  double survival = 0;
  double factor = 1;
  int run_length = 0;
};

// What one thread count measured.
struct Result {
  int threads = 0;
  double read_bandwidth = 0;    // bytes a second
  double weight_bandwidth = 0;  // the same, of the weights in a one-row pass
  std::vector<double> milliseconds;  // one for each of Options::rows
  std::vector<Speedup> speedups;     // one for each of kSurvivals

  double Ratio(size_t i) const { return milliseconds[i] / milliseconds[0]; }
};

// The cost of a pass of `rows` rows in passes of one row: straight lines
// between the measured points.
double CostOf(int rows,
              const std::vector<int>& measured,
              const Result& result) {
  size_t i = 1;
  while (measured[i] < rows) ++i;
  const double part = static_cast<double>(rows - measured[i - 1]) /
                      (measured[i] - measured[i - 1]);
  return result.Ratio(i - 1) + part * (result.Ratio(i) - result.Ratio(i - 1));
}

// The best of all run lengths k: tokens a pass, 1 + a + ... + a^k, by the cost
// of k + 1 rows. Drafts, messages and sampling cost nothing here.
Speedup BestSpeedup(double survival,
                    const std::vector<int>& measured,
                    const Result& result) {
  Speedup best;
  best.survival = survival;
  double tokens = 1;
  double survives = 1;
  for (int k = 1; measured.size() > 1 && k < measured.back(); ++k) {
    survives *= survival;
    tokens += survives;
    const double factor = tokens / CostOf(k + 1, measured, result);
    if (factor > best.factor) {
      best.factor = factor;
      best.run_length = k;
    }
  }
  return best;
}

Result Measure(const Options& options,
               const Kernels& kernels,
               int threads,
               int64_t weight_bytes,
               RandomModel* model) {
  Result result;
  result.threads = threads;
  result.read_bandwidth = ReadBandwidth(threads);
  model->Prepare(kernels, threads, options.context);
  for (const int rows : options.rows) model->Forward(rows);
  std::vector<std::vector<double>> times(options.rows.size());
  const absl::Time begin = absl::Now();
  for (int repeat = 0; repeat < options.repeats ||
                       MillisecondsSince(begin) < kLeastMilliseconds;
       ++repeat) {
    for (size_t i = 0; i < times.size(); ++i) {
      const absl::Time start = absl::Now();
      model->Forward(options.rows[i]);
      times[i].push_back(MillisecondsSince(start));
    }
  }
  for (const auto& of_rows : times) {
    result.milliseconds.push_back(Median(of_rows));
  }
  // Noise only takes from it.
  result.read_bandwidth =
      std::max(result.read_bandwidth, ReadBandwidth(threads));
  result.weight_bandwidth =
      static_cast<double>(weight_bytes) / result.milliseconds[0] * 1e3;
  for (const double survival : kSurvivals) {
    result.speedups.push_back(BestSpeedup(survival, options.rows, result));
  }
  return result;
}

void PrintHeader(const Options& options, const Shape& shape, int64_t bytes) {
  std::printf("\n%s, %s, %.2f GB of weights, context %d\n",
              shape.name,
              options.form.c_str(),
              static_cast<double>(bytes) / 1e9,
              options.context);
  std::printf("| threads |");
  for (const int rows : options.rows) {
    std::printf(" %d row%s, ms |", rows, rows == 1 ? "" : "s");
  }
  std::printf(" weights, GB/s (of read) |");
  for (const double survival : kSurvivals) {
    std::printf(" at %.1f |", survival);
  }
  std::printf("\n|");
  for (size_t i = 0; i < 2 + options.rows.size() + std::size(kSurvivals); ++i) {
    std::printf(" --- |");
  }
  std::printf("\n");
}

void PrintRow(const Result& result) {
  std::printf("| %d |", result.threads);
  for (size_t i = 0; i < result.milliseconds.size(); ++i) {
    std::printf(" %.2f", result.milliseconds[i]);
    if (i > 0) std::printf(" (%.2f)", result.Ratio(i));
    std::printf(" |");
  }
  std::printf(" %.1f (%.0f %%) |",
              result.weight_bandwidth / 1e9,
              100 * result.weight_bandwidth / result.read_bandwidth);
  for (const Speedup& speedup : result.speedups) {
    std::printf(" %.2f @ %d |", speedup.factor, speedup.run_length);
  }
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::json ToJson(const Options& options, const Result& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < options.rows.size(); ++i) {
    rows.push_back({{"rows", options.rows[i]},
                    {"milliseconds", result.milliseconds[i]},
                    {"ratio", result.Ratio(i)}});
  }
  nlohmann::json speedups = nlohmann::json::array();
  for (const Speedup& speedup : result.speedups) {
    speedups.push_back({{"survival", speedup.survival},
                        {"speedup", speedup.factor},
                        {"run_length", speedup.run_length}});
  }
  return {{"threads", result.threads},
          {"passes", rows},
          {"read_gb_per_second", result.read_bandwidth / 1e9},
          {"weights_gb_per_second", result.weight_bandwidth / 1e9},
          {"speedups", speedups}};
}

// One model at all thread counts. Its memory is freed at the end.
nlohmann::json MeasureShape(const Options& options,
                            const Kernels& kernels,
                            const Shape& shape) {
  const ModelConfig config = ConfigOf(shape);
  const WeightForm form =
      options.form == "int4" ? WeightForm::kInt4 : WeightForm::kInt8;
  const int64_t bytes = RandomModel::WeightBytes(config, form);
  nlohmann::json json = {{"name", shape.name},
                         {"weight_bytes", bytes},
                         {"threads", nlohmann::json::array()}};
  // The bandwidth's own memory and the cache come on top.
  if (bytes + (int64_t{1} << 30) > AvailableMemory()) {
    std::fprintf(stderr,
                 "%s left out: needs %.1f GiB of memory\n",
                 shape.name,
                 static_cast<double>(bytes) / 0x1p30 + 1);
    json["left_out"] = "too little memory";
    return json;
  }
  if (!options.json) PrintHeader(options, shape, bytes);
  RandomModel model(config, form);
  for (const int threads : options.threads) {
    const Result result = Measure(options, kernels, threads, bytes, &model);
    json["threads"].push_back(ToJson(options, result));
    if (!options.json) PrintRow(result);
  }
  return json;
}

// Null if the processor lacks it.
const Kernels* KernelsByName(const std::string& name) {
  const auto available = AvailableKernels();
  if (name.empty()) return available.back();
  for (const Kernels* kernels : available) {
    if (name == IsaName(kernels->isa)) return kernels;
  }
  return nullptr;
}

void AddFlags(CLI::App* app, Options* options) {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  options->models = names;
  app->add_option("--models", options->models, "shapes to measure")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  app->add_option("--form", options->form, "how weights are stored")
      ->check(CLI::IsMember({"int8", "int4"}))
      ->capture_default_str();
  app->add_option("--isa", options->isa, "instruction set; default: the best")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512vnni"}));
  app->add_option("--threads", options->threads, "thread counts")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--rows", options->rows, "rows of a pass; 1 is always there")
      ->delimiter(',')
      ->check(CLI::Range(1, RandomModel::kMaxRows))
      ->capture_default_str();
  app->add_option("--context", options->context, "positions in the cache")
      ->check(CLI::Range(0, 8192))
      ->capture_default_str();
  app->add_option("--repeats", options->repeats, "passes of each kind at least")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app->add_flag("--json", options->json, "print one JSON object instead");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times passes in the shapes of several models."};
  AddFlags(&app, &options);
  CLI11_PARSE(app, argc, argv);
  options.rows.push_back(1);
  std::sort(options.rows.begin(), options.rows.end());
  options.rows.erase(std::unique(options.rows.begin(), options.rows.end()),
                     options.rows.end());
  const Kernels* const kernels = KernelsByName(options.isa);
  if (kernels == nullptr) {
    std::fprintf(stderr,
                 "--isa: this processor cannot compute with %s\n",
                 options.isa.c_str());
    return 2;
  }
  SetFloatControl();
  nlohmann::json json = {{"isa", IsaName(kernels->isa)},
                         {"form", options.form},
                         {"context", options.context},
                         {"repeats", options.repeats},
                         {"models", nlohmann::json::array()}};
  if (!options.json) std::printf("%s\n", IsaName(kernels->isa));
  for (const Shape& shape : kShapes) {
    if (std::count(options.models.begin(), options.models.end(), shape.name)) {
      json["models"].push_back(MeasureShape(options, *kernels, shape));
    }
  }
  if (options.json) std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
