// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/progress.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace specwire::cli::bench {
namespace {

constexpr int kWidth = 30;
constexpr absl::Duration kPause = absl::Milliseconds(250);

}  // namespace

std::string ProgressText(const ProgressState& state) {
  double share = 0;
  if (state.num_requests && *state.num_requests > 0) {
    share = static_cast<double>(state.num_done) /
            static_cast<double>(*state.num_requests);
  }
  if (state.duration) {
    share = std::max(share, absl::FDivDuration(state.elapsed, *state.duration));
  }
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  std::string text = absl::StrCat("[",
                                  std::string(filled, '#'),
                                  std::string(kWidth - filled, '-'),
                                  "] ",
                                  state.num_done);
  if (state.num_requests) absl::StrAppend(&text, "/", *state.num_requests);
  absl::StrAppendFormat(&text,
                        ", %d in flight, %.0f s",
                        state.in_flight,
                        absl::ToDoubleSeconds(state.elapsed));
  if (state.num_failed > 0) {
    absl::StrAppend(&text, ", ", state.num_failed, " failed");
  }
  return text;
}

Progress::Progress(std::FILE* out)
    : out_(out), is_terminal_(isatty(fileno(out)) == 1) {}

Progress::~Progress() {
  if (!is_terminal_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

void Progress::Update(const ProgressState& state) {
  if (!is_terminal_ || state.elapsed - last_ < kPause) return;
  last_ = state.elapsed;
  std::fprintf(out_, "\r\x1b[K%s", ProgressText(state).c_str());
  std::fflush(out_);
}

}  // namespace specwire::cli::bench
