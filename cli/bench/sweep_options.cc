// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sweep_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"
#include "common/drafting/messages.h"

namespace specwire::cli::bench {
namespace {

constexpr char kAuto[] = "auto";

absl::Status Wrong(absl::string_view flag,
                   absl::string_view entry,
                   absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": '", entry, "' ", problem));
}

// Entries of a list that `parse` accepts.
template <typename Value, typename Parse>
absl::StatusOr<std::vector<Value>> ParseList(const std::string& text,
                                             absl::string_view flag,
                                             Parse parse) {
  std::vector<Value> values;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    SPECWIRE_ASSIGN_OR_RETURN(Value value, parse(entry));
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      return Wrong(flag, entry, "is there twice");
    }
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& text,
                                                 absl::string_view flag,
                                                 double greatest) {
  return ParseList<double>(
      text, flag, [&](absl::string_view entry) -> absl::StatusOr<double> {
        double value = 0;
        // Written so that what is not a number is out of range too.
        if (!absl::SimpleAtod(entry, &value) ||
            !(value >= 0 && value <= greatest)) {
          return Wrong(
              flag, entry, absl::StrCat("is no number in [0, ", greatest, "]"));
        }
        return value;
      });
}

absl::StatusOr<std::vector<RunLength>> ParseRunLengths(
    const std::string& text) {
  constexpr char kFlag[] = "--sweep_run_lengths";
  return ParseList<RunLength>(
      text, kFlag, [&](absl::string_view entry) -> absl::StatusOr<RunLength> {
        if (entry == kAuto) return RunLength();
        int32_t value = 0;
        if (!absl::SimpleAtoi(entry, &value) || value < 1 ||
            value > kMaxRunLength) {
          return Wrong(kFlag,
                       entry,
                       absl::StrCat("is neither ",
                                    kAuto,
                                    " nor a number in [1, ",
                                    kMaxRunLength,
                                    "]"));
        }
        return RunLength(value);
      });
}

absl::StatusOr<std::vector<std::string>> ParseDrafters(
    const std::string& text) {
  constexpr char kFlag[] = "--sweep_drafters";
  return ParseList<std::string>(
      text, kFlag, [&](absl::string_view entry) -> absl::StatusOr<std::string> {
        if (entry != kLocalDrafter) {
          SPECWIRE_RETURN_IF_ERROR(CheckDrafterName(entry, kFlag));
        }
        return std::string(entry);
      });
}

absl::StatusOr<StretchedLink> ParseLink(const std::string& text) {
  if (text == "draft") return StretchedLink::kDraft;
  if (text == "verifier") return StretchedLink::kVerifier;
  if (text == "both") return StretchedLink::kBoth;
  return Wrong("--sweep_link", text, "is none of draft, verifier, both");
}

}  // namespace

std::string RunLengthText(RunLength run_length) {
  return run_length ? absl::StrCat(*run_length) : kAuto;
}

absl::StatusOr<SweepOptions> ParseSweep(const SweepTexts& texts) {
  SweepOptions options;
  SPECWIRE_ASSIGN_OR_RETURN(options.drafters, ParseDrafters(texts.drafters));
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::vector<double> temperatures,
      ParseNumbers(texts.temperatures, "--sweep_temperatures", 1e6));
  options.temperatures.clear();
  for (double value : temperatures) {
    options.temperatures.push_back(static_cast<float>(value));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      options.round_trips,
      ParseNumbers(texts.round_trips, "--sweep_round_trips", 1000));
  std::sort(options.round_trips.begin(), options.round_trips.end());
  SPECWIRE_ASSIGN_OR_RETURN(options.run_lengths,
                            ParseRunLengths(texts.run_lengths));
  SPECWIRE_ASSIGN_OR_RETURN(options.link, ParseLink(texts.link));
  if (!(texts.jitter >= 0 && texts.jitter <= 10)) {
    return Wrong(
        "--sweep_jitter", absl::StrCat(texts.jitter), "is not in [0, 10]");
  }
  options.jitter = texts.jitter;
  return options;
}

std::vector<SweepPoint> PointsOf(const SweepOptions& options) {
  std::vector<RunLength> lengths = options.run_lengths;
  // What is not there is less than any number.
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<SweepPoint> points;
  for (double round_trip : options.round_trips) {
    for (RunLength run_length : lengths) {
      points.push_back({round_trip, run_length});
    }
  }
  return points;
}

}  // namespace specwire::cli::bench
