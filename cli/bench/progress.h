// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace specwire::cli::bench {

// How far a run has come.
struct ProgressState {
  int64_t num_done = 0;
  int64_t num_failed = 0;
  int64_t in_flight = 0;
  // Nothing if the number is not known.
  std::optional<int64_t> num_requests;
  absl::Duration elapsed;
  // Nothing if time does not end the run.
  std::optional<absl::Duration> duration;
};

// "[####----] 12/96, 2 in flight"
std::string ProgressText(const ProgressState& state);

// A line that is written over again and again; nothing unless `out` is a
// terminal.
//
// Thread safety: one thread. Lifetime: `out` must outlive it.
class Progress {
 public:
  explicit Progress(std::FILE* out);
  // Leaves an empty line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Writes at most a few times a second.
  void Update(const ProgressState& state);

 private:
  std::FILE* const out_;
  const bool is_terminal_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

}  // namespace specwire::cli::bench
