// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/text/chat_template_limits.h"
#include "common/text/text_segment.h"

namespace specwire {

// One turn of a conversation. Both fields are data: the text of a special token
// in them stays text.
struct ChatMessage {
  std::string role;
  std::string content;
};

// What a template can see besides the messages.
struct ChatContext {
  // True to end with the opening of the model's turn.
  bool add_generation_prompt = true;
  // The texts of the model's tokens; empty if it has none. They count as the
  // template's own.
  std::string bos_token;
  std::string eos_token;
  // What strftime_now() tells the template, in UTC. Without it that function is
  // not defined; templates that only would like a date then use a fixed one.
  std::optional<absl::Time> now;
};

// A model's chat template: turns a conversation into the prompt that the model
// was trained on.
//
// The source is Jinja, and untrusted. It is run by an interpreter of the subset
// that chat templates use (common/text/jinja), which has no access to anything
// but its input and stops at the limits. White space is treated as Hugging Face
// transformers does (trim_blocks, lstrip_blocks). Besides ChatContext a
// template sees `messages`, and `tools` and `documents`, which are none.
//
// Thread safety: const methods from any thread.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT, naming chat_template and the line, if the source is not
  // in the subset; RESOURCE_EXHAUSTED if it is beyond a limit.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(
      absl::string_view source, const ChatTemplateLimits& limits = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The prompt, in segments that say which bytes the template wrote itself
  // (special tokens allowed) and which came from the messages. Neighbouring
  // segments differ in that; none is empty. INVALID_ARGUMENT with the
  // template's own message if it calls raise_exception, or with the line where
  // it fails; RESOURCE_EXHAUSTED at a limit.
  absl::StatusOr<std::vector<TextSegment>> Render(
      absl::Span<const ChatMessage> messages, const ChatContext& context) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace specwire
