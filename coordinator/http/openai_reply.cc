// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/openai_reply.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/utf8.h"
#include "coordinator/request_validation.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;

// JSON has no infinity; this is OpenAI's number for it.
constexpr double kNoProbability = -9999.0;

int64_t NumCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

double Finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kNoProbability;
}

Json Bytes(absl::string_view text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json FinishReasonJson(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_ABORTED:
      return "abort";
    default:
      return "error";
  }
}

// What stopped it, as vLLM tells: null for EOS.
Json StopReasonJson(const v1::GenerateFinished& finished) {
  switch (finished.matched_case()) {
    case v1::GenerateFinished::kStopTokenId:
      return finished.stop_token_id();
    case v1::GenerateFinished::kStopText:
      return finished.stop_text();
    default:
      return nullptr;
  }
}

Json NoTokens() {
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", Json::array()},
          {"text_offset", Json::array()}};
}

// Puts the lists of `more` behind those of `all`.
void Append(const Json& more, Json* all) {
  if (more.is_null()) return;
  if (all->is_null()) {
    *all = more;
    return;
  }
  for (const auto& [name, list] : more.items()) {
    if (!list.is_array()) continue;
    Json& to = (*all)[name];
    to.insert(to.end(), list.begin(), list.end());
  }
}

void Shift(int64_t by, Json* logprobs) {
  const auto offsets = logprobs->find("text_offset");
  if (offsets == logprobs->end()) return;
  for (Json& offset : *offsets) offset = offset.get<int64_t>() + by;
}

}  // namespace

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

OpenAiReply::OpenAiReply(const OpenAiRequest& request, Settings settings)
    : request_(request),
      settings_(std::move(settings)),
      // Whatever number is asked for: it has not been checked yet.
      choices_(static_cast<size_t>(
          request.generate.has_n()
              ? std::clamp(request.generate.n(), 1, kMaxChoices)
              : 1)) {}

void OpenAiReply::Start(const v1::GenerateStarted& started,
                        std::shared_ptr<const Tokenizer> tokenizer) {
  model_ = started.model();
  model_digest_ = started.model_digest();
  seed_ = started.sampling().seed();
  prompt_ids_.assign(started.prompt_token_ids().begin(),
                     started.prompt_token_ids().end());
  tokenizer_ = std::move(tokenizer);
}

std::vector<Json> OpenAiReply::Take(const v1::GenerateResponse& response) {
  std::vector<Json> chunks;
  const bool tells_choice = response.has_delta() || response.has_finished();
  if (tells_choice && request_.generate.echo() && !prompt_is_whole_) {
    const int choice = response.has_delta() ? response.delta().choice()
                                            : response.finished().choice();
    // All of the prompt comes before the first that is told of choice 0, and
    // every choice repeats it.
    if (choice != 0) {
      held_.push_back(response);
      return chunks;
    }
    prompt_is_whole_ = true;
    TakePart(response, &chunks);
    for (const v1::GenerateResponse& held : std::exchange(held_, {})) {
      TakePart(held, &chunks);
    }
    return chunks;
  }
  TakePart(response, &chunks);
  return chunks;
}

void OpenAiReply::TakePart(const v1::GenerateResponse& response,
                           std::vector<Json>* chunks) {
  if (response.has_prompt()) {
    TakePrompt(response.prompt());
  } else if (response.has_delta()) {
    const v1::GenerateDelta& delta = response.delta();
    AddSteps(delta.trace(),
             &choices_[static_cast<size_t>(delta.choice())].steps);
    Json logprobs = request_.logprobs.has_value() ? Logprobs(delta) : Json();
    // What a token has not released says nothing yet.
    if (!delta.text().empty() || !logprobs.is_null()) {
      AddPiece(delta.choice(), delta.text(), std::move(logprobs), chunks);
    }
  } else if (response.has_finished()) {
    const v1::GenerateFinished& finished = response.finished();
    Choice& choice = choices_[static_cast<size_t>(finished.choice())];
    if (!choice.begun || !finished.text().empty()) {
      AddPiece(finished.choice(), finished.text(), Json(), chunks);
    }
    choice.finish_reason = FinishReasonJson(finished.finish_reason());
    choice.stop_reason = StopReasonJson(finished);
    choice.finished = finished;
    Json last =
        request_.chat ? Json{{"delta", Json::object()}} : Json{{"text", ""}};
    last["finish_reason"] = choice.finish_reason;
    last["stop_reason"] = choice.stop_reason;
    chunks->push_back(Chunk(finished.choice(), std::move(last)));
  }
}

