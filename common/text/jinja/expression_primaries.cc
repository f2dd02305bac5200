// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "common/base/status_macros.h"
#include "common/text/jinja/expression_parser.h"

namespace specwire::jinja {

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  switch (tokens_->peek().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInt: {
      ExprPtr expr = New(ExprKind::kConstant);
      expr->constant = Value(tokens_->Next().integer);
      return expr;
    }
    case TokenKind::kFloat: {
      ExprPtr expr = New(ExprKind::kConstant);
      expr->constant = Value(tokens_->Next().number);
      return expr;
    }
    default:
      break;
  }
  if (tokens_->IsOperator("(")) return ParseParenthesis();
  if (tokens_->IsOperator("[")) return ParseListLiteral();
  if (tokens_->IsOperator("{")) return ParseDictLiteral();
  return tokens_->Error("expected an expression");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseName() {
  ExprPtr expr = New(ExprKind::kConstant);
  const std::string& name = tokens_->peek().text;
  if (name == "true" || name == "True") {
    expr->constant = Value(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value(false);
  } else if (name == "none" || name == "None") {
    expr->constant = Value(None());
  } else if (name == "if" || name == "else" || name == "and" || name == "or" ||
             name == "in" || name == "is" || name == "not") {
    return tokens_->Error("expected an expression");
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
  }
  tokens_->Next();
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseString() {
  ExprPtr expr = New(ExprKind::kConstant);
  std::string text;
  // Literals side by side are one.
  while (tokens_->Is(TokenKind::kString)) text += tokens_->Next().text;
  expr->constant = Value(MarkedString::Literal(text));
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseParenthesis() {
  ExprPtr empty = New(ExprKind::kList);
  tokens_->Next();
  if (tokens_->TakeOperator(")")) return empty;
  SPECWIRE_ASSIGN_OR_RETURN(ExprPtr value, ParseTuple());
  SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator(")"));
  return value;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseListLiteral() {
  ExprPtr expr = New(ExprKind::kList);
  tokens_->Next();
  while (!tokens_->TakeOperator("]")) {
    if (!expr->args.empty()) {
      SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator(","));
      if (tokens_->TakeOperator("]")) break;
    }
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    expr->args.push_back(std::move(item));
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseDictLiteral() {
  ExprPtr expr = New(ExprKind::kDict);
  tokens_->Next();
  while (!tokens_->TakeOperator("}")) {
    if (!expr->args.empty()) {
      SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator(","));
      if (tokens_->TakeOperator("}")) break;
    }
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator(":"));
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    expr->args.push_back(std::move(key));
    expr->args.push_back(std::move(value));
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr object) {
  while (true) {
    if (tokens_->IsOperator(".")) {
      SPECWIRE_ASSIGN_OR_RETURN(object, ParseAttribute(std::move(object)));
    } else if (tokens_->IsOperator("[")) {
      SPECWIRE_ASSIGN_OR_RETURN(object, ParseSubscript(std::move(object)));
    } else if (tokens_->IsOperator("(")) {
      ExprPtr call = New(ExprKind::kCall);
      call->args.push_back(std::move(object));
      SPECWIRE_RETURN_IF_ERROR(ParseArguments(call.get()));
      SPECWIRE_ASSIGN_OR_RETURN(object, Finish(std::move(call)));
    } else {
      return object;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAttribute(ExprPtr object) {
  ExprPtr expr = New(ExprKind::kAttribute);
  tokens_->Next();
  expr->args.push_back(std::move(object));
  if (tokens_->Is(TokenKind::kInt)) {
    expr->kind = ExprKind::kSubscript;
    ExprPtr index = New(ExprKind::kConstant);
    index->constant = Value(tokens_->Next().integer);
    expr->args.push_back(std::move(index));
  } else {
    SPECWIRE_ASSIGN_OR_RETURN(expr->name, tokens_->TakeAnyName());
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  ExprPtr expr = New(ExprKind::kSubscript);
  tokens_->Next();
  expr->args.push_back(std::move(object));
  // The parts between the colons, any of which may be missing.
  for (int part = 0; part < 3; ++part) {
    ExprPtr value;
    if (!tokens_->IsOperator(":") && !tokens_->IsOperator("]")) {
      SPECWIRE_ASSIGN_OR_RETURN(value, ParseExpression());
    }
    expr->args.push_back(std::move(value));
    if (!tokens_->TakeOperator(":")) break;
    expr->kind = ExprKind::kSlice;
  }
  if (expr->kind == ExprKind::kSlice) {
    expr->args.resize(4);
  } else if (expr->args[1] == nullptr) {
    return tokens_->Error("expected a subscript");
  }
  SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator("]"));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilters(ExprPtr input) {
  while (true) {
    if (tokens_->TakeOperator("|")) {
      SPECWIRE_ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
    } else if (tokens_->TakeName("is")) {
      SPECWIRE_ASSIGN_OR_RETURN(input, ParseTest(std::move(input)));
    } else {
      return input;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr input) {
  ExprPtr expr = New(ExprKind::kFilter);
  SPECWIRE_ASSIGN_OR_RETURN(expr->name, tokens_->TakeAnyName());
  expr->args.push_back(std::move(input));
  if (tokens_->IsOperator("(")) {
    SPECWIRE_RETURN_IF_ERROR(ParseArguments(expr.get()));
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr input) {
  const bool negated = tokens_->TakeName("not");
  ExprPtr expr = New(ExprKind::kTest);
  SPECWIRE_ASSIGN_OR_RETURN(expr->name, tokens_->TakeAnyName());
  expr->args.push_back(std::move(input));
  const TokenKind next = tokens_->peek().kind;
  if (tokens_->IsOperator("(")) {
    SPECWIRE_RETURN_IF_ERROR(ParseArguments(expr.get()));
  } else if (next == TokenKind::kString || next == TokenKind::kInt ||
             next == TokenKind::kFloat || tokens_->IsOperator("[") ||
             tokens_->IsOperator("{") ||
             (next == TokenKind::kName && !tokens_->IsName("else") &&
              !tokens_->IsName("or") && !tokens_->IsName("and") &&
              !tokens_->IsName("if"))) {
    // An argument without parentheses, as in "is divisibleby 3".
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    SPECWIRE_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    expr->args.push_back(std::move(argument));
  }
  SPECWIRE_ASSIGN_OR_RETURN(expr, Finish(std::move(expr)));
  if (!negated) return expr;
  ExprPtr negation = New(ExprKind::kNot);
  negation->args.push_back(std::move(expr));
  return Finish(std::move(negation));
}

absl::Status ExpressionParser::ParseArguments(Expr* call) {
  tokens_->Next();
  for (bool first = true; !tokens_->TakeOperator(")"); first = false) {
    if (!first) {
      SPECWIRE_RETURN_IF_ERROR(tokens_->ExpectOperator(","));
      if (tokens_->TakeOperator(")")) break;
    }
    SPECWIRE_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    if (value->kind == ExprKind::kName && tokens_->TakeOperator("=")) {
      std::string name = value->name;
      SPECWIRE_ASSIGN_OR_RETURN(value, ParseExpression());
      call->named.emplace_back(std::move(name), std::move(value));
    } else if (!call->named.empty()) {
      return tokens_->Error("positional argument after a named one");
    } else {
      call->args.push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

}  // namespace specwire::jinja
