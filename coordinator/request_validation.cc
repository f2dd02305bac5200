// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_validation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random_id.h"
#include "common/base/stable_hash.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/text/text_segment.h"

namespace specwire::coordinator {
namespace {

constexpr size_t kMaxRequestIdLength = 128;
constexpr int kMaxPriority = 100;
constexpr size_t kMaxDrafterNameBytes = 64;
// Long enough to tell prompts apart, short enough to lie in the part that they
// share.
constexpr size_t kAffinityTokens = 64;
// Verifiers share prompts in whole blocks of so many tokens.
constexpr size_t kBlockTokens = 16;
// A verifier commits so many tokens at most, and a window of drafts, beyond
// what the coordinator has judged, where a stop text may end the request.
constexpr int kStopCredit = 32;
constexpr int kMaxPromptTokens = 1 << 20;
constexpr char kNoDrafter[] = "none";
constexpr char kMessages[] = "prompt.chat.messages";

template <class... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

constexpr int kLeastAliveIntervalMs = 100;
constexpr int kMostAliveIntervalMs = 60000;

absl::Status CheckRange(absl::string_view field,
                        int64_t value,
                        int64_t low,
                        int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(
      field, ": ", value, " is out of range; must be ", low, " to ", high);
}

absl::Status CheckRequestId(const std::string& request_id) {
  const bool printable =
      std::all_of(request_id.begin(), request_id.end(), [](char c) {
        return absl::ascii_isprint(static_cast<unsigned char>(c));
      });
  if (request_id.size() > kMaxRequestIdLength || !printable) {
    return Invalid("request_id: must be at most ",
                   kMaxRequestIdLength,
                   " printable ASCII characters");
  }
  return absl::OkStatus();
}

absl::Status CheckChat(const v1::ChatPrompt& chat) {
  if (chat.messages().empty()) {
    return Invalid("prompt.chat.messages: must not be empty");
  }
  size_t bytes = 0;
  for (const v1::ChatMessage& message : chat.messages()) {
    bytes += message.role().size() + message.content().size();
  }
  if (bytes > Tokenizer::kMaxTextBytes) {
    return Invalid("prompt.chat.messages: ",
                   bytes,
                   " bytes; at most ",
                   Tokenizer::kMaxTextBytes,
                   " together");
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(const v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      if (request.text().empty()) {
        return Invalid("prompt.text: must not be empty");
      }
      return CheckTextSize(request.text(), "prompt.text");
    case v1::GenerateRequest::kTokenIds:
      return CheckRange("prompt.token_ids: number of ids",
                        request.token_ids().ids_size(),
                        1,
                        kMaxPromptTokens);
    case v1::GenerateRequest::kChat:
      return CheckChat(request.chat());
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return Invalid("prompt: missing; set one of text, token_ids and chat");
}

absl::Status CheckNumbers(const v1::GenerateRequest& request) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("priority", request.priority(), -kMaxPriority, kMaxPriority));
  SPECWIRE_RETURN_IF_ERROR(
      CheckRange("cache_salt: number of bytes",
                 static_cast<int64_t>(request.cache_salt().size()),
                 0,
                 kMaxTenantSaltBytes));
  if (request.has_alive_interval_ms()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRange("alive_interval_ms",
                                        request.alive_interval_ms(),
                                        kLeastAliveIntervalMs,
                                        kMostAliveIntervalMs));
  }
  if (request.has_logprobs()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckRange("logprobs", request.logprobs(), 0, kMaxLogprobs));
  }
  if (request.has_prompt_logprobs()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRange(
        "prompt_logprobs", request.prompt_logprobs(), 0, kMaxLogprobs));
  }
  if (request.has_n()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRange("n", request.n(), 1, kMaxChoices));
  }
  return absl::OkStatus();
}

absl::Status CheckResume(const v1::GenerateRequest& request) {
  if (request.resume_token_ids().empty()) return absl::OkStatus();
  if (request.n() > 1) {
    return Invalid("n: ",
                   request.n(),
                   " completions cannot be resumed; pass 1, or leave "
                   "resume_token_ids out");
  }
  const v1::SamplingParams& sampling = request.sampling();
  const bool greedy =
      sampling.has_temperature() && sampling.temperature() < kGreedyTemperature;
  if (!greedy && !sampling.has_seed()) {
    return Invalid(
        "sampling.seed: missing; resume_token_ids continue a text only with "
        "the seed that it began with, unless temperature is 0");
  }
  return absl::OkStatus();
}

