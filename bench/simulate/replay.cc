// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/replay.h"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/bench/texts.h"
#include "common/base/status_macros.h"

namespace specwire::replay {
namespace {

absl::Duration ProcessorTime() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

absl::StatusOr<std::vector<int32_t>> TokenIds(const nlohmann::json& json,
                                              const char* field) {
  const auto it = json.find(field);
  if (it == json.end() || !it->is_array() || it->empty() ||
      it->size() > static_cast<size_t>(simulate::kMaxTracedTokens)) {
    return absl::InvalidArgumentError(absl::StrCat(field,
                                                   " must be a list of 1 to ",
                                                   simulate::kMaxTracedTokens,
                                                   " token ids"));
  }
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : *it) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
        id.get<int64_t>() > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", ids.size(), "] is no token id"));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

template <typename T>
absl::Status GetNumber(const nlohmann::json& json,
                       const char* field,
                       T* value) {
  const auto it = json.find(field);
  if (it == json.end() || it->is_null()) return absl::OkStatus();
  if (!it->is_number()) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is no number"));
  }
  *value = it->get<T>();
  return absl::OkStatus();
}

std::string GetString(const nlohmann::json& json, const char* field) {
  const auto it = json.find(field);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// Nothing if the line is a request that does not count.
absl::StatusOr<std::optional<Text>> ParseText(const std::string& line) {
  const nlohmann::json json =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("the line is no JSON object");
  }
  if (GetString(json, "mode") == "speculative" ||
      (json.contains("status") && GetString(json, "status") != "OK")) {
    return std::nullopt;
  }
  Text text;
  text.category = std::string(cli::bench::GroupOf(GetString(json, "category")));
  if (text.category.empty()) {
    return absl::InvalidArgumentError("category is missing");
  }
  SPECWIRE_ASSIGN_OR_RETURN(text.prompt, TokenIds(json, "prompt_token_ids"));
  SPECWIRE_ASSIGN_OR_RETURN(text.completion, TokenIds(json, "token_ids"));
  text.sampling.temperature = 0;
  SPECWIRE_RETURN_IF_ERROR(GetNumber(json, "question_id", &text.question_id));
  SPECWIRE_RETURN_IF_ERROR(
      GetNumber(json, "temperature", &text.sampling.temperature));
  SPECWIRE_RETURN_IF_ERROR(GetNumber(json, "top_k", &text.sampling.top_k));
  SPECWIRE_RETURN_IF_ERROR(GetNumber(json, "top_p", &text.sampling.top_p));
  SPECWIRE_RETURN_IF_ERROR(GetNumber(json, "min_p", &text.sampling.min_p));
  SPECWIRE_RETURN_IF_ERROR(GetNumber(json, "seed", &text.sampling.seed));
  text.stopped = GetString(json, "finish_reason") == "stop";
  return text;
}

}  // namespace

absl::StatusOr<std::vector<Text>> ReadTexts(std::istream* input,
                                            absl::string_view name) {
  std::vector<Text> texts;
  std::set<std::pair<std::vector<int32_t>, int64_t>> seen;
  std::string line;
  for (int number = 1; std::getline(*input, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<std::optional<Text>> text = ParseText(line);
    if (!text.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", text.status().message()));
    }
    if (!text->has_value()) continue;
    if (!seen.insert({(*text)->prompt, (*text)->sampling.seed}).second) {
      continue;
    }
    texts.push_back(**std::move(text));
  }
  if (texts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has no texts"));
  }
  return texts;
}

Replay::Replay(Drafter* drafter, const Text* text)
    : drafter_(drafter), text_(text), tokens_(text->prompt) {
  tokens_.insert(
      tokens_.end(), text->completion.begin(), text->completion.end());
  DraftSequenceParams params;
  params.sampling = text->sampling;
  params.context.prompt_length = static_cast<int>(text->prompt.size());
  params.vocab_size = text->vocab_size;
  sequence_ = drafter->NewSequence(params);
}

absl::StatusOr<Answer> Replay::At(int at, int max_tokens) {
  const auto length = text_->prompt.size() + static_cast<size_t>(at);
  Answer answer;
  const absl::Duration start = ProcessorTime();
  DraftTask task{.sequence = sequence_.get(),
                 .path = absl::MakeConstSpan(tokens_).first(length),
                 .limits = {.max_tokens = max_tokens, .min_survival = 0}};
  if (drafter_->max_model_len() > 0 &&
      static_cast<int>(length) >= drafter_->max_model_len()) {
    return answer;
  }
  while (!task.result.has_value()) {
    const DraftPass pass = drafter_->Propose(absl::MakeSpan(&task, 1));
    if (pass.num_rows > 0) answer.model = true;
  }
  answer.time = ProcessorTime() - start;
  SPECWIRE_RETURN_IF_ERROR(task.result->status());
  answer.run = **std::move(task.result);
  const std::vector<int32_t>& run = answer.run.tokens;
  while (answer.right < static_cast<int>(run.size()) &&
         length + static_cast<size_t>(answer.right) < tokens_.size() &&
         run[static_cast<size_t>(answer.right)] ==
             tokens_[length + static_cast<size_t>(answer.right)]) {
    ++answer.right;
  }
  return answer;
}

absl::StatusOr<simulate::Trace> Record(Drafter* drafter, const Text& text) {
  simulate::Trace trace;
  trace.question_id = text.question_id;
  trace.category = text.category;
  trace.drafter = drafter->name();
  trace.prompt_tokens = static_cast<int>(text.prompt.size());
  trace.stopped = text.stopped;
  Replay replay(drafter, &text);
  for (int at = 0; at < static_cast<int>(text.completion.size()); ++at) {
    SPECWIRE_ASSIGN_OR_RETURN(Answer answer,
                              replay.At(at, simulate::kMaxTracedRun));
    trace.positions.push_back(
        {.proposed = static_cast<int>(answer.run.tokens.size()),
         .right = answer.right,
         .model = answer.model,
         .survival = std::move(answer.run.survival)});
  }
  return trace;
}

}  // namespace specwire::replay
