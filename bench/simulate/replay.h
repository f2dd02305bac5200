// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bench/simulate/trace.h"
#include "common/drafting/drafter.h"

// A drafter over texts that the target wrote, without the target: what it
// proposes there, and what of that is right.

namespace specwire::replay {

// What the target made of one question.
struct Text {
  int64_t question_id = 0;
  std::string category;
  std::vector<int32_t> prompt;
  std::vector<int32_t> completion;
  // How it was drawn: a drafter uses the same noise.
  SamplingParams sampling;
  // It ends with a token that stops it, not at a limit.
  bool stopped = false;
  // Tokens in the target's vocabulary; 0: not told.
  int vocab_size = 0;
};

// Reads texts, one JSON object a line: category (GroupOf is what counts),
// prompt_token_ids, token_ids; optional question_id, temperature (0 if absent),
// top_k, top_p, min_p, seed and finish_reason ("stop" or "length"). These are
// the lines of `specwire bench --raw`, whose speculative requests (`mode`) and
// failed ones are left out, as is a question that was there before with the
// same seed. INVALID_ARGUMENT naming `name` and the line.
absl::StatusOr<std::vector<Text>> ReadTexts(std::istream* input,
                                            absl::string_view name);

// What a drafter said at one place of a text.
struct Answer {
  DraftRun run;
  // How many of its tokens, from the first on, are the text's.
  int right = 0;
  // Processor time of the whole process.
  absl::Duration time;
  // It took passes of an engine.
  bool model = false;
};

// A drafter's sequence for one text.
//
// Thread safety: one thread, the drafter's.
// Lifetime: drafter and text outlive it.
class Replay {
 public:
  Replay(Drafter* drafter, const Text* text);
  // What it proposes behind the first `at` tokens of the completion, at most
  // `max_tokens`. REQUIRES: 0 <= at < the completion's size; max_tokens >= 1.
  absl::StatusOr<Answer> At(int at, int max_tokens);

 private:
  Drafter* const drafter_;
  const Text* const text_;
  std::unique_ptr<DraftSequence> sequence_;
  // Prompt and completion.
  std::vector<int32_t> tokens_;
};

// The text's accept trace: every position is asked.
absl::StatusOr<simulate::Trace> Record(Drafter* drafter, const Text& text);

}  // namespace specwire::replay