void OpenAiReply::TakePrompt(const v1::GeneratePrompt& prompt) {
  absl::StrAppend(&echo_, prompt.text());
  const int first = prompt.logprobs().position();
  if (prompt.logprobs().logprobs().empty()) return;
  if (echo_logprobs_.is_null()) echo_logprobs_ = NoTokens();
  int64_t offset = 0;
  for (int i = 0; i < first; ++i) {
    offset += NumCharacters(
        tokenizer_->TokenBytes(prompt_ids_[static_cast<size_t>(i)]));
  }
  for (int i = 0; i < prompt.logprobs().logprobs_size(); ++i) {
    const int32_t id = prompt_ids_[static_cast<size_t>(first + i)];
    AddToken(prompt.logprobs().logprobs(i), id, offset, &echo_logprobs_);
    offset += NumCharacters(tokenizer_->TokenBytes(id));
  }
}

void OpenAiReply::AddPiece(int index,
                           const std::string& text,
                           Json logprobs,
                           std::vector<Json>* chunks) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  std::string told = text;
  if (!choice.begun && request_.generate.echo()) {
    const int64_t before = NumCharacters(echo_);
    Json all = echo_logprobs_;
    Shift(before, &logprobs);
    Append(logprobs, &all);
    logprobs = std::move(all);
    told = echo_ + text;
  }
  if (!choice.begun && request_.chat) {
    chunks->push_back(
        Chunk(index,
              {{"delta", {{"role", "assistant"}, {"content", ""}}},
               {"finish_reason", nullptr}}));
  }
  choice.begun = true;
  choice.num_characters += NumCharacters(told);
  absl::StrAppend(&choice.text, told);
  Append(logprobs, &choice.logprobs);
  if (told.empty() && logprobs.is_null()) return;
  Json body = request_.chat ? Json{{"delta", {{"content", told}}}}
                            : Json{{"text", told}};
  body["logprobs"] = std::move(logprobs);
  body["finish_reason"] = nullptr;
  chunks->push_back(Chunk(index, std::move(body)));
}

