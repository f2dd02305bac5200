// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/openai_request.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/http/json_input.h"
#include "coordinator/http/proto_json.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;

// Fields that change what comes back and are not supported, with the values
// beside null that change nothing.
struct Unsupported {
  const char* name;
  Json neutral;
};

absl::Status Invalid(const std::string& field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

absl::Status RefuseUnsupported(const Json& body,
                               const std::vector<Unsupported>& fields) {
  for (const Unsupported& field : fields) {
    const auto found = body.find(field.name);
    if (found == body.end() || found->is_null()) continue;
    bool neutral = false;
    for (const Json& value : field.neutral) neutral |= *found == value;
    if (!neutral) return Invalid(field.name, "is not supported");
  }
  return absl::OkStatus();
}

Json Only(Json value) { return Json::array({std::move(value)}); }

std::vector<Unsupported> ForBoth() {
  const Json nothing = Json::array();
  return {{"best_of", Only(1)},
          {"use_beam_search", Only(false)},
          {"length_penalty", Only(1)},
          {"early_stopping", Only(false)},
          {"bad_words", Only(Json::array())},
          {"allowed_token_ids", nothing},
          {"truncate_prompt_tokens", nothing},
          {"spaces_between_special_tokens", Only(true)},
          {"prompt_logprobs", nothing},
          {"response_format", Only(Json::object({{"type", "text"}}))},
          {"structured_outputs", nothing},
          {"guided_json", nothing},
          {"guided_regex", nothing},
          {"guided_choice", nothing},
          {"guided_grammar", nothing},
          {"logits_processors", Only(Json::array())},
          {"return_tokens_as_token_ids", Only(false)},
          {"typical_p", Only(1)},
          {"mirostat", Only(0)},
          {"repeat_penalty", Only(1)}};
}

std::vector<Unsupported> ForCompletions() {
  return {{"suffix", Only("")},
          {"prompt_embeds", Json::array()},
          {"add_special_tokens", Only(true)}};
}

std::vector<Unsupported> ForChat() {
  const Json nothing = Json::array();
  return {{"tools", Only(Json::array())},
          {"tool_choice", Only("none")},
          {"functions", Only(Json::array())},
          {"function_call", Only("none")},
          {"audio", nothing},
          {"modalities", Only(Json::array({"text"}))},
          {"prediction", nothing},
          {"web_search_options", nothing},
          {"reasoning_effort", Only("none")},
          {"verbosity", Only("medium")},
          {"echo", Only(false)},
          {"add_special_tokens", Only(false)},
          {"continue_final_message", Only(false)},
          {"documents", Only(Json::array())},
          {"chat_template", nothing},
          {"chat_template_kwargs", Only(Json::object())}};
}

// Sets a field of a message if it is there.
#define SPECWIRE_TAKE(setter, value)                    \
  do {                                                  \
    SPECWIRE_ASSIGN_OR_RETURN(const auto taken, value); \
    if (taken.has_value()) setter(*taken);              \
  } while (false)

absl::Status TakeLogitBias(const Json* biases, v1::SamplingParams* sampling) {
  if (biases == nullptr) return absl::OkStatus();
  if (!biases->is_object()) return Invalid("logit_bias", "must be an object");
  for (const auto& [id, bias] : biases->items()) {
    v1::LogitBias* const entry = sampling->add_logit_bias();
    int32_t token_id = 0;
    if (!absl::SimpleAtoi(id, &token_id)) {
      return Invalid("logit_bias", "its names must be token ids");
    }
    entry->set_token_id(token_id);
    SPECWIRE_ASSIGN_OR_RETURN(const float value, ToFloat(bias, "logit_bias"));
    entry->set_bias(value);
  }
  return absl::OkStatus();
}

absl::Status TakeSampling(const JsonFields& fields,
                          v1::SamplingParams* sampling) {
  SPECWIRE_TAKE(sampling->set_temperature, fields.Float("temperature"));
  SPECWIRE_TAKE(sampling->set_top_k, fields.Int32("top_k"));
  SPECWIRE_TAKE(sampling->set_top_p, fields.Float("top_p"));
  SPECWIRE_TAKE(sampling->set_min_p, fields.Float("min_p"));
  SPECWIRE_TAKE(sampling->set_repetition_penalty,
                fields.Float("repetition_penalty"));
  SPECWIRE_TAKE(sampling->set_frequency_penalty,
                fields.Float("frequency_penalty"));
  SPECWIRE_TAKE(sampling->set_presence_penalty,
                fields.Float("presence_penalty"));
  SPECWIRE_TAKE(sampling->set_seed, fields.Integer("seed"));
  return TakeLogitBias(fields.Find("logit_bias"), sampling);
}

absl::Status TakeStopTexts(const Json* stop, v1::StopCriteria* criteria) {
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) {
    criteria->add_stop(stop->get<std::string>());
    return absl::OkStatus();
  }
  const char* const problem = "must be a string or an array of strings";
  if (!stop->is_array()) return Invalid("stop", problem);
  for (const Json& text : *stop) {
    if (!text.is_string()) return Invalid("stop", problem);
    criteria->add_stop(text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status TakeMaxTokens(const JsonFields& fields,
                           v1::StopCriteria* criteria) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto old_name, fields.Int32("max_tokens"));
  SPECWIRE_ASSIGN_OR_RETURN(const auto new_name,
                            fields.Int32("max_completion_tokens"));
  if (old_name.has_value() && new_name.has_value() && *old_name != *new_name) {
    return Invalid("max_completion_tokens",
                   "differs from max_tokens; give one of them");
  }
  if (old_name.has_value()) criteria->set_max_tokens(*old_name);
  if (new_name.has_value()) criteria->set_max_tokens(*new_name);
  return absl::OkStatus();
}

absl::Status TakeStop(const JsonFields& fields, v1::StopCriteria* criteria) {
  SPECWIRE_RETURN_IF_ERROR(TakeMaxTokens(fields, criteria));
  SPECWIRE_RETURN_IF_ERROR(TakeStopTexts(fields.Find("stop"), criteria));
  SPECWIRE_TAKE(criteria->set_min_tokens, fields.Int32("min_tokens"));
  SPECWIRE_TAKE(criteria->set_ignore_eos, fields.Bool("ignore_eos"));
  SPECWIRE_TAKE(criteria->set_include_stop_str_in_output,
                fields.Bool("include_stop_str_in_output"));
  const Json* const ids = fields.Find("stop_token_ids");
  if (ids == nullptr) return absl::OkStatus();
  if (!ids->is_array()) {
    return Invalid("stop_token_ids", "must be an array of token ids");
  }
  for (const Json& id : *ids) {
    SPECWIRE_ASSIGN_OR_RETURN(const int32_t value,
                              ToInt32(id, "stop_token_ids"));
    criteria->add_stop_token_ids(value);
  }
  return absl::OkStatus();
}

absl::Status TakeSpeculation(const Json* speculation, v1::Speculation* proto) {
  if (speculation == nullptr) return absl::OkStatus();
  if (!speculation->is_object()) {
    return Invalid("speculation", "must be an object");
  }
  return ParseProtoJson(speculation->dump(), "speculation", proto);
}

absl::Status TakeStream(const JsonFields& fields, OpenAiRequest* request) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto stream, fields.Bool("stream"));
  request->stream = stream.value_or(false);
  const Json* const options = fields.Find("stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!request->stream) {
    return Invalid("stream_options", "goes with \"stream\": true only");
  }
  if (!options->is_object()) {
    return Invalid("stream_options", "must be an object");
  }
  const JsonFields of(options);
  SPECWIRE_ASSIGN_OR_RETURN(const auto usage, of.Bool("include_usage"));
  request->include_usage = usage.value_or(false);
  SPECWIRE_ASSIGN_OR_RETURN(const auto all, of.Bool("continuous_usage_stats"));
  if (all.value_or(false)) {
    return Invalid("stream_options.continuous_usage_stats", "is not supported");
  }
  return absl::OkStatus();
}

