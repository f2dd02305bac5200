// SPDX-License-Identifier: Apache-2.0
#include "cli/request_flags.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace specwire::cli {
namespace {

// A flag that may be given several times, with one value each: it must not
// swallow the prompt, nor take "[a,b]" for a list.
template <typename T>
CLI::Option* AddRepeated(CLI::App* app,
                         const std::string& name,
                         std::vector<T>* values,
                         const std::string& description) {
  return app->add_option(name, *values, description)
      ->type_size(1)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// CLI11 takes the nearest number that fits where a flag must be refused.
std::string Is64BitInteger(const std::string& text) {
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value)
             ? ""
             : absl::StrCat(text,
                            " is no whole number from -9223372036854775808 to "
                            "9223372036854775807");
}

void AddSamplingFlags(CLI::App* app, RequestFlags* flags) {
  app->add_option("--temperature",
                  flags->temperature,
                  "Softmax temperature; 0 is greedy (default 1)");
  app->add_option(
      "--top_k", flags->top_k, "Only the K likeliest tokens; 0 is off");
  app->add_option("--top_p", flags->top_p, "Nucleus, in (0, 1]; 1 is off");
  app->add_option("--min_p",
                  flags->min_p,
                  "Least probability relative to the likeliest; 0 is off");
  app->add_option(
         "--seed", flags->seed, "Same seed, same text; default: a fresh one")
      ->check(Is64BitInteger);
  app->add_option("--repetition_penalty",
                  flags->repetition_penalty,
                  "For tokens of prompt and output; 1 is off");
  app->add_option("--frequency_penalty",
                  flags->frequency_penalty,
                  "For each time a token is in the output; 0 is off");
  app->add_option("--presence_penalty",
                  flags->presence_penalty,
                  "For tokens in the output; 0 is off");
  AddRepeated(app,
              "--logit_bias",
              &flags->logit_bias,
              "ID=B: adds B to the logit of token ID; may be repeated");
}

void AddStopFlags(CLI::App* app, RequestFlags* flags) {
  app->add_option("--max_tokens",
                  flags->max_tokens,
                  "Most tokens to generate (default: the room left)");
  app->add_option(
      "--min_tokens",
      flags->min_tokens,
      "No end by EOS, a stop token or a stop text before this many");
  AddRepeated(
      app,
      "--stop",
      &flags->stop,
      "A text that ends it and is cut off, 1 to 256 bytes; up to 16 times");
  AddRepeated(app,
              "--stop_token_ids",
              &flags->stop_token_ids,
              "A token that ends it; may be repeated");
  app->add_flag("--include_stop_str_in_output",
                flags->include_stop_str_in_output,
                "Keep the stop text at the end of the text");
  app->add_flag(
      "--ignore_eos", flags->ignore_eos, "Treat EOS as any other token");
}

void AddSpeculationFlags(CLI::App* app, RequestFlags* flags) {
  app->add_flag(
      "--no_speculation", flags->no_speculation, "Plain decoding, no drafts");
  app->add_option("--max_draft_tokens",
                  flags->max_draft_tokens,
                  "Most draft tokens in a proposal, 1 to 32");
  app->add_option("--drafter",
                  flags->drafter,
                  "Only this drafter; 'none' is plain decoding");
  app->add_option("--rule",
                  flags->rule,
                  "How a draft token is accepted: 'coupled' if it is the "
                  "target's own, so the text depends on the seed alone "
                  "(default); 'ratio' with probability p/q, exact in "
                  "distribution, in lock-step")
      ->check(CLI::IsMember({"coupled", "ratio"}));
  app->add_option("--patience_us",
                  flags->patience_us,
                  "How long a verifier waits for a proposal, in microseconds; "
                  "0 not at all, -1 without limit")
      ->check(Is64BitInteger);
  app->add_option("--window",
                  flags->window,
                  "How many tokens a drafter works ahead of the last commit");
}

absl::Status SetSampling(const RequestFlags& flags, v1::SamplingParams* out) {
  if (flags.temperature) out->set_temperature(*flags.temperature);
  if (flags.top_k) out->set_top_k(*flags.top_k);
  if (flags.top_p) out->set_top_p(*flags.top_p);
  if (flags.min_p) out->set_min_p(*flags.min_p);
  if (flags.seed) out->set_seed(*flags.seed);
  if (flags.repetition_penalty) {
    out->set_repetition_penalty(*flags.repetition_penalty);
  }
  if (flags.frequency_penalty) {
    out->set_frequency_penalty(*flags.frequency_penalty);
  }
  if (flags.presence_penalty) {
    out->set_presence_penalty(*flags.presence_penalty);
  }
  for (const std::string& entry : flags.logit_bias) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    int32_t token_id = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(parts.first, &token_id) ||
        !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--logit_bias: '", entry, "' is not ID=BIAS, for example 42=-1.5"));
    }
    v1::LogitBias* added = out->add_logit_bias();
    added->set_token_id(token_id);
    added->set_bias(bias);
  }
  return absl::OkStatus();
}

