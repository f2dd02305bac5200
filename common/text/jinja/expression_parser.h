// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/token_stream.h"

namespace specwire::jinja {

// Parses expressions by recursive descent, one method for each level of
// precedence, loosest first.
//
// Thread safety: one thread at a time.
// Lifetime: *tokens outlives it.
class ExpressionParser {
 public:
  ExpressionParser(TokenStream* tokens, int max_depth)
      : tokens_(tokens), max_depth_(max_depth) {}

  // a if b else c
  absl::StatusOr<ExprPtr> ParseExpression();
  // An expression without a conditional, as in the head of a loop.
  absl::StatusOr<ExprPtr> ParseOr();
  // An expression, or several with commas between them, which are a list.
  absl::StatusOr<ExprPtr> ParseTuple();

 private:
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcatenation();
  absl::StatusOr<ExprPtr> ParseProduct();
  // Filters and tests bind tighter than every operator but the minus sign.
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseName();
  absl::StatusOr<ExprPtr> ParseString();
  absl::StatusOr<ExprPtr> ParseParenthesis();
  absl::StatusOr<ExprPtr> ParseListLiteral();
  absl::StatusOr<ExprPtr> ParseDictLiteral();
  // What follows a primary: attributes, subscripts, calls.
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseAttribute(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr input);
  absl::StatusOr<ExprPtr> ParseFilter(ExprPtr input);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr input);
  absl::Status ParseArguments(Expr* call);

  ExprPtr New(ExprKind kind) const;
  // Fixes the node's depth once all its children are there.
  absl::StatusOr<ExprPtr> Finish(ExprPtr expr) const;
  absl::StatusOr<ExprPtr> Binary(ExprKind kind,
                                 Op op,
                                 ExprPtr left,
                                 ExprPtr right) const;
  absl::Status TooDeep() const;

  TokenStream* const tokens_;
  const int max_depth_;
  // How many expressions are being parsed inside each other.
  int depth_ = 0;
};

}  // namespace specwire::jinja
