// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/token_printer.h"
#include "cli/trace_view.h"
#include "common/drafting/drafter_names.h"
#include "common/text/printable.h"
#include "common/text/utf8.h"

namespace specwire::cli {
namespace {

using Json = nlohmann::ordered_json;

// A reply has at most 16 choices; what is beyond is not a coordinator's.
constexpr int kMaxChoices = 64;

Choice* ChoiceAt(int index, std::vector<Choice>* choices) {
  const int bounded = std::clamp(index, 0, kMaxChoices - 1);
  const size_t needed = static_cast<size_t>(bounded) + 1;
  if (choices->size() < needed) {
    choices->resize(needed);
  }
  return &(*choices)[needed - 1];
}

void AddPieces(const v1::GenerateDelta& delta,
               std::vector<std::string>* pieces) {
  const absl::string_view text = delta.text();
  size_t start = 0;
  for (int i = 0; i < delta.token_ids_size(); ++i) {
    size_t end = start;
    if (i < delta.text_ends_size()) {
      end = std::max(start, PieceEnd(text, delta.text_ends(i)));
    }
    pieces->emplace_back(text.substr(start, end - start));
    start = end;
  }
}

Json MatchedJson(const v1::GenerateFinished& finished) {
  switch (finished.matched_case()) {
    case v1::GenerateFinished::kEosTokenId:
      return {{"eos_token_id", finished.eos_token_id()}};
    case v1::GenerateFinished::kStopTokenId:
      return {{"stop_token_id", finished.stop_token_id()}};
    case v1::GenerateFinished::kStopText:
      return {{"stop_text", finished.stop_text()}};
    default:
      return nullptr;
  }
}

Json ChoiceJson(const Choice& choice, const std::string& prompt_text) {
  const v1::GenerateFinished& finished = choice.finished;
  Json json = {{"token_ids", choice.token_ids},
               {"text", prompt_text + choice.text},
               {"finish_reason",
                std::string(FinishReasonName(finished.finish_reason()))},
               {"matched", MatchedJson(finished)}};
  json["usage"] = {
      {"prompt_tokens", finished.usage().prompt_tokens()},
      {"completion_tokens", finished.usage().completion_tokens()},
      {"cached_prompt_tokens", finished.usage().cached_prompt_tokens()}};
  if (!choice.logprobs.empty()) {
    Json& logprobs = json["logprobs"] = Json::array();
    for (const v1::PositionLogprobs& position : choice.logprobs) {
      logprobs.push_back(LogprobJson(position));
    }
  }
  if (!choice.trace.empty()) json["trace"] = TraceJson(choice.trace);
  Json& origins = json["origins"] = Json::array();
  for (v1::TokenOrigin origin : choice.origins) {
    origins.push_back(origin == v1::TOKEN_ORIGIN_DRAFT ? "draft" : "target");
  }
  json["speculative_decoding"] = StatsJson(finished.speculation());
  const v1::GenerateTimings& timings = finished.timings();
  json["timings"] = {
      {"time_to_first_token_ms", timings.time_to_first_token_ms()},
      {"tokens_per_second", timings.tokens_per_second()},
      {"generation_time_ms", timings.generation_time_ms()},
      {"queue_time_ms", timings.queue_time_ms()},
      {"mean_itl_ms", timings.mean_itl_ms()}};
  return json;
}

Json SettingsJson(const v1::Speculation& settings) {
  return {{"enabled", settings.enabled()},
          {"max_draft_tokens", settings.max_draft_tokens()},
          {"window", settings.window()},
          {"patience_us", settings.patience_us()}};
}

}  // namespace

double JsonLogprob(double logprob) { return std::max(logprob, kNoLogprob); }

Json LogprobJson(const v1::PositionLogprobs& position) {
  if (!position.has_chosen()) return nullptr;
  Json top = Json::array();
  for (const v1::TokenLogprob& candidate : position.top()) {
    top.push_back(
        Json::array({candidate.token_id(),
                     JsonLogprob(static_cast<double>(candidate.logprob()))}));
  }
  return {{"token_id", position.chosen().token_id()},
          {"logprob",
           JsonLogprob(static_cast<double>(position.chosen().logprob()))},
          {"top", top}};
}

Json StatsJson(const v1::SpeculationStats& stats) {
  return {
      {"mean_acceptance_length", stats.mean_acceptance_length()},
      {"draft_acceptance_rate", stats.draft_acceptance_rate()},
      {"num_spec_steps", stats.num_spec_steps()},
      {"num_draft_tokens", stats.num_draft_tokens()},
      {"num_accepted_draft_tokens", stats.num_accepted_draft_tokens()},
      {"acceptance_histogram", stats.acceptance_histogram()},
      {"rule", stats.rule() == v1::ACCEPTANCE_RULE_RATIO ? "ratio" : "coupled"},
      {"num_spec_tokens", stats.num_spec_tokens()},
      {"num_passes", stats.num_passes()},
      {"num_drafted_tokens", stats.num_drafted_tokens()},
      {"num_overlapped_tokens", stats.num_overlapped_tokens()},
      {"num_stale_tokens", stats.num_stale_tokens()},
      {"num_trimmed_tokens", stats.num_trimmed_tokens()},
      {"num_unused_tokens", stats.num_unused_tokens()},
      {"drafter", stats.drafter()},
      {"num_local_draft_tokens", stats.num_local_draft_tokens()},
      {"num_accepted_local_draft_tokens",
       stats.num_accepted_local_draft_tokens()},
      {"num_ahead_hits", stats.num_ahead_hits()},
      {"num_ahead_misses", stats.num_ahead_misses()},
      {"predicted_speedup", stats.predicted_speedup()},
      {"measured_speedup", stats.measured_speedup()},
  };
}

void Completion::Add(const v1::GenerateResponse& response) {
  switch (response.event_case()) {
    case v1::GenerateResponse::kStarted:
      started = response.started();
      break;
    case v1::GenerateResponse::kPrompt:
      prompt_text += response.prompt().text();
      prompt_logprobs.insert(prompt_logprobs.end(),
                             response.prompt().logprobs().logprobs().begin(),
                             response.prompt().logprobs().logprobs().end());
      break;
    case v1::GenerateResponse::kDelta: {
      const v1::GenerateDelta& delta = response.delta();
      Choice* choice = ChoiceAt(delta.choice(), &choices);
      choice->text += delta.text();
      AddPieces(delta, &choice->pieces);
      choice->token_ids.insert(choice->token_ids.end(),
                               delta.token_ids().begin(),
                               delta.token_ids().end());
      for (int i = 0; i < delta.origins_size(); ++i) {
        choice->origins.push_back(delta.origins(i));
      }
      choice->logprobs.insert(choice->logprobs.end(),
                              delta.logprobs().begin(),
                              delta.logprobs().end());
      choice->trace.insert(
          choice->trace.end(), delta.trace().begin(), delta.trace().end());
      break;
    }
    case v1::GenerateResponse::kFinished: {
      Choice* choice = ChoiceAt(response.finished().choice(), &choices);
      choice->finished = response.finished();
      choice->is_finished = true;
      choice->text += response.finished().text();
      if (response.finished().has_trace()) {
        choice->trace.push_back(response.finished().trace());
      }
      break;
    }
    case v1::GenerateResponse::kAlive:
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
}

Json ToJson(const Completion& completion, bool several) {
  const v1::GenerateStarted& started = completion.started;
  Json json = {{"request_id", started.request_id()},
               {"model", started.model()},
               {"model_digest", started.model_digest()},
               {"synthetic", started.synthetic()},
               {"seed", started.sampling().seed()},
               {"prompt_token_ids", started.prompt_token_ids()},
               {"speculation", SettingsJson(started.speculation())},
               {"resumes", completion.num_resumes}};
  if (!completion.prompt_logprobs.empty()) {
    Json& logprobs = json["prompt_logprobs"] = Json::array();
    for (const v1::PositionLogprobs& position : completion.prompt_logprobs) {
      logprobs.push_back(LogprobJson(position));
    }
  }
  if (several) {
    int64_t completion_tokens = 0;
    for (const Choice& choice : completion.choices) {
      completion_tokens += choice.finished.usage().completion_tokens();
    }
    // Of all choices together; they share the prompt.
    json["usage"] = {{"prompt_tokens", started.prompt_token_ids_size()},
                     {"completion_tokens", completion_tokens}};
    Json& choices = json["choices"] = Json::array();
    for (const Choice& choice : completion.choices) {
      choices.push_back(ChoiceJson(choice, completion.prompt_text));
    }
  } else if (!completion.choices.empty()) {
    json.update(ChoiceJson(completion.choices[0], completion.prompt_text));
  }
  return json;
}

absl::string_view FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_ABORTED:
      return "abort";
    case v1::FINISH_REASON_ERROR:
      return "error";
    default:
      return "unspecified";
  }
}

