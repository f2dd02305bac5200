// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace specwire::simulate {

// Longest run that a trace records, and longest text and prompt.
inline constexpr int kMaxTracedRun = 16;
inline constexpr int kMaxTracedTokens = 1 << 15;

// What a drafter would propose at one position of a text, all before it being
// known to it.
struct TracePosition {
  // Tokens of its run, at most kMaxTracedRun, and how many of them, from the
  // first on, are the text's.
  int proposed = 0;
  int right = 0;
  // A model made them; else a lookup, which takes next to no time.
  bool model = false;
  // DraftRun::survival: empty, or one for each proposed token.
  std::vector<float> survival = {};
};

// How a drafter fares on one text of the target: an *accept trace*. It has no
// tokens: a text stands for any that its drafter is right about in the same
// places.
//
// Files have one JSON object a line:
//
//   question_id  of the data set
//   category     such as "qa"
//   drafter      its name
//   prompt       tokens of the prompt
//   stopped      the text ends with a token that stops it, not at a limit
//   proposed     for each position of the completion one character, 0-9 a-g:
//                tokens of a run of at most kMaxTracedRun
//   right        the same: how many of them are the text's
//   model        the same: 1 if a model made them, else 0; absent if all are 0
//   survival     for each proposed token of each position a character of
//                kSurvivalDigits, from 0 to 1 in equal steps; absent if the
//                drafter makes no estimates
struct Trace {
  int64_t question_id = 0;
  std::string category;
  std::string drafter;
  int prompt_tokens = 1;
  bool stopped = false;
  // One for each token of the completion.
  std::vector<TracePosition> positions;
  // What the verifier looks up for itself on the same text; null: nothing. Not
  // part of the line.
  std::shared_ptr<const Trace> local = nullptr;
};

inline constexpr absl::string_view kSurvivalDigits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

// One line, without its end. Survival is rounded.
std::string FormatTrace(const Trace& trace);
// INVALID_ARGUMENT naming the field if the line is no trace.
absl::StatusOr<Trace> ParseTrace(absl::string_view line);
// All traces of `input`, at least one; blank lines are skipped.
// INVALID_ARGUMENT, naming `name` and the line, if one is none.
absl::StatusOr<std::vector<Trace>> ReadTraces(std::istream* input,
                                              absl::string_view name);
absl::StatusOr<std::vector<Trace>> ReadTraceFile(const std::string& path);

// Gives each of `traces` the one of `local` on the same text: of the same
// question, prompt and completion lengths. INVALID_ARGUMENT, naming the
// question, if there is none or it makes no estimates, without which nobody can
// tell whether a local draft is enough.
absl::Status AddLocalTraces(const std::vector<Trace>& local,
                            std::vector<Trace>* traces);

// A drafter that has a run of `run` tokens everywhere, and is right about each
// place of the text with chance `acceptance`, whatever the others. `survival`:
// it says so. REQUIRES: 0 <= acceptance <= 1, 0 <= run <= kMaxTracedRun,
// num_tokens >= 1.
Trace ConstantTrace(double acceptance,
                    int run,
                    int num_tokens,
                    uint64_t seed,
                    bool survival = false);

// One text after the other, as if it were one: the first `num_tokens` of all of
// `traces`, which are repeated as needed. Runs do not reach across the ends.
// There are local drafts if all of them have some.
// REQUIRES: traces is not empty.
Trace JoinTraces(const std::vector<Trace>& traces, int num_tokens);

}  // namespace specwire::simulate
