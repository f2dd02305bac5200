// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace specwire::cli::bench {
namespace {

// Of an open loop that has no limit of its own.
constexpr int kDefaultMaxInFlight = 4000;

// Written so that what is not a number is out of range too.
absl::Status CheckRange(absl::string_view flag,
                        double value,
                        double least,
                        double greatest) {
  if (value >= least && value <= greatest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " must be in [", least, ", ", greatest, "], not ", value));
}

template <typename T>
absl::Status CheckRange(absl::string_view flag,
                        const std::optional<T>& value,
                        double least,
                        double greatest) {
  if (!value) return absl::OkStatus();
  return CheckRange(flag, static_cast<double>(*value), least, greatest);
}

absl::Status CheckLoop(const Options& options) {
  if (options.rate && options.concurrency) {
    return absl::InvalidArgumentError(
        "--rate is an open loop, --concurrency a closed one: give one of "
        "them (--max_concurrency bounds an open loop)");
  }
  if (!options.rate && options.burstiness) {
    return absl::InvalidArgumentError("--burstiness needs --rate");
  }
  if (!options.rate && options.max_concurrency) {
    return absl::InvalidArgumentError("--max_concurrency needs --rate");
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT if something is said of drafts that nobody asks for.
absl::Status CheckPlain(const Options& options) {
  const std::pair<const char*, bool> flags[] = {
      {"--drafter", !options.drafter.empty()},
      {"--max_draft_tokens", options.max_draft_tokens.has_value()},
      {"--patience_us", options.patience_us.has_value()},
      {"--window", options.window.has_value()}};
  for (const auto& [flag, given] : flags) {
    if (given && !options.speculates()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag,
                       " is for mode speculative: --modes has plain "
                       "alone"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ModeName(Mode mode) {
  return mode == Mode::kPlain ? "plain" : "speculative";
}

int Options::max_in_flight() const {
  return rate ? max_concurrency.value_or(kDefaultMaxInFlight) : num_workers();
}

bool Options::speculates() const {
  return std::find(modes.begin(), modes.end(), Mode::kSpeculative) !=
         modes.end();
}

absl::Status CheckOptions(const Options& options) {
  SPECWIRE_RETURN_IF_ERROR(CheckLoop(options));
  SPECWIRE_RETURN_IF_ERROR(CheckPlain(options));
  SPECWIRE_RETURN_IF_ERROR(CheckRange("--num", options.num, 1, 1e7));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--concurrency", options.concurrency, 1, kMaxConcurrency));
  SPECWIRE_RETURN_IF_ERROR(CheckRange("--rate", options.rate, 1e-3, 1e5));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--burstiness", options.burstiness, 1e-2, 1e3));
  SPECWIRE_RETURN_IF_ERROR(CheckRange(
      "--max_concurrency", options.max_concurrency, 1, kMaxConcurrency));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--max_tokens", options.max_tokens, 1, 1 << 20));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--temperature", options.temperature, 0, 1e6));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--warmup", options.warmup, 0, kMaxConcurrency));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("--duration", options.duration_s, 1e-3, 86400));
  return CheckRange("--deadline_ms", options.deadline_ms, 1, 86400e3);
}

absl::StatusOr<std::vector<Mode>> ParseModes(absl::string_view text) {
  std::vector<Mode> modes;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    if (name != "plain" && name != "speculative") {
      return absl::InvalidArgumentError(absl::StrCat(
          "--modes: '", name, "' is neither plain nor speculative"));
    }
    const Mode mode = name == "plain" ? Mode::kPlain : Mode::kSpeculative;
    if (std::find(modes.begin(), modes.end(), mode) != modes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--modes names ", name, " twice"));
    }
    modes.push_back(mode);
  }
  return modes;
}

absl::StatusOr<Limits> ParseLimits(absl::string_view text) {
  Limits limits;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    std::optional<double>* limit = field.first == "ttft_ms"  ? &limits.ttft_ms
                                   : field.first == "itl_ms" ? &limits.itl_ms
                                   : field.first == "e2e_ms" ? &limits.e2e_ms
                                                             : nullptr;
    if (limit == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--goodput: '", part, "' is none of ttft_ms:X, itl_ms:X, e2e_ms:X"));
    }
    double value = 0;
    if (!absl::SimpleAtod(field.second, &value) || !(value > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--goodput: '", part, "' names no positive number"));
    }
    if (limit->has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--goodput names ", field.first, " twice"));
    }
    *limit = value;
  }
  return limits;
}

}  // namespace specwire::cli::bench
