// SPDX-License-Identifier: Apache-2.0

// fault_matrix: strikes a cluster of real processes with every fault, in every
// phase, and compares what clients saw with plain decoding.

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "tests/faults/cell.h"
#include "tests/faults/client.h"
#include "tests/faults/episode.h"
#include "tests/faults/recovery.h"
#include "tests/faults/table.h"

namespace specwire::faults {
namespace {

struct Flags {
  std::string bin;
  bool full = false;
  bool pairwise = false;
  bool recovery = false;
  std::vector<std::string> cells;
  uint64_t seed = 1;
  int jobs = 4;
  int kills = 50;
  std::string table;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--bin", flags->bin, "folder of the programs")->required();
  app->add_flag("--full", flags->full, "run every cell");
  app->add_flag("--pairwise",
                flags->pairwise,
                "run a set of cells in which every pair occurs of target and "
                "fault, target and phase, fault and phase");
  app->add_option("--cell", flags->cells, "run TARGET/FAULT/PHASE; repeatable");
  app->add_flag("--recovery",
                flags->recovery,
                "measure how long streams pause when a node is lost");
  app->add_option("--kills", flags->kills, "losses of each kind to measure")
      ->capture_default_str();
  app->add_option("--seed", flags->seed, "of all that is random")
      ->capture_default_str();
  app->add_option("--jobs", flags->jobs, "clusters at once")
      ->capture_default_str();
  app->add_option("--table", flags->table, "Markdown file to write");
}

// A cell's own seed, the same in every selection.
uint64_t SeedOf(const Cell& cell, uint64_t seed) {
  const auto number = (static_cast<uint64_t>(cell.target) * 100 +
                       static_cast<uint64_t>(cell.fault)) *
                          100 +
                      static_cast<uint64_t>(cell.phase);
  return seed * 1000003 + number * 7919;
}

void Report(const Outcome& outcome, uint64_t seed) {
  std::cout << (outcome.verdict.ok() ? "ok    " : "FAILED ")
            << ToString(outcome.cell) << "  "
            << absl::FormatDuration(
                   absl::Trunc(outcome.verdict.took, absl::Milliseconds(1)))
            << std::endl;
  if (outcome.verdict.ok()) return;
  for (const std::string& problem : outcome.verdict.problems) {
    std::cout << "    " << problem << std::endl;
  }
  std::cout << "    again: fault_matrix --bin BIN --cell "
            << ToString(outcome.cell) << " --seed " << seed << std::endl;
}

std::vector<Outcome> RunCells(const std::vector<Cell>& cells,
                              const Flags& flags,
                              const Programs& programs) {
  std::vector<Outcome> outcomes(cells.size());
  std::atomic<size_t> next = 0;
  Mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < flags.jobs; ++i) {
    threads.emplace_back([&] {
      for (size_t n = next++; n < cells.size(); n = next++) {
        outcomes[n] = {
            cells[n],
            RunCell(cells[n], SeedOf(cells[n], flags.seed), programs)};
        MutexLock lock(&mutex);
        Report(outcomes[n], flags.seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

int RunMatrix(const std::vector<Cell>& cells,
              const Flags& flags,
              const Programs& programs) {
  const absl::Time begin = absl::Now();
  const std::vector<Outcome> outcomes = RunCells(cells, flags, programs);
  std::cout << Summary(outcomes, flags.seed) << " in "
            << absl::FormatDuration(
                   absl::Trunc(absl::Now() - begin, absl::Seconds(1)))
            << std::endl;
  if (!flags.table.empty()) {
    std::ofstream(flags.table) << MakeTable(outcomes, flags.seed);
  }
  for (const Outcome& outcome : outcomes) {
    if (!outcome.verdict.ok()) return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  // Itself as a client.
  if (argc == 7 && std::string(argv[1]) == "client") {
    return RunClient(argv[2], {argv[3], argv[4], argv[5]}, argv[6]);
  }
  CLI::App app("Strikes a cluster with faults and checks what clients saw.",
               "fault_matrix");
  Flags flags;
  AddFlags(&app, &flags);
  CLI11_PARSE(app, argc, argv);
  const PauseWatch pauses;
  const Programs programs = {
      flags.bin,
      std::filesystem::read_symlink("/proc/self/exe").string(),
      &pauses};
  std::vector<Cell> cells;
  for (const std::string& text : flags.cells) {
    const absl::StatusOr<Cell> cell = ParseCell(text);
    if (!cell.ok()) {
      std::cerr << "fault_matrix: " << cell.status().message() << std::endl;
      return 2;
    }
    cells.push_back(*cell);
  }
  if (flags.pairwise) cells = PairwiseCells(flags.seed);
  if (flags.full) cells = AllCells();
  if (flags.recovery) {
    return MeasureRecovery(flags.kills, flags.seed, programs);
  }
  if (cells.empty()) {
    std::cerr << "fault_matrix: one of --full, --pairwise, --recovery, --cell"
              << std::endl;
    return 2;
  }
  return RunMatrix(cells, flags, programs);
}

}  // namespace
}  // namespace specwire::faults

int main(int argc, char** argv) { return specwire::faults::Main(argc, argv); }
