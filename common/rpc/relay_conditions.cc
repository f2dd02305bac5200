// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay_conditions.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace specwire {
namespace {

// False if `name` is unknown or `value` does not fit it.
bool SetField(absl::string_view name,
              absl::string_view value,
              LinkConditions* conditions) {
  int64_t number = 0;
  if (name == "delay") return absl::ParseDuration(value, &conditions->delay);
  if (name == "jitter") return absl::ParseDuration(value, &conditions->jitter);
  if (name == "rate") return absl::SimpleAtoi(value, &conditions->rate);
  if (name == "flip_rate") {
    return absl::SimpleAtod(value, &conditions->flip_rate);
  }
  if (name == "cut_after" && absl::SimpleAtoi(value, &number)) {
    conditions->cut_after = number;
    return true;
  }
  if (name == "flip_at" && absl::SimpleAtoi(value, &number)) {
    conditions->flip_at = number;
    return true;
  }
  return false;
}

// The field that a name alone sets; null if it is none.
bool* Switch(absl::string_view name, LinkConditions* conditions) {
  if (name == "stalled") return &conditions->stalled;
  if (name == "blackhole") return &conditions->blackhole;
  if (name == "ended") return &conditions->ended;
  return nullptr;
}

}  // namespace

absl::StatusOr<LinkConditions> ParseLinkConditions(absl::string_view text,
                                                   absl::string_view field) {
  LinkConditions conditions;
  for (const absl::string_view part :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (bool* const on = Switch(part, &conditions); on != nullptr) {
      *on = true;
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> named =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (!SetField(named.first, named.second, &conditions)) {
      return absl::InvalidArgumentError(absl::StrCat(
          field,
          ": \"",
          part,
          "\" is none of delay=TIME, jitter=TIME, rate=BYTES, cut_after=BYTE, "
          "flip_at=BYTE, flip_rate=CHANCE, stalled, blackhole, ended"));
    }
  }
  return conditions;
}

}  // namespace specwire