absl::Status SetStop(const RequestFlags& flags, v1::StopCriteria* out) {
  if (flags.max_tokens) out->set_max_tokens(*flags.max_tokens);
  if (flags.min_tokens) out->set_min_tokens(*flags.min_tokens);
  for (const std::string& stop : flags.stop) {
    if (!IsValidUtf8(stop)) {
      return absl::InvalidArgumentError("--stop: the text is not UTF-8");
    }
    out->add_stop(stop);
  }
  for (int32_t id : flags.stop_token_ids) {
    out->add_stop_token_ids(id);
  }
  out->set_include_stop_str_in_output(flags.include_stop_str_in_output);
  out->set_ignore_eos(flags.ignore_eos);
  return absl::OkStatus();
}

absl::Status SetSpeculation(const RequestFlags& flags, v1::Speculation* out) {
  if (flags.no_speculation) out->set_enabled(false);
  if (flags.max_draft_tokens) {
    out->set_max_draft_tokens(*flags.max_draft_tokens);
  }
  if (!IsValidUtf8(flags.drafter)) {
    return absl::InvalidArgumentError("--drafter: the name is not UTF-8");
  }
  out->set_drafter(flags.drafter);
  if (flags.rule) {
    out->set_rule(*flags.rule == "ratio" ? v1::ACCEPTANCE_RULE_RATIO
                                         : v1::ACCEPTANCE_RULE_COUPLED);
  }
  if (flags.patience_us) out->set_patience_us(*flags.patience_us);
  if (flags.window) out->set_window(*flags.window);
  return absl::OkStatus();
}

}  // namespace

void AddRequestFlags(CLI::App* app, RequestFlags* flags) {
  app->add_option("--model",
                  flags->model,
                  "Name of the model; needed only if several are served")
      ->envname("SPECWIRE_MODEL_NAME");
  AddSamplingFlags(app, flags);
  AddStopFlags(app, flags);
  AddSpeculationFlags(app, flags);
  app->add_option("--priority",
                  flags->priority,
                  "Higher runs first, -100 to 100 (default: 0)");
  app->add_option("--cache_salt",
                  flags->cache_salt,
                  "Share cached prompts, and the verifiers' time, only as one "
                  "of those with this salt; at most 64 bytes");
}

absl::StatusOr<v1::GenerateRequest> MakeRequest(const RequestFlags& flags) {
  v1::GenerateRequest request;
  if (!IsValidUtf8(flags.model)) {
    return absl::InvalidArgumentError("--model: the name is not UTF-8");
  }
  request.set_model(flags.model);
  request.set_priority(flags.priority);
  request.set_cache_salt(flags.cache_salt);
  SPECWIRE_RETURN_IF_ERROR(SetSampling(flags, request.mutable_sampling()));
  SPECWIRE_RETURN_IF_ERROR(SetStop(flags, request.mutable_stop()));
  SPECWIRE_RETURN_IF_ERROR(
      SetSpeculation(flags, request.mutable_speculation()));
  return request;
}

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view text,
                                                   absl::string_view field) {
  std::vector<int32_t> ids;
  if (text.empty()) {
    return ids;
  }
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": '", part, "' is not a token id"));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace specwire::cli
