// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling/stop_matcher.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace specwire::coordinator {

// How a completion becomes text, and which texts end it.
struct TextRules {
  // Leave special tokens out.
  bool skip_special_tokens = true;
  // Texts that end the completion; never null.
  std::shared_ptr<const StopTexts> stop_texts =
      std::make_shared<const StopTexts>(std::vector<std::string>());
  bool include_stop = false;
  // A stop text that one of the first so many tokens completes does not end it.
  int min_tokens = 0;
};

// The text of a completion as its tokens come, judged token by token: a stop
// text ends it at the token that completes it. What has been released is a
// pure function of the tokens so far.
//
// Thread safety: one thread at a time.
// Lifetime: *tokenizer outlives it.
class CompletionText {
 public:
  CompletionText(const Tokenizer* tokenizer, const TextRules& rules);

  // Takes the next token and returns the text that it releases. `ends`: the
  // token ends the completion by itself (EOS, a stop token), which comes before
  // any stop text. REQUIRES: no stop text was met.
  std::string Push(int32_t token, bool ends);
  // The text that was held back; none if a stop text was met.
  std::string Finish();

  // The stop text that was met; null if none was.
  const std::string* stop_text() const;

 private:
  const TextRules rules_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  int num_tokens_ = 0;
};

}  // namespace specwire::coordinator
