// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "cli/bench/options.h"
#include "cli/bench/sweep_options.h"
#include "cli/up_plan.h"

namespace specwire::cli {

// The flags of `bench --sweep` alone.
struct SweepFlags {
  bool sweep = false;
  bench::SweepTexts texts;
  // Of each cluster.
  UpOptions up;
  std::string svg;
  int ready_timeout_s = 300;
};

// Adds --sweep and what goes with it alone. REQUIRES: the flags that it cannot
// go with are there.
void AddSweepFlags(CLI::App* command, SweepFlags* flags);

// Starts clusters, measures, prints; returns the exit code. `options.model`
// names the target's file.
int RunBenchSweep(const SweepFlags& flags,
                  const bench::Options& options,
                  bool json);

}  // namespace specwire::cli
