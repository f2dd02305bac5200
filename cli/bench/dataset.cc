// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/bench/texts.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace specwire::cli::bench {
namespace {

using Json = nlohmann::json;

// The coordinator's limit on a prompt.
constexpr size_t kMaxTextBytes = size_t{4} << 20;
constexpr size_t kMaxCategoryBytes = 64;

// Questions in one order, split by what `key` says of them, in the order in
// which its values come first.
template <typename Key>
std::vector<std::vector<Question>> SplitBy(
    const std::vector<Question>& questions, Key key) {
  std::vector<std::vector<Question>> parts;
  for (const Question& question : questions) {
    const auto found =
        std::find_if(parts.begin(), parts.end(), [&](const auto& part) {
          return key(part.front()) == key(question);
        });
    if (found == parts.end()) {
      parts.push_back({question});
    } else {
      found->push_back(question);
    }
  }
  return parts;
}

// The first of each part, the second of each, and so on.
std::vector<Question> Merge(const std::vector<std::vector<Question>>& parts) {
  std::vector<Question> merged;
  size_t longest = 0;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  for (size_t i = 0; i < longest; ++i) {
    for (const std::vector<Question>& part : parts) {
      if (i < part.size()) merged.push_back(part[i]);
    }
  }
  return merged;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

absl::StatusOr<std::string> TextField(const Json& value,
                                      absl::string_view field,
                                      size_t max_bytes) {
  if (!value.is_string()) {
    return Malformed(absl::StrCat(field, " is no text"));
  }
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) return Malformed(absl::StrCat(field, " is empty"));
  if (text.size() > max_bytes) {
    return Malformed(
        absl::StrCat(field, " is longer than ", max_bytes, " bytes"));
  }
  return text;
}

absl::StatusOr<Question> ParseQuestion(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Malformed("is no JSON");
  if (!json.is_object()) return Malformed("is no JSON object");
  const auto id = json.find("question_id");
  if (id == json.end() || !id->is_number_integer()) {
    return Malformed("question_id is no whole number");
  }
  const auto category = json.find("category");
  if (category == json.end()) return Malformed("category is missing");
  const auto turns = json.find("turns");
  if (turns == json.end() || !turns->is_array() || turns->empty()) {
    return Malformed("turns is no list of texts");
  }
  Question question;
  question.id = id->get<int64_t>();
  SPECWIRE_ASSIGN_OR_RETURN(
      question.category, TextField(*category, "category", kMaxCategoryBytes));
  // It is printed on terminals.
  if (std::any_of(question.category.begin(),
                  question.category.end(),
                  [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
    return Malformed("category has control characters");
  }
  SPECWIRE_ASSIGN_OR_RETURN(question.text,
                            TextField((*turns)[0], "turns[0]", kMaxTextBytes));
  return question;
}

// Reads up to a line break, which it drops. False at the end of the input.
// RESOURCE_EXHAUSTED if the line is too long.
absl::StatusOr<bool> ReadLine(std::istream* input, std::string* line) {
  line->clear();
  for (;;) {
    const int c = input->get();
    if (c == std::char_traits<char>::eof()) return !line->empty();
    if (c == '\n') return true;
    if (line->size() == kMaxLineBytes) {
      return absl::ResourceExhaustedError("");
    }
    line->push_back(static_cast<char>(c));
  }
}

}  // namespace

std::vector<Question> TakeTurns(const std::vector<Question>& questions) {
  std::vector<std::vector<Question>> groups =
      SplitBy(questions, [](const Question& q) { return GroupOf(q.category); });
  for (std::vector<Question>& group : groups) {
    group = Merge(SplitBy(group, [](const Question& q) {
      return absl::string_view(q.category);
    }));
  }
  return Merge(groups);
}

absl::StatusOr<std::vector<Question>> ReadQuestions(std::istream* input,
                                                    const std::string& name) {
  std::vector<Question> questions;
  std::string line;
  size_t num_bytes = 0;
  for (int64_t number = 1;; ++number) {
    const auto fail = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " line ", number, ": ", what));
    };
    const absl::StatusOr<bool> more = ReadLine(input, &line);
    if (!more.ok()) {
      return fail(absl::StrCat("is longer than ", kMaxLineBytes, " bytes"));
    }
    if (!*more) break;
    num_bytes += line.size() + 1;
    if (num_bytes > kMaxDatasetBytes) {
      return fail(
          absl::StrCat("the file exceeds ", kMaxDatasetBytes, " bytes"));
    }
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<Question> question = ParseQuestion(line);
    if (!question.ok()) return fail(question.status().message());
    questions.push_back(*std::move(question));
  }
  if (input->bad()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", name));
  }
  if (questions.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has no question"));
  }
  return questions;
}

absl::StatusOr<std::vector<Question>> ReadQuestionFile(
    const std::string& path) {
  std::filebuf buffer;
  if (buffer.open(path, std::ios::in | std::ios::binary) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dataset: cannot open ", path, ": ", std::strerror(errno)));
  }
  std::istream input(&buffer);
  return ReadQuestions(&input, path);
}

}  // namespace specwire::cli::bench
