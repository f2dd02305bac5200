// SPDX-License-Identifier: Apache-2.0
// What each kernel costs, for each instruction set of this processor, on one
// thread and in the shapes of SmolLM2-135M (some of Llama-3.1-8B's too).
// Weights are walked through so that they come from memory, not from a cache.
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "common/kernels/packing.h"
#include "common/model/float_control.h"

namespace specwire {
namespace {

// More than a last-level cache holds.
constexpr size_t kWeightBytes = size_t{1} << 28;

int64_t Groups(int64_t columns) {
  return (columns + kGroupSize - 1) / kGroupSize;
}

std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> values;
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    values.push_back(static_cast<float>(static_cast<int32_t>(state)) *
                     0x1p-31f);
  }
  return values;
}

std::vector<uint16_t> RandomHalves(int64_t count) {
  std::vector<uint16_t> halves;
  for (const float value : RandomFloats(count)) {
    halves.push_back(FloatToHalf(value));
  }
  return halves;
}

// Rows of int8 activations and their memory.
class Rows {
 public:
  Rows(int64_t rows, int64_t columns)
      : groups_(Groups(columns)), memory_(static_cast<size_t>(rows * groups_)) {
    const auto from = RandomFloats(columns);
    for (int64_t row = 0; row < rows; ++row) {
      BestKernels().quantize(from.data(), columns, View(), row);
    }
  }
  QuantizedRows View() { return {memory_.data(), groups_}; }

 private:
  const int64_t groups_;
  std::vector<QuantizedGroup> memory_;
};

// What the weights of all matrices are windows of.
struct WeightPool {
  LargeBytes weights = RandomBytes(kWeightBytes);
  // Enough for 4-bit weights: two for 16 bytes.
  std::vector<uint16_t> scales =
      std::vector<uint16_t>(kWeightBytes / 8, FloatToHalf(0.01f));
};

struct MatrixShape {
  const char* name;
  int64_t outputs;
  int64_t columns;
};

constexpr MatrixShape kMatrices[] = {{"qkv_960x576", 960, 576},
                                     {"output_576x576", 576, 576},
                                     {"gate_up_3072x576", 3072, 576},
                                     {"down_576x1536", 576, 1536},
                                     {"head_49152x576", 49152, 576},
                                     {"down_4096x14336", 4096, 14336}};

void Linear(benchmark::State& state,
            const Kernels& kernels,
            const WeightPool& pool,
            WeightForm form,
            const MatrixShape& shape,
            int rows) {
  const int64_t groups = Groups(shape.columns);
  const int64_t bytes = PackedWeightBytes(form, shape.outputs, groups);
  const int64_t scales = PackedScales(form, shape.outputs, groups);
  const int64_t copies = static_cast<int64_t>(kWeightBytes) / bytes;
  Rows x(rows, shape.columns);
  std::vector<float> y(static_cast<size_t>(rows * shape.outputs));
  LinearArgs args = {.matrix = {form, shape.outputs, groups, nullptr, nullptr},
                     .x = x.View(),
                     .rows = rows,
                     .y = y.data(),
                     .y_stride = shape.outputs,
                     .add = false};
  int64_t copy = 0;
  for (auto _ : state) {
    args.matrix.weights = pool.weights.get() + copy * bytes;
    args.matrix.scales = pool.scales.data() + copy * scales;
    kernels.linear(
        args, 0, (shape.outputs + kBlockOutputs - 1) / kBlockOutputs);
    benchmark::ClobberMemory();
    copy = (copy + 1) % copies;
  }
  state.SetBytesProcessed(state.iterations() * (bytes + scales * 2));
  state.counters["multiply_adds"] = benchmark::Counter(
      static_cast<double>(shape.outputs * shape.columns * rows),
      benchmark::Counter::kIsIterationInvariantRate);
}

struct HeadShape {
  const char* name;
  int heads;  // that share a KV head
  int head_dim;
  int64_t caches;  // KV heads in the model
};

constexpr HeadShape kHeads[] = {{"3x64", 3, 64, 90}, {"4x128", 4, 128, 256}};

void Attend(benchmark::State& state,
            const Kernels& kernels,
            const HeadShape& shape,
            int context,
            int rows) {
  const int64_t num_blocks = (context + rows + kKvSlots - 1) / kKvSlots;
  const int64_t block_values = 2 * kKvSlots * shape.head_dim;
  // As in the engine: all layers and KV heads of a block side by side.
  const auto cache = RandomHalves(num_blocks * shape.caches * block_values);
  const int64_t width = shape.heads * shape.head_dim;
  const auto queries = RandomFloats(rows * width);
  std::vector<float> out(queries.size());
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<float> scratch(static_cast<size_t>(
      AttendScratch(context, rows, shape.heads, shape.head_dim)));
  AttendArgs args = {.queries = queries.data(),
                     .query_stride = width,
                     .out = out.data(),
                     .out_stride = width,
                     .cache = nullptr,
                     .block_stride = shape.caches * block_values,
                     .blocks = blocks.data(),
                     .first_position = context,
                     .rows = rows,
                     .window = 0,
                     .heads = shape.heads,
                     .head_dim = shape.head_dim,
                     .scale = 0.125f,
                     .scratch = scratch.data()};
  int64_t copy = 0;
  for (auto _ : state) {
    args.cache = cache.data() + copy * block_values;
    kernels.attend(args);
    benchmark::ClobberMemory();
    copy = (copy + 1) % shape.caches;
  }
  state.SetBytesProcessed(state.iterations() * num_blocks * block_values *
                          static_cast<int64_t>(sizeof(uint16_t)));
}

