// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/lexer.h"

namespace specwire::jinja {

// The tokens of a template and a place in them.
//
// Thread safety: one thread at a time.
class TokenStream {
 public:
  // REQUIRES: the last token, and no other, is kEnd.
  explicit TokenStream(std::vector<Token> tokens)
      : tokens_(std::move(tokens)) {}

  const Token& peek() const { return tokens_[position_]; }
  int line() const { return peek().line; }

  // Moves past the current token. At the end it stays there.
  const Token& Next() {
    const Token& token = peek();
    if (token.kind != TokenKind::kEnd) ++position_;
    return token;
  }

  bool Is(TokenKind kind) const { return peek().kind == kind; }
  bool IsOperator(absl::string_view text) const {
    return Is(TokenKind::kOperator) && peek().text == text;
  }
  bool IsName(absl::string_view text) const {
    return Is(TokenKind::kName) && peek().text == text;
  }
  // True if the token after the current one is that name.
  bool IsNextName(absl::string_view text) const {
    if (Is(TokenKind::kEnd)) return false;
    const Token& next = tokens_[position_ + 1];
    return next.kind == TokenKind::kName && next.text == text;
  }

  // These move on if, and only if, the current token is the one asked for.
  bool TakeOperator(absl::string_view text) {
    if (!IsOperator(text)) return false;
    Next();
    return true;
  }
  bool TakeName(absl::string_view text) {
    if (!IsName(text)) return false;
    Next();
    return true;
  }
  absl::Status ExpectOperator(absl::string_view text) {
    return TakeOperator(text) ? absl::OkStatus()
                              : Error(absl::StrCat("expected '", text, "'"));
  }
  absl::Status Expect(TokenKind kind, absl::string_view what) {
    if (!Is(kind)) return Error(absl::StrCat("expected ", what));
    Next();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> TakeAnyName() {
    if (!Is(TokenKind::kName)) return Error("expected a name");
    return Next().text;
  }

  absl::Status Error(absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line(), ": ", message, Found()));
  }

 private:
  std::string Found() const {
    switch (peek().kind) {
      case TokenKind::kName:
      case TokenKind::kOperator:
        return absl::StrCat(", found '", peek().text.substr(0, 64), "'");
      case TokenKind::kCloseTag:
      case TokenKind::kCloseOutput:
        return ", found the end of the tag";
      case TokenKind::kEnd:
        return ", found the end of the template";
      default:
        return "";
    }
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace specwire::jinja