// What the two routes share.
absl::Status TakeCommon(const Json& body, OpenAiRequest* request) {
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(body, ForBoth()));
  const JsonFields fields(&body);
  v1::GenerateRequest* const generate = &request->generate;
  SPECWIRE_TAKE(generate->set_model, fields.String("model"));
  SPECWIRE_TAKE(generate->set_n, fields.Int32("n"));
  SPECWIRE_TAKE(generate->set_priority, fields.Int32("priority"));
  SPECWIRE_TAKE(generate->set_request_id, fields.String("request_id"));
  SPECWIRE_TAKE(generate->set_cache_salt, fields.String("cache_salt"));
  SPECWIRE_TAKE(generate->set_skip_special_tokens,
                fields.Bool("skip_special_tokens"));
  SPECWIRE_RETURN_IF_ERROR(TakeSampling(fields, generate->mutable_sampling()));
  SPECWIRE_RETURN_IF_ERROR(TakeStop(fields, generate->mutable_stop()));
  SPECWIRE_RETURN_IF_ERROR(TakeSpeculation(fields.Find("speculation"),
                                           generate->mutable_speculation()));
  return TakeStream(fields, request);
}

absl::Status TakeIds(const Json& ids, v1::GenerateRequest* generate) {
  auto* const to = generate->mutable_token_ids();
  for (const Json& id : ids) {
    SPECWIRE_ASSIGN_OR_RETURN(const int32_t value, ToInt32(id, "prompt"));
    to->add_ids(value);
  }
  return absl::OkStatus();
}