void Quantize(benchmark::State& state, const Kernels& kernels, int64_t n) {
  const auto x = RandomFloats(n);
  Rows out(1, n);
  for (auto _ : state) {
    kernels.quantize(x.data(), n, out.View(), 0);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void RmsNormQuantize(benchmark::State& state,
                     const Kernels& kernels,
                     int64_t n) {
  const auto x = RandomFloats(n);
  Rows out(1, n);
  for (auto _ : state) {
    kernels.rms_norm_quantize(x.data(), x.data(), n, 1e-5f, out.View(), 0);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void GateQuantize(benchmark::State& state, const Kernels& kernels, int64_t n) {
  const auto gate_up = RandomFloats(2 * n);
  Rows out(1, n);
  for (auto _ : state) {
    kernels.gate_quantize(gate_up.data(), n, out.View(), 0);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void Rotate(benchmark::State& state, const Kernels& kernels, int64_t head_dim) {
  auto head = RandomFloats(head_dim);
  // A quarter turn: values keep their size however often they are turned.
  const std::vector<float> cos(static_cast<size_t>(head_dim / 2), 0.0f);
  const std::vector<float> sin(static_cast<size_t>(head_dim / 2), 1.0f);
  for (auto _ : state) {
    kernels.rotate(head.data(), cos.data(), sin.data(), head_dim / 2);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * head_dim);
}

void StoreKv(benchmark::State& state,
             const Kernels& kernels,
             int64_t head_dim) {
  const auto values = RandomFloats(head_dim);
  std::vector<uint16_t> block(static_cast<size_t>(2 * kKvSlots * head_dim));
  int slot = 0;
  for (auto _ : state) {
    kernels.store_kv(
        values.data(), values.data(), head_dim, slot, block.data());
    benchmark::ClobberMemory();
    slot = (slot + 1) % kKvSlots;
  }
  state.SetItemsProcessed(state.iterations() * 2 * head_dim);
}

void ArgMax(benchmark::State& state, const Kernels& kernels, int64_t n) {
  const auto values = RandomFloats(n);
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels.arg_max(values.data(), n));
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void Exp(benchmark::State& state, const Kernels& kernels, int64_t n) {
  const auto x = RandomFloats(n);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    kernels.exp(x.data(), n, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

using Benchmark = std::function<void(benchmark::State&)>;

void Register(const std::string& name, Benchmark run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run));
}

void RegisterLinear(const Kernels& kernels, const WeightPool& pool) {
  for (const WeightForm form : {WeightForm::kInt8, WeightForm::kInt4}) {
    for (const MatrixShape& shape : kMatrices) {
      for (const int rows : {1, 2, 4, 5, 8, 16, 32}) {
        Register(absl::StrCat("linear/",
                              IsaName(kernels.isa),
                              form == WeightForm::kInt8 ? "/int8/" : "/int4/",
                              shape.name,
                              "/rows:",
                              rows),
                 [&kernels, &pool, form, shape, rows](benchmark::State& state) {
                   Linear(state, kernels, pool, form, shape, rows);
                 });
      }
    }
  }
}

void RegisterAttend(const Kernels& kernels) {
  for (const HeadShape& shape : kHeads) {
    for (const int context : {64, 256, 1024, 2048}) {
      for (const int rows : {1, 2, 4, 5, 8, 16}) {
        Register(absl::StrCat("attend/",
                              IsaName(kernels.isa),
                              "/",
                              shape.name,
                              "/context:",
                              context,
                              "/rows:",
                              rows),
                 [&kernels, shape, context, rows](benchmark::State& state) {
                   Attend(state, kernels, shape, context, rows);
                 });
      }
    }
  }
}

void RegisterVector(const Kernels& kernels) {
  using Run = void (*)(benchmark::State&, const Kernels&, int64_t);
  struct Row {
    const char* name;
    Run run;
    std::vector<int64_t> sizes;
  };
  const Row rows[] = {{"quantize", Quantize, {576, 4096}},
                      {"rms_norm_quantize", RmsNormQuantize, {576, 4096}},
                      {"gate_quantize", GateQuantize, {1536, 14336}},
                      {"rotate", Rotate, {64, 128}},
                      {"store_kv", StoreKv, {64, 128}},
                      {"arg_max", ArgMax, {256, 49152}},
                      {"exp", Exp, {4096}}};
  for (const Row& row : rows) {
    for (const int64_t size : row.sizes) {
      Register(absl::StrCat(row.name, "/", IsaName(kernels.isa), "/", size),
               [&kernels, run = row.run, size](benchmark::State& state) {
                 run(state, kernels, size);
               });
    }
  }
}

int Main(int argc, char** argv) {
  // There are hundreds of them. A flag of the user's comes later and counts.
  char min_time[] = "--benchmark_min_time=0.1";
  std::vector<char*> args(argv, argv + argc);
  args.insert(args.begin() + 1, min_time);
  argc = static_cast<int>(args.size());
  args.push_back(nullptr);
  argv = args.data();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  SetFloatControl();
  const WeightPool pool;
  for (const Kernels* kernels : AvailableKernels()) {
    RegisterLinear(*kernels, pool);
    RegisterAttend(*kernels);
    RegisterVector(*kernels);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