Json OpenAiReply::Chunk(int index, Json body) const {
  body["index"] = index;
  if (!body.contains("logprobs")) body["logprobs"] = nullptr;
  Json chunk =
      Envelope(request_.chat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array({std::move(body)});
  if (request_.include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json OpenAiReply::Envelope(const char* object) const {
  // Beside OpenAI's fields: what makes the same text come again.
  return {{"id", settings_.id},
          {"object", object},
          {"created", settings_.created},
          {"model", model_},
          {"system_fingerprint", model_digest_},
          {"seed", seed_}};
}

Json OpenAiReply::Logprobs(const v1::GenerateDelta& delta) {
  if (request_.chat) return ChatLogprobs(delta);
  Json logprobs = NoTokens();
  const Choice& choice = choices_[static_cast<size_t>(delta.choice())];
  for (int i = 0; i < delta.logprobs_size() && i < delta.token_ids_size();
       ++i) {
    // Text that a token holds back begins where the last one ended.
    const size_t start = i == 0 || i > delta.text_ends_size()
                             ? 0
                             : static_cast<size_t>(delta.text_ends(i - 1));
    const int64_t offset =
        choice.num_characters +
        NumCharacters(absl::string_view(delta.text()).substr(0, start));
    AddToken(delta.logprobs(i), delta.token_ids(i), offset, &logprobs);
  }
  return logprobs;
}

Json OpenAiReply::ChatLogprobs(const v1::GenerateDelta& delta) const {
  Json content = Json::array();
  for (const v1::PositionLogprobs& position : delta.logprobs()) {
    Json token = ChatToken(position.chosen());
    token["top_logprobs"] = Json::array();
    for (const v1::TokenLogprob& top : position.top()) {
      token["top_logprobs"].push_back(ChatToken(top));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json OpenAiReply::ChatToken(const v1::TokenLogprob& token) const {
  const absl::string_view bytes = tokenizer_->TokenBytes(token.token_id());
  // Bytes that are no text are replaced when it is written; `bytes` has them.
  return {{"token", std::string(bytes)},
          {"logprob", Finite(token.logprob())},
          {"bytes", Bytes(bytes)}};
}

void OpenAiReply::AddToken(const v1::PositionLogprobs& position,
                           int32_t token_id,
                           int64_t offset,
                           Json* logprobs) const {
  Json& all = *logprobs;
  all["tokens"].push_back(TokenText(token_id));
  all["text_offset"].push_back(offset);
  if (!position.has_chosen()) {
    all["token_logprobs"].push_back(nullptr);
    all["top_logprobs"].push_back(nullptr);
    return;
  }
  all["token_logprobs"].push_back(Finite(position.chosen().logprob()));
  Json top = Json::object();
  for (const v1::TokenLogprob& token : position.top()) {
    // Of tokens with the same text the best counts.
    top.emplace(TokenText(token.token_id()), Finite(token.logprob()));
  }
  all["top_logprobs"].push_back(std::move(top));
}

std::string OpenAiReply::TokenText(int32_t id) const {
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (IsValidUtf8(bytes)) return std::string(bytes);
  // OpenAI's spelling of a part of a character.
  std::string text = "bytes:";
  for (const char c : bytes) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
  }
  return text;
}

Json OpenAiReply::UsageChunk() const {
  Json chunk =
      Envelope(request_.chat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array();
  chunk["usage"] = Usage();
  if (settings_.metrics != SpecDecodeMetrics::kNone) {
    chunk["metrics"] = Metrics();
  }
  return chunk;
}

Json OpenAiReply::Whole() const {
  Json whole = Envelope(request_.chat ? "chat.completion" : "text_completion");
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json body = {{"index", i},
                 {"logprobs", choice.logprobs},
                 {"finish_reason", choice.finish_reason},
                 {"stop_reason", choice.stop_reason}};
    if (request_.chat) {
      body["message"] = {{"role", "assistant"},
                         {"content", choice.text},
                         {"refusal", nullptr}};
    } else {
      body["text"] = choice.text;
    }
    choices.push_back(std::move(body));
  }
  whole["choices"] = std::move(choices);
  whole["usage"] = Usage();
  if (settings_.metrics != SpecDecodeMetrics::kNone) {
    whole["metrics"] = Metrics();
  }
  return whole;
}

Json OpenAiReply::Usage() const {
  std::vector<const v1::GenerateFinished*> finished;
  for (const Choice& choice : choices_) finished.push_back(&choice.finished);
  return UsageJson(finished);
}

Json OpenAiReply::Metrics() const {
  std::vector<const v1::GenerateFinished*> finished;
  std::vector<SpeculationStep> steps;
  for (const Choice& choice : choices_) {
    finished.push_back(&choice.finished);
    steps.insert(steps.end(), choice.steps.begin(), choice.steps.end());
  }
  Json metrics = MetricsJson(finished);
  if (settings_.metrics == SpecDecodeMetrics::kDetailed) {
    AddStepsJson(steps, &metrics["speculative_decoding"]);
  }
  return metrics;
}

}  // namespace specwire::coordinator
