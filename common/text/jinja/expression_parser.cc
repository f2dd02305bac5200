// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire::jinja {
namespace {

class DepthScope {
 public:
  explicit DepthScope(int* depth) : depth_(depth) { ++*depth_; }
  ~DepthScope() { --*depth_; }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;

 private:
  int* const depth_;
};

struct NamedOp {
  absl::string_view text;
  Op op;
};

constexpr NamedOp kComparisons[] = {{"==", Op::kEqual},
                                    {"!=", Op::kNotEqual},
                                    {"<", Op::kLess},
                                    {"<=", Op::kLessEqual},
                                    {">", Op::kGreater},
                                    {">=", Op::kGreaterEqual}};
constexpr NamedOp kSums[] = {{"+", Op::kAdd}, {"-", Op::kSubtract}};
constexpr NamedOp kProducts[] = {{"*", Op::kMultiply},
                                 {"/", Op::kDivide},
                                 {"//", Op::kFloorDivide},
                                 {"%", Op::kModulo}};

// Moves past the operator if the current token is one of `ops`.
template <size_t N>
std::optional<Op> TakeOp(TokenStream* tokens, const NamedOp (&ops)[N]) {
  for (const NamedOp& named : ops) {
    if (tokens->TakeOperator(named.text)) return named.op;
  }
  return std::nullopt;
}

std::optional<Op> TakeComparison(TokenStream* tokens) {
  if (const auto op = TakeOp(tokens, kComparisons)) return op;
  if (tokens->TakeName("in")) return Op::kIn;
  if (tokens->IsName("not") && tokens->IsNextName("in")) {
    tokens->Next();
    tokens->Next();
    return Op::kNotIn;
  }
  return std::nullopt;
}

}  // namespace

ExprPtr ExpressionParser::New(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = tokens_->line();
  return expr;
}

absl::Status ExpressionParser::TooDeep() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "line ", tokens_->line(), ": nested deeper than ", max_depth_));
}

absl::StatusOr<ExprPtr> ExpressionParser::Finish(ExprPtr expr) const {
  for (const ExprPtr& arg : expr->args) {
    if (arg != nullptr) expr->depth = std::max(expr->depth, arg->depth + 1);
  }
  for (const auto& [name, arg] : expr->named) {
    expr->depth = std::max(expr->depth, arg->depth + 1);
  }
  if (expr->depth > max_depth_) return TooDeep();
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::Binary(ExprKind kind,
                                                 Op op,
                                                 ExprPtr left,
                                                 ExprPtr right) const {
  ExprPtr expr = New(kind);
  expr->ops.push_back(op);
  expr->args.push_back(std::move(left));
  expr->args.push_back(std::move(right));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr first, ParseExpression());
  if (!tokens_->IsOperator(",")) return first;
  ExprPtr list = New(ExprKind::kList);
  list->args.push_back(std::move(first));
  while (tokens_->TakeOperator(",")) {
    if (tokens_->Is(TokenKind::kCloseTag) || tokens_->IsOperator(")") ||
        tokens_->Is(TokenKind::kCloseOutput)) {
      break;
    }
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list->args.push_back(std::move(item));
  }
  return Finish(std::move(list));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression() {
  const DepthScope scope(&depth_);
  if (depth_ > max_depth_) return TooDeep();
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (tokens_->TakeName("if")) {
    ExprPtr expr = New(ExprKind::kConditional);
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (tokens_->TakeName("else")) {
      SPECWIRE_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    expr->args.push_back(std::move(condition));
    expr->args.push_back(std::move(value));
    expr->args.push_back(std::move(otherwise));
    SPECWIRE_ASSIGN_OR_RETURN(value, Finish(std::move(expr)));
  }
  return value;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (tokens_->TakeName("or")) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    SPECWIRE_ASSIGN_OR_RETURN(
        left,
        Binary(ExprKind::kOr, Op::kEqual, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (tokens_->TakeName("and")) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    SPECWIRE_ASSIGN_OR_RETURN(
        left,
        Binary(ExprKind::kAnd, Op::kEqual, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!tokens_->IsName("not")) return ParseCompare();
  const DepthScope scope(&depth_);
  if (depth_ > max_depth_) return TooDeep();
  ExprPtr expr = New(ExprKind::kNot);
  tokens_->Next();
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  expr->args.push_back(std::move(operand));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  std::optional<Op> op = TakeComparison(tokens_);
  if (!op.has_value()) return first;
  ExprPtr expr = New(ExprKind::kCompare);
  expr->args.push_back(std::move(first));
  for (; op.has_value(); op = TakeComparison(tokens_)) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    expr->ops.push_back(*op);
    expr->args.push_back(std::move(operand));
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr left, ParseConcatenation());
  while (const auto op = TakeOp(tokens_, kSums)) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr right, ParseConcatenation());
    SPECWIRE_ASSIGN_OR_RETURN(
        left,
        Binary(ExprKind::kBinary, *op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcatenation() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr left, ParseProduct());
  while (tokens_->TakeOperator("~")) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr right, ParseProduct());
    SPECWIRE_ASSIGN_OR_RETURN(left,
                              Binary(ExprKind::kBinary,
                                     Op::kConcatenate,
                                     std::move(left),
                                     std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(/*with_filters=*/true));
  while (const auto op = TakeOp(tokens_, kProducts)) {
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(/*with_filters=*/true));
    SPECWIRE_ASSIGN_OR_RETURN(
        left,
        Binary(ExprKind::kBinary, *op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const DepthScope scope(&depth_);
  if (depth_ > max_depth_) return TooDeep();
  ExprPtr value;
  if (tokens_->TakeOperator("-")) {
    ExprPtr expr = New(ExprKind::kNegate);
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr operand,
                              ParseUnary(/*with_filters=*/false));
    expr->args.push_back(std::move(operand));
    SPECWIRE_ASSIGN_OR_RETURN(value, Finish(std::move(expr)));
  } else if (tokens_->TakeOperator("+")) {
    SPECWIRE_ASSIGN_OR_RETURN(value, ParseUnary(/*with_filters=*/false));
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  SPECWIRE_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filters) return value;
  return ParseFilters(std::move(value));
}

}  // namespace specwire::jinja
