// SPDX-License-Identifier: Apache-2.0
#include "common/text/detokenizer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/utf8.h"

namespace specwire {

std::string Detokenizer::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  absl::StrAppend(&pending_, tokenizer_->TokenBytes(id));
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    AppendValidUtf8(rest.substr(0, step.length), &text);
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Detokenizer::Finish() {
  std::string text;
  AppendValidUtf8(pending_, &text);
  pending_.clear();
  return text;
}

}  // namespace specwire