absl::Status TakePrompt(const Json* prompt, v1::GenerateRequest* generate) {
  if (prompt == nullptr) return Invalid("prompt", "missing");
  if (prompt->is_string()) {
    generate->set_text(prompt->get<std::string>());
    return absl::OkStatus();
  }
  if (!prompt->is_array()) {
    return Invalid("prompt", "must be a string or an array");
  }
  if (prompt->empty()) return Invalid("prompt", "must not be empty");
  const Json& first = prompt->front();
  if (first.is_number()) return TakeIds(*prompt, generate);
  if (prompt->size() > 1) {
    return Invalid(
        "prompt",
        absl::StrCat(
            "has ", prompt->size(), " prompts; one request takes one"));
  }
  if (first.is_string()) {
    generate->set_text(first.get<std::string>());
    return absl::OkStatus();
  }
  if (first.is_array()) return TakeIds(first, generate);
  return Invalid("prompt", "must hold a string, token ids or one list of them");
}

absl::StatusOr<std::string> ContentOf(const Json& message,
                                      const std::string& field) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) {
    return Invalid(field, "missing");
  }
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) {
    return Invalid(field, "must be a string or an array of parts");
  }
  std::vector<std::string> texts;
  for (const Json& part : *found) {
    if (!part.is_object() || part.value("type", Json()) != Json("text") ||
        !part.value("text", Json()).is_string()) {
      return Invalid(field,
                     "its parts must be {\"type\": \"text\", \"text\": ...}");
    }
    texts.push_back(part["text"].get<std::string>());
  }
  return absl::StrJoin(texts, "\n");
}

absl::Status TakeMessage(const Json& message,
                         const std::string& field,
                         v1::ChatMessage* proto) {
  if (!message.is_object()) return Invalid(field, "must be an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return Invalid(absl::StrCat(field, ".role"), "must be a string");
  }
  for (const char* name : {"tool_calls", "function_call", "audio"}) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null() && !found->empty()) {
      return Invalid(absl::StrCat(field, ".", name), "is not supported");
    }
  }
  proto->set_role(role->get<std::string>());
  // OpenAI's newer name for it, which templates do not know.
  if (proto->role() == "developer") proto->set_role("system");
  if (proto->role() != "system" && proto->role() != "user" &&
      proto->role() != "assistant") {
    return Invalid(absl::StrCat(field, ".role"),
                   "must be system, developer, user or assistant");
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      *proto->mutable_content(),
      ContentOf(message, absl::StrCat(field, ".content")));
  return absl::OkStatus();
}

