// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/params.h"
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
  // Name of the drafter to use; empty: any.
  std::string drafter;
  bool skip_special_tokens = true;
};

// What a request may leave to the coordinator, and what is there to choose.
struct RequestDefaults {
  SpeculationDefaults speculation;
  int credit = 128;
  // Drafters that fit the model.
  std::vector<std::string> drafters;
};

// Every check below refuses with a message that names the field and the limit,
// INVALID_ARGUMENT unless said otherwise. Nothing is clamped or ignored: what
// is not supported yet is refused by name.

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

// A conversation under the model's template.
struct RenderedChat {
  std::string text;
  std::vector<int32_t> token_ids;
};
absl::StatusOr<RenderedChat> RenderChat(const CatalogModel& model,
                                        const v1::ChatPrompt& chat);

}  // namespace specwire::coordinator