// Who drafted: a draft node's drafter, the verifier itself, or both.
std::string DraftersText(const v1::SpeculationStats& stats) {
  const std::string name = Printable(stats.drafter());
  const int64_t local = stats.num_local_draft_tokens();
  if (local == 0 || stats.drafter() == kLocalDrafter) {
    return absl::StrCat("drafter ", name);
  }
  return absl::StrFormat(
      "drafters %s (%d of %d draft tokens accepted) and %s (%d of %d)",
      name,
      stats.num_accepted_draft_tokens() -
          stats.num_accepted_local_draft_tokens(),
      stats.num_draft_tokens() - local,
      kLocalDrafter,
      stats.num_accepted_local_draft_tokens(),
      local);
}

std::string FiguresText(const v1::GenerateStarted& started,
                        const Choice& choice) {
  const v1::SpeculationStats& stats = choice.finished.speculation();
  const v1::GenerateTimings& timings = choice.finished.timings();
  std::string text = absl::StrFormat(
      "%d prompt tokens, %d completion tokens, finish reason %s, seed %d; "
      "first "
      "token after %.0f ms, then %.1f tokens/s",
      choice.finished.usage().prompt_tokens(),
      choice.finished.usage().completion_tokens(),
      FinishReasonName(choice.finished.finish_reason()),
      started.sampling().seed(),
      timings.time_to_first_token_ms(),
      timings.tokens_per_second());
  if (stats.num_spec_steps() == 0) {
    absl::StrAppendFormat(&text,
                          "\nno draft tokens were verified (%d verify passes)",
                          stats.num_passes());
    return text;
  }
  absl::StrAppendFormat(
      &text,
      "\n%s: acceptance rate %.1f %% (%d of %d draft tokens), mean "
      "accepted length %.2f, %d speculative of %d verify passes",
      DraftersText(stats),
      100 * stats.draft_acceptance_rate(),
      stats.num_accepted_draft_tokens(),
      stats.num_draft_tokens(),
      stats.mean_acceptance_length(),
      stats.num_spec_steps(),
      stats.num_passes());
  if (stats.predicted_speedup() > 0 && stats.measured_speedup() > 0) {
    absl::StrAppendFormat(&text,
                          ", speedup %.2f (%.2f expected)",
                          stats.measured_speedup(),
                          stats.predicted_speedup());
  } else if (stats.measured_speedup() > 0) {
    absl::StrAppendFormat(&text, ", speedup %.2f", stats.measured_speedup());
  }
  return text;
}

std::string DumpJson(const Json& json) {
  const std::string dump =
      json.dump(-1, ' ', false, Json::error_handler_t::replace);
  // The dump leaves DEL, C1 and what steers the order of text as they are.
  std::string line;
  line.reserve(dump.size());
  absl::string_view rest = dump;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (SteersTerminal(step.code_point)) {
      absl::StrAppendFormat(
          &line, "\\u%04x", static_cast<unsigned>(step.code_point));
    } else {
      absl::StrAppend(&line, rest.substr(0, step.length));
    }
    rest.remove_prefix(step.length);
  }
  return line;
}

}  // namespace specwire::cli