absl::Status TakeChatLogprobs(const JsonFields& fields,
                              OpenAiRequest* request) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto wanted, fields.Bool("logprobs"));
  SPECWIRE_ASSIGN_OR_RETURN(const auto top, fields.Int32("top_logprobs"));
  if (wanted.value_or(false)) {
    request->logprobs = top.value_or(0);
    request->generate.set_logprobs(*request->logprobs);
  } else if (top.value_or(0) != 0) {
    return Invalid("top_logprobs", "goes with \"logprobs\": true only");
  }
  return absl::OkStatus();
}

#undef SPECWIRE_TAKE

}  // namespace

absl::StatusOr<OpenAiRequest> ParseCompletion(const Json& body) {
  OpenAiRequest request;
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(body, ForCompletions()));
  SPECWIRE_RETURN_IF_ERROR(TakeCommon(body, &request));
  const JsonFields fields(&body);
  v1::GenerateRequest* const generate = &request.generate;
  SPECWIRE_RETURN_IF_ERROR(TakePrompt(fields.Find("prompt"), generate));
  SPECWIRE_ASSIGN_OR_RETURN(const auto echo, fields.Bool("echo"));
  generate->set_echo(echo.value_or(false));
  SPECWIRE_ASSIGN_OR_RETURN(request.logprobs, fields.Int32("logprobs"));
  if (request.logprobs.has_value()) {
    generate->set_logprobs(*request.logprobs);
    if (generate->echo()) generate->set_prompt_logprobs(*request.logprobs);
  }
  return request;
}

absl::StatusOr<OpenAiRequest> ParseChatCompletion(const Json& body) {
  OpenAiRequest request;
  request.chat = true;
  SPECWIRE_RETURN_IF_ERROR(RefuseUnsupported(body, ForChat()));
  SPECWIRE_RETURN_IF_ERROR(TakeCommon(body, &request));
  const JsonFields fields(&body);
  const Json* const messages = fields.Find("messages");
  if (messages == nullptr || !messages->is_array()) {
    return Invalid("messages", "must be an array");
  }
  v1::ChatPrompt* const chat = request.generate.mutable_chat();
  for (size_t i = 0; i < messages->size(); ++i) {
    SPECWIRE_RETURN_IF_ERROR(TakeMessage((*messages)[i],
                                         absl::StrCat("messages[", i, "]"),
                                         chat->add_messages()));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const auto add,
                            fields.Bool("add_generation_prompt"));
  if (add.has_value()) chat->set_add_generation_prompt(*add);
  SPECWIRE_RETURN_IF_ERROR(TakeChatLogprobs(fields, &request));
  return request;
}

absl::Status WithOpenAiField(const absl::Status& status) {
  // What our field is there. The longer ones first.
  constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"prompt.chat.messages", "messages"},
      {"prompt.chat", "messages"},
      {"prompt.text", "prompt"},
      {"prompt.token_ids", "prompt"},
      {"prompt_logprobs", "logprobs"},
      {"sampling.", ""},
      {"stop.", ""}};
  for (const auto& [ours, theirs] : kNames) {
    absl::string_view rest = status.message();
    if (!absl::ConsumePrefix(&rest, ours)) continue;
    // A token's place is no field of what was sent.
    const char* const between = absl::StartsWith(rest, "[") ? ": " : "";
    absl::Status renamed(status.code(), absl::StrCat(theirs, between, rest));
    status.ForEachPayload(
        [&renamed](absl::string_view url, const absl::Cord& payload) {
          renamed.SetPayload(url, payload);
        });
    return renamed;
  }
  return status;
}

}  // namespace specwire::coordinator
