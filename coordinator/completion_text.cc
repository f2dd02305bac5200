// SPDX-License-Identifier: Apache-2.0
#include "coordinator/completion_text.h"

#include "absl/strings/str_cat.h"

namespace specwire::coordinator {

CompletionText::CompletionText(const Tokenizer* tokenizer,
                               const TextRules& rules)
    : rules_(rules),
      detokenizer_(tokenizer, rules.skip_special_tokens),
      matcher_(rules.stop_texts, rules.include_stop) {}

std::string CompletionText::Push(int32_t token, bool ends) {
  const bool may_stop = !ends && num_tokens_ >= rules_.min_tokens;
  ++num_tokens_;
  return matcher_.Push(detokenizer_.Push(token), may_stop);
}

std::string CompletionText::Finish() {
  // Bytes of an unfinished character stand behind all other text.
  std::string broken = detokenizer_.Finish();
  if (matcher_.match().has_value()) return std::string();
  return absl::StrCat(matcher_.Finish(), broken);
}

const std::string* CompletionText::stop_text() const {
  const std::optional<int> match = matcher_.match();
  if (!match.has_value()) return nullptr;
  return &rules_.stop_texts->texts()[static_cast<size_t>(*match)];
}

}  // namespace specwire::coordinator