// The ratio rule is exact only in lock-step; a request that asks for another
// schedule is refused rather than changed.
absl::Status CheckLockStep(const v1::Speculation& speculation) {
  if (speculation.has_patience_us() && speculation.patience_us() != -1) {
    return Invalid("speculation.patience_us: ",
                   speculation.patience_us(),
                   " does not go with ACCEPTANCE_RULE_RATIO, which runs in "
                   "lock-step; leave it out or pass -1");
  }
  if (speculation.has_window() &&
      speculation.window() != speculation.max_draft_tokens()) {
    return Invalid("speculation.window: ",
                   speculation.window(),
                   " does not go with ACCEPTANCE_RULE_RATIO, which runs in "
                   "lock-step; leave it out or pass max_draft_tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckSpeculation(const v1::Speculation& speculation) {
  SPECWIRE_ASSIGN_OR_RETURN(const AcceptanceRule rule,
                            FromProto(speculation.rule()));
  if (speculation.has_max_draft_tokens()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRange("speculation.max_draft_tokens",
                                        speculation.max_draft_tokens(),
                                        1,
                                        kMaxRunLength));
  }
  if (speculation.has_window()) {
    SPECWIRE_RETURN_IF_ERROR(CheckRange(
        "speculation.window",
        speculation.window(),
        speculation.has_max_draft_tokens() ? speculation.max_draft_tokens() : 1,
        kMaxWindow));
  }
  if (speculation.has_patience_us() && speculation.patience_us() < -1) {
    return Invalid("speculation.patience_us: ",
                   speculation.patience_us(),
                   " is out of range; must be -1 (without limit) or at least "
                   "0");
  }
  return rule == AcceptanceRule::kRatio ? CheckLockStep(speculation)
                                        : absl::OkStatus();
}

// Refuses what is too long whatever its tokens are, before it is tokenized.
absl::Status CheckLength(absl::string_view text,
                         const TokenSizes& sizes,
                         const TextLimit& limit) {
  if (sizes.LeastBytes(text) <= limit.max_tokens * sizes.longest()) {
    return absl::OkStatus();
  }
  return Invalid(limit.field,
                 ": has ",
                 text.size(),
                 " bytes, ",
                 limit.name,
                 " is ",
                 limit.max_tokens,
                 " tokens, and no token has more than ",
                 sizes.longest(),
                 " bytes");
}

TextLimit ContextLimit(const CatalogModel& model) {
  return {"prompt",
          "the model's context",
          static_cast<size_t>(model.info.model.max_model_len)};
}

absl::StatusOr<std::vector<int32_t>> TokenizePrompt(
    const v1::GenerateRequest& request, const CatalogModel& model) {
  if (request.has_token_ids()) {
    const auto& ids = request.token_ids().ids();
    return std::vector<int32_t>(ids.begin(), ids.end());
  }
  if (request.has_chat()) {
    SPECWIRE_ASSIGN_OR_RETURN(
        RenderedChat chat,
        RenderChat(model, request.chat(), ContextLimit(model)));
    return std::move(chat.token_ids);
  }
  return TokenizeRaw(request.text(), model, ContextLimit(model));
}

// Takes over what is asked about the prompt, or refuses what is too much.
absl::Status TakeLogprobs(const v1::GenerateRequest& request,
                          const CatalogModel& model,
                          CheckedRequest* checked) {
  const std::vector<int32_t>& prompt = checked->params.prompt;
  checked->alive_interval = absl::Milliseconds(request.alive_interval_ms());
  if (request.has_logprobs()) checked->logprobs = request.logprobs();
  checked->trace = request.trace();
  if (request.has_prompt_logprobs()) {
    const int64_t count =
        static_cast<int64_t>(prompt.size()) * (1 + request.prompt_logprobs());
    if (count > kMaxPromptLogprobs) {
      return Invalid("prompt_logprobs: ",
                     request.prompt_logprobs(),
                     " candidates and the token itself, for each of ",
                     prompt.size(),
                     " tokens, are ",
                     count,
                     " numbers; at most ",
                     kMaxPromptLogprobs);
    }
    checked->prompt_logprobs = request.prompt_logprobs();
  }
  if (!request.echo()) return absl::OkStatus();
  if (request.has_text()) {
    checked->echo = request.text();
  } else if (request.has_chat()) {
    SPECWIRE_ASSIGN_OR_RETURN(RenderedChat chat,
                              RenderChat(model, request.chat()));
    checked->echo = std::move(chat.text);
  } else {
    checked->echo =
        model.tokenizer->Decode(prompt, /*skip_special_tokens=*/false);
    SPECWIRE_RETURN_IF_ERROR(
        CheckTextSize(*checked->echo, "echo: the prompt's text"));
  }
  return absl::OkStatus();
}

// The settings in force. Values have been checked.
SpeculationSettings FillSpeculation(const v1::Speculation& wanted,
                                    AcceptanceRule rule,
                                    const SpeculationDefaults& defaults) {
  SpeculationSettings settings;
  settings.enabled = !wanted.has_enabled() || wanted.enabled();
  if (wanted.drafter() == kNoDrafter) settings.enabled = false;
  settings.run_length = defaults.run_length;
  settings.window = defaults.window;
  settings.patience = defaults.patience;
  settings.fixed_run_length = wanted.has_max_draft_tokens();
  settings.fixed_window = wanted.has_window();
  if (wanted.has_max_draft_tokens()) {
    settings.run_length = wanted.max_draft_tokens();
    settings.window = std::min(
        std::max(defaults.window, 2 * settings.run_length), kMaxWindow);
  }
  if (wanted.has_window()) {
    settings.window = wanted.window();
    settings.run_length = std::min(settings.run_length, settings.window);
  }
  if (wanted.has_patience_us()) {
    settings.patience = wanted.patience_us() < 0
                            ? absl::InfiniteDuration()
                            : absl::Microseconds(wanted.patience_us());
  }
  settings.rule = rule;
  if (rule == AcceptanceRule::kRatio) {
    // Lock-step: one run at a time, and each is waited for.
    settings.window = settings.run_length;
    settings.patience = absl::InfiniteDuration();
  }
  return settings;
}

// 0 for a prompt that is too short to share anything.
uint64_t Affinity(absl::Span<const int32_t> prompt,
                  const std::string& cache_salt) {
  // The last token is computed in any case.
  const size_t blocks = (prompt.size() - 1) / kBlockTokens;
  if (blocks == 0) return 0;
  const absl::Span<const int32_t> start =
      prompt.first(std::min(blocks * kBlockTokens, kAffinityTokens));
  const uint64_t hash =
      StableHash(absl::string_view(reinterpret_cast<const char*>(start.data()),
                                   start.size() * sizeof(int32_t)),
                 StableHash(cache_salt));
  return std::max<uint64_t>(hash, 1);
}

absl::Status CheckDrafter(const std::string& drafter,
                          const std::vector<std::string>& served) {
  if (drafter.empty() || drafter == kNoDrafter ||
      std::find(served.begin(), served.end(), drafter) != served.end()) {
    return absl::OkStatus();
  }
  if (drafter.size() > kMaxDrafterNameBytes) {
    return Invalid("speculation.drafter: ",
                   drafter.size(),
                   " bytes, at most ",
                   kMaxDrafterNameBytes);
  }
  return absl::NotFoundError(absl::StrCat(
      "speculation.drafter: no draft node that fits the model serves '",
      absl::CHexEscape(drafter),
      "'; served: ",
      served.empty() ? std::string(kNoDrafter) : absl::StrJoin(served, ", ")));
}

absl::Status BehindStop(absl::Span<const int32_t> ids, size_t index) {
  return Invalid("resume_token_ids[",
                 index + 1,
                 "]: stands behind resume_token_ids[",
                 index,
                 "] = ",
                 ids[index],
                 ", which ends the completion");
}

// Takes over the tokens of an earlier call. REQUIRES: checked->stop and
// ->text are complete.
absl::Status TakeResumed(absl::Span<const int32_t> ids,
                         const CatalogModel& catalog_model,
                         CheckedRequest* checked) {
  const ModelInfo& model = catalog_model.info.model;
  SPECWIRE_RETURN_IF_ERROR(
      CheckTokenIds(ids, model.vocab_size, "resume_token_ids"));
  const StopCriteria& stop = checked->stop;
  if (ids.size() > static_cast<size_t>(*stop.max_tokens)) {
    return Invalid("resume_token_ids: ",
                   ids.size(),
                   " ids; at most stop.max_tokens = ",
                   *stop.max_tokens);
  }
  std::vector<int32_t> stop_ids = stop.stop_token_ids;
  if (!stop.ignore_eos) {
    stop_ids.insert(stop_ids.end(), model.eos_ids.begin(), model.eos_ids.end());
  }
  const auto found = std::find_first_of(
      ids.begin(), ids.end(), stop_ids.begin(), stop_ids.end());
  const size_t end = static_cast<size_t>(found - ids.begin());
  if (found != ids.end()) {
    if (end + 1 != ids.size()) return BehindStop(ids, end);
    checked->params.resumed_stop = *found;
  }
  // Stop texts, judged as the coordinator did that emitted these tokens.
  CompletionText text(catalog_model.tokenizer.get(), checked->text);
  for (size_t i = 0; i < end; ++i) {
    text.Push(ids[i], /*ends=*/false);
    if (text.stop_text() == nullptr) continue;
    if (i + 1 != ids.size()) return BehindStop(ids, i);
    checked->params.resumed_stop_text = true;
    break;
  }
  checked->params.resumed.assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

// Fills in max_tokens, or refuses what does not fit.
absl::Status FitContext(const CatalogModel& model,
                        size_t prompt_tokens,
                        StopCriteria* stop) {
  const size_t context = static_cast<size_t>(model.info.model.max_model_len);
  if (prompt_tokens >= context) {
    return Invalid("prompt: has ",
                   prompt_tokens,
                   " tokens, the model's context is ",
                   context,
                   ", which leaves no room for a completion");
  }
  const int room = static_cast<int>(context - prompt_tokens);
  if (stop->max_tokens.has_value() && *stop->max_tokens > room) {
    return Invalid("stop.max_tokens: ",
                   *stop->max_tokens,
                   " is more than the room left: the prompt has ",
                   prompt_tokens,
                   " tokens, the model's context is ",
                   context,
                   ", which leaves ",
                   room);
  }
  if (!stop->max_tokens.has_value()) stop->max_tokens = room;
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTextSize(const std::string& text, absl::string_view field) {
  if (text.size() <= Tokenizer::kMaxTextBytes) return absl::OkStatus();
  return Invalid(
      field, ": ", text.size(), " bytes; at most ", Tokenizer::kMaxTextBytes);
}

absl::Status CheckTokenIds(absl::Span<const int32_t> ids,
                           int vocab_size,
                           absl::string_view field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return Invalid(field,
                     "[",
                     i,
                     "]: ",
                     ids[i],
                     " is outside the vocabulary; must be 0 to ",
                     vocab_size - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGenerateFields(const v1::GenerateRequest& request) {
  SPECWIRE_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPECWIRE_RETURN_IF_ERROR(CheckPrompt(request));
  SPECWIRE_RETURN_IF_ERROR(CheckNumbers(request));
  SPECWIRE_RETURN_IF_ERROR(CheckResume(request));
  SPECWIRE_RETURN_IF_ERROR(CheckSpeculation(request.speculation()));
  if (request.stop().has_max_tokens() && request.stop().max_tokens() < 1) {
    return Invalid("stop.max_tokens: ",
                   request.stop().max_tokens(),
                   " is out of range; must be at least 1, or left out for all "
                   "the room in the context");
  }
  return absl::OkStatus();
}

absl::Status TooMuchForGood(const absl::Status& status,
                            absl::string_view field) {
  if (!absl::IsResourceExhausted(status)) return status;
  return Invalid(field, ": ", status.message());
}

absl::StatusOr<std::vector<int32_t>> TokenizeRaw(const std::string& text,
                                                 const CatalogModel& model,
                                                 const TextLimit& limit) {
  const Tokenizer& tokenizer = *model.tokenizer;
  SPECWIRE_RETURN_IF_ERROR(CheckLength(text, model.token_sizes, limit));
  absl::StatusOr<std::vector<int32_t>> encoded =
      tokenizer.Encode(text, SpecialTokens::kRecognise);
  if (!encoded.ok()) return TooMuchForGood(encoded.status(), limit.field);
  std::vector<int32_t> ids = *std::move(encoded);
  if (tokenizer.add_bos() && tokenizer.bos_id().has_value()) {
    ids.insert(ids.begin(), *tokenizer.bos_id());
  }
  return ids;
}

absl::StatusOr<RenderedChat> RenderChat(const CatalogModel& model,
                                        const v1::ChatPrompt& chat,
                                        const std::optional<TextLimit>& limit) {
  SPECWIRE_RETURN_IF_ERROR(CheckChat(chat));
  if (model.chat_template == nullptr) return model.chat_error;
  std::vector<ChatMessage> messages;
  for (const v1::ChatMessage& message : chat.messages()) {
    messages.push_back({message.role(), message.content()});
  }
  const Tokenizer& tokenizer = *model.tokenizer;
  // No clock: the same conversation is the same prompt on every day.
  ChatContext context;
  context.add_generation_prompt =
      !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  if (const std::optional<int32_t> bos = tokenizer.model().bos_id) {
    context.bos_token = std::string(tokenizer.TokenBytes(*bos));
  }
  if (const std::optional<int32_t> eos = tokenizer.model().eos_id) {
    context.eos_token = std::string(tokenizer.TokenBytes(*eos));
  }
  const absl::StatusOr<std::vector<TextSegment>> segments =
      model.chat_template->Render(messages, context);
  if (!segments.ok()) return TooMuchForGood(segments.status(), kMessages);
  RenderedChat rendered;
  for (const TextSegment& segment : *segments) {
    absl::StrAppend(&rendered.text, segment.text);
  }
  if (limit.has_value()) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckLength(rendered.text, model.token_sizes, *limit));
  }
  absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.EncodeSegments(*segments);
  if (!ids.ok()) return TooMuchForGood(ids.status(), kMessages);
  rendered.token_ids = *std::move(ids);
  return rendered;
}

absl::StatusOr<CheckedRequest> BuildRequest(
    const v1::GenerateRequest& request,
    std::shared_ptr<const CatalogModel> model,
    const RequestDefaults& defaults) {
  const int vocab_size = model->info.model.vocab_size;
  CheckedRequest checked;
  SPECWIRE_ASSIGN_OR_RETURN(checked.params.sampling,
                            FromProto(request.sampling(), RandomSeed()));
  SPECWIRE_RETURN_IF_ERROR(
      ValidateSampling(checked.params.sampling, vocab_size));
  SPECWIRE_ASSIGN_OR_RETURN(checked.stop, FromProto(request.stop()));
  SPECWIRE_RETURN_IF_ERROR(ValidateStop(checked.stop, vocab_size));
  SPECWIRE_ASSIGN_OR_RETURN(const AcceptanceRule rule,
                            FromProto(request.speculation().rule()));
  checked.params.speculation =
      FillSpeculation(request.speculation(), rule, defaults.speculation);
  if (checked.params.speculation.enabled) {
    checked.drafter = request.speculation().drafter();
    SPECWIRE_RETURN_IF_ERROR(CheckDrafter(checked.drafter, defaults.drafters));
  }

  SPECWIRE_ASSIGN_OR_RETURN(checked.params.prompt,
                            TokenizePrompt(request, *model));
  if (checked.params.prompt.empty()) return Invalid("prompt: has no tokens");
  SPECWIRE_RETURN_IF_ERROR(
      CheckTokenIds(checked.params.prompt, vocab_size, "prompt.token_ids"));
  SPECWIRE_RETURN_IF_ERROR(
      FitContext(*model, checked.params.prompt.size(), &checked.stop));
  // Again, now that max_tokens is known.
  SPECWIRE_RETURN_IF_ERROR(ValidateStop(checked.stop, vocab_size));
  checked.text.skip_special_tokens =
      !request.has_skip_special_tokens() || request.skip_special_tokens();
  checked.text.stop_texts =
      std::make_shared<const StopTexts>(checked.stop.stop);
  checked.text.include_stop = checked.stop.include_stop_str_in_output;
  checked.text.min_tokens = checked.stop.min_tokens;
  SPECWIRE_RETURN_IF_ERROR(
      TakeResumed(request.resume_token_ids(), *model, &checked));

  SPECWIRE_RETURN_IF_ERROR(TakeLogprobs(request, *model, &checked));
  checked.params.max_tokens = *checked.stop.max_tokens;
  checked.params.stop_token_ids = checked.stop.stop_token_ids;
  checked.params.ignore_eos = checked.stop.ignore_eos;
  checked.params.vocab_size = vocab_size;
  checked.params.credit = defaults.credit;
  // A request that names its patience gets it; lock-step waits for every draft.
  if (checked.params.speculation.enabled && rule == AcceptanceRule::kCoupled &&
      !request.speculation().has_patience_us() &&
      checked.params.speculation.patience != absl::InfiniteDuration()) {
    checked.params.adapt.emplace();
  }
  checked.priority = request.priority();
  checked.cache_salt = request.cache_salt();
  checked.user = defaults.user;
  checked.affinity = Affinity(checked.params.prompt, checked.cache_salt);
  if (!checked.stop.stop.empty()) {
    checked.params.credit = std::min(
        defaults.credit, kStopCredit + checked.params.speculation.window);
  }
  checked.request_id =
      request.request_id().empty() ? RandomHexId(8) : request.request_id();
  checked.num_choices = request.has_n() ? request.n() : 1;
  checked.model = std::move(model);
  return checked;
}

}  // namespace specwire::coordinator
