// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace specwire::cli::bench {

inline constexpr size_t kMaxLineBytes = size_t{8} << 20;
inline constexpr size_t kMaxDatasetBytes = size_t{256} << 20;

// A question of Spec-Bench's format: one JSON object a line, {"question_id":
// 81, "category": "writing", "turns": ["first message", ...]}, more fields
// allowed.
struct Question {
  int64_t id = 0;
  std::string category;
  // The first turn.
  std::string text;
};

// The questions with their groups (GroupOf) in turns, and within a group its
// categories: the first few of them are of all kinds. Within a category the
// order stays.
std::vector<Question> TakeTurns(const std::vector<Question>& questions);

// The questions of `input`, at least one; blank lines are skipped.
// INVALID_ARGUMENT, naming `name` and the line, if a line is no question or a
// limit is exceeded.
absl::StatusOr<std::vector<Question>> ReadQuestions(std::istream* input,
                                                    const std::string& name);
// The same for a file.
absl::StatusOr<std::vector<Question>> ReadQuestionFile(const std::string& path);

}  // namespace specwire::cli::bench
