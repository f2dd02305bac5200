// SPDX-License-Identifier: Apache-2.0

// What ThreadPool::Run costs: on an idle machine, and beside a process that
// keeps one processor busy. Arguments: threads, busy processes.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "bench/busy_processes.h"
#include "common/model/thread_pool.h"

namespace specwire {
namespace {

// Some microseconds of arithmetic that touches no memory.
void Work(int rounds) {
  uint64_t x = 1;
  for (int i = 0; i < rounds; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    benchmark::DoNotOptimize(x);
  }
}

// One empty piece for each thread.
void BM_EmptyRun(benchmark::State& state) {
  const BusyProcesses busy(state.range(1));
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.Run(pool.num_threads(),
             [](int piece, int) { benchmark::DoNotOptimize(piece); });
  }
}

// The same, but every thread does one piece: what handing work over costs.
void BM_HandOver(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    std::atomic<int> missing{pool.num_threads()};
    pool.Run(pool.num_threads(), [&missing](int, int) {
      missing.fetch_sub(1);
      while (missing.load() > 0) {
      }
    });
  }
}

// 200 calls of 16 pieces, about 5 ms of arithmetic on one thread, with gaps in
// which only the caller computes: the shape of a forward pass. Also shows the
// slowest of all passes.
void BM_Pass(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const BusyProcesses busy(state.range(1));
  ThreadPool pool(static_cast<int>(state.range(0)));
  Clock::duration slowest{0};
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    for (int call = 0; call < 200; ++call) {
      pool.Run(16, [](int, int) { Work(1000); });
      Work(500);
    }
    slowest = std::max(slowest, Clock::now() - begin);
  }
  state.counters["slowest_ms"] =
      std::chrono::duration<double, std::milli>(slowest).count();
}

BENCHMARK(BM_EmptyRun)
    ->ArgNames({"threads", "busy"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->UseRealTime();
BENCHMARK(BM_HandOver)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(BM_Pass)
    ->ArgNames({"threads", "busy"})
    ->ArgsProduct({{1, 2}, {0, 1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace specwire
