// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/params.h"
#include "coordinator/completion_text.h"
#include "coordinator/model_catalog.h"
#include "coordinator/options.h"
#include "coordinator/request_machine.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// A Generate request that has been checked, every value in force.
struct CheckedRequest {
  std::shared_ptr<const CatalogModel> model;
  std::string request_id;
  // Prompt, sampling, budget and speculation, as the request machine wants
  // them.
  RequestParams params;
  // max_tokens is set.
  StopCriteria stop;
  // Name of the drafter to use, see kLocalDrafter; empty: any.
  std::string drafter;
  // How tokens become text, and the texts that end it.
  TextRules text;
  // Log-probabilities of generated tokens, and of the prompt's: how many
  // candidates for each.
  std::optional<int> logprobs = std::nullopt;
  std::optional<int> prompt_logprobs = std::nullopt;
  // Every pass is told of.
  bool trace = false;
  // The prompt's text, if it is to be repeated.
  std::optional<std::string> echo = std::nullopt;
  // Higher runs first.
  int priority = 0;
  // Separates tenants.
  std::string cache_salt = "";
  // Whose it is, for verifiers that share their time.
  std::string user = "";
  // Requests whose prompts begin alike, and no others but by chance, have the
  // same.
  uint64_t affinity = 0;
  // Independent completions; more than one only if none is resumed.
  int num_choices = 1;
  // How often a client that hears nothing else is told that its request has not
  // ended; zero: never.
  absl::Duration alive_interval = absl::ZeroDuration();
};

// What a request may leave to the coordinator, and what is there to choose.
struct RequestDefaults {
  SpeculationDefaults speculation;
  int credit = 128;
  // Drafters that fit the model, the local one under the names by which it may
  // be asked for.
  std::vector<std::string> drafters;
  // See CheckedRequest.
  std::string user;
};

// Every check below refuses with a message that names the field and the limit,
// INVALID_ARGUMENT unless said otherwise. Nothing is clamped or ignored: what
// is not supported yet is refused by name.

// Most completions that a request may ask for.
inline constexpr int kMaxChoices = 16;

// Most log-probabilities that may be asked of one prompt, the candidates of all
// its positions together: what keeps a reply that nobody reads small.
inline constexpr int64_t kMaxPromptLogprobs = 1 << 20;

// Checks that need no model. Quick.
absl::Status CheckGenerateFields(const v1::GenerateRequest& request);

// The rest: tokenizes, checks against the model, fills in defaults. Takes up to
// seconds for a prompt of megabytes. NOT_FOUND if a drafter is named that does
// not serve. REQUIRES: CheckGenerateFields(request) is OK.
absl::StatusOr<CheckedRequest> BuildRequest(
    const v1::GenerateRequest& request,
    std::shared_ptr<const CatalogModel> model,
    const RequestDefaults& defaults);

// At most Tokenizer::kMaxTextBytes bytes.
absl::Status CheckTextSize(const std::string& text, absl::string_view field);
// Every id inside the vocabulary.
absl::Status CheckTokenIds(absl::Span<const int32_t> ids,
                           int vocab_size,
                           absl::string_view field);

// Most tokens that a text may be, and what says so, for errors.
struct TextLimit {
  const char* field = "";
  const char* name = "";
  size_t max_tokens = 0;
};

// What a text or a conversation needs too much of, the template's steps for
// example, no later try has: RESOURCE_EXHAUSTED becomes INVALID_ARGUMENT of
// `field`.
absl::Status TooMuchForGood(const absl::Status& status,
                            absl::string_view field);

// The ids of a text that is sent raw: special tokens in it are recognised, and
// BOS is prepended where the model's files say so. A text of more bytes than
// the limit's tokens can have is refused before it is tokenized, which could
// take seconds; what is shorter may still be more tokens.
absl::StatusOr<std::vector<int32_t>> TokenizeRaw(const std::string& text,
                                                 const CatalogModel& model,
                                                 const TextLimit& limit);

// A conversation under the model's template.
struct RenderedChat {
  std::string text;
  std::vector<int32_t> token_ids;
};
// The text of the whole conversation has the limit, if there is one.
absl::StatusOr<RenderedChat> RenderChat(
    const CatalogModel& model,
    const v1::ChatPrompt& chat,
    const std::optional<TextLimit>& limit = std::nullopt);

}  // namespace specwire::coordinator
