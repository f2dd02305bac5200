// SPDX-License-Identifier: Apache-2.0
#include "common/text/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/parser.h"

namespace specwire {
namespace {

using jinja::MarkedString;
using jinja::Value;

absl::Status WithField(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("chat_template: ", status.message()));
}

absl::StatusOr<Value> MessagesValue(absl::Span<const ChatMessage> messages) {
  std::vector<Value> items;
  items.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    SPECWIRE_ASSIGN_OR_RETURN(
        Value item,
        Value::MakeDict({{MarkedString::Data("role"),
                          Value(MarkedString::Data(message.role))},
                         {MarkedString::Data("content"),
                          Value(MarkedString::Data(message.content))}}));
    items.push_back(std::move(item));
  }
  return Value::MakeList(std::move(items));
}

}  // namespace

struct ChatTemplate::Impl {
  ChatTemplateLimits limits;
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(
    absl::string_view source, const ChatTemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat_template: ",
                     source.size(),
                     " bytes exceed the limit of ",
                     limits.max_source_bytes));
  }
  auto impl = std::make_unique<Impl>();
  impl->limits = limits;
  auto body = jinja::Parse(source, limits);
  if (!body.ok()) return WithField(body.status());
  impl->body = *std::move(body);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::Render(
    absl::Span<const ChatMessage> messages, const ChatContext& context) const {
  SPECWIRE_ASSIGN_OR_RETURN(Value list, MessagesValue(messages));
  jinja::Evaluator evaluator(impl_->limits);
  evaluator.Define("messages", std::move(list));
  evaluator.Define("add_generation_prompt",
                   Value(context.add_generation_prompt));
  evaluator.Define("tools", Value(jinja::None()));
  evaluator.Define("documents", Value(jinja::None()));
  if (!context.bos_token.empty()) {
    evaluator.Define("bos_token",
                     Value(MarkedString::Literal(context.bos_token)));
  }
  if (!context.eos_token.empty()) {
    evaluator.Define("eos_token",
                     Value(MarkedString::Literal(context.eos_token)));
  }
  if (context.now.has_value()) evaluator.SetNow(*context.now);
  auto output = evaluator.Run(impl_->body);
  if (!output.ok()) return WithField(output.status());
  return output->ToSegments();
}

}  // namespace specwire
