// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer_model.h"

namespace specwire {

// What tokenizer.json says.
struct HfTokenizerJson {
  // Without bos_id, eos_id, add_bos and chat_template.
  TokenizerModel model;
  // What the post-processor puts before a text, if anything.
  std::optional<int32_t> first_id;

  // The token of that text, added or not.
  std::optional<int32_t> Find(absl::string_view text) const;
};

// `path` is the file's name in errors, `text` its content.
absl::StatusOr<HfTokenizerJson> ReadHfTokenizerJson(absl::string_view path,
                                                    absl::string_view text);

}  // namespace specwire
