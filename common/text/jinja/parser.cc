// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/expression_parser.h"
#include "common/text/jinja/token_stream.h"

namespace specwire::jinja {
namespace {

using EndTags = std::initializer_list<absl::string_view>;

// Parses statements; expressions are left to ExpressionParser.
class Parser {
 public:
  Parser(std::vector<Token> tokens, int max_depth)
      : tokens_(std::move(tokens)),
        max_depth_(max_depth),
        expressions_(&tokens_, max_depth) {}

  absl::StatusOr<Body> Run() { return ParseBody({}); }

 private:
  // Parses up to a tag of one of the names, which is left with its name as the
  // current token; without names up to the end of the template.
  absl::StatusOr<Body> ParseBody(EndTags end_tags) {
    if (depth_ >= max_depth_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "line ", tokens_.line(), ": nested deeper than ", max_depth_));
    }
    ++depth_;
    auto body = ParseStatements(end_tags);
    --depth_;
    return body;
  }

  absl::StatusOr<Body> ParseStatements(EndTags end_tags) {
    Body body;
    while (!tokens_.Is(TokenKind::kEnd)) {
      Stmt stmt;
      stmt.kind = StmtKind::kText;
      stmt.line = tokens_.line();
      const Token& token = tokens_.Next();
      if (token.kind == TokenKind::kText) {
        stmt.text = MarkedString::Literal(token.text);
      } else if (token.kind == TokenKind::kOpenOutput) {
        stmt.kind = StmtKind::kOutput;
        SPECWIRE_ASSIGN_OR_RETURN(stmt.value, expressions_.ParseTuple());
        SPECWIRE_RETURN_IF_ERROR(
            tokens_.Expect(TokenKind::kCloseOutput, "'}}'"));
      } else {
        if (std::any_of(end_tags.begin(), end_tags.end(), [&](auto name) {
              return tokens_.IsName(name);
            })) {
          return body;
        }
        SPECWIRE_RETURN_IF_ERROR(ParseTag(&stmt));
      }
      body.push_back(std::move(stmt));
    }
    if (end_tags.size() != 0) {
      return tokens_.Error(
          absl::StrCat("expected {% ", *(end_tags.end() - 1), " %}"));
    }
    return body;
  }

  // Parses a statement, the current token being its name.
  absl::Status ParseTag(Stmt* stmt) {
    if (tokens_.TakeName("if")) return ParseIf(stmt);
    if (tokens_.TakeName("for")) return ParseFor(stmt);
    if (tokens_.TakeName("set")) return ParseSet(stmt);
    if (tokens_.TakeName("macro")) return ParseMacro(stmt);
    if (tokens_.TakeName("generation")) {
      stmt->kind = StmtKind::kGroup;
      return ParseBlock("endgeneration", &stmt->body);
    }
    if (tokens_.IsName("break") || tokens_.IsName("continue")) {
      if (loops_ == 0) return tokens_.Error("not inside of a loop");
      stmt->kind =
          tokens_.IsName("break") ? StmtKind::kBreak : StmtKind::kContinue;
      tokens_.Next();
      return CloseTag();
    }
    return tokens_.Error("tag is not supported");
  }

  absl::Status CloseTag() {
    return tokens_.Expect(TokenKind::kCloseTag, "'%}'");
  }

  // Parses the rest of the opening tag, the body, and the closing tag.
  absl::Status ParseBlock(absl::string_view end_tag, Body* body) {
    SPECWIRE_RETURN_IF_ERROR(CloseTag());
    SPECWIRE_ASSIGN_OR_RETURN(*body, ParseBody({end_tag}));
    tokens_.Next();
    return CloseTag();
  }

  absl::Status ParseIf(Stmt* stmt) {
    stmt->kind = StmtKind::kIf;
    bool more = true;
    while (more) {
      Branch branch;
      SPECWIRE_ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple());
      SPECWIRE_RETURN_IF_ERROR(CloseTag());
      SPECWIRE_ASSIGN_OR_RETURN(branch.body,
                                ParseBody({"elif", "else", "endif"}));
      stmt->branches.push_back(std::move(branch));
      more = tokens_.TakeName("elif");
    }
    if (tokens_.TakeName("else")) {
      stmt->branches.emplace_back();
      return ParseBlock("endif", &stmt->branches.back().body);
    }
    tokens_.Next();
    return CloseTag();
  }

  absl::Status ParseFor(Stmt* stmt) {
    stmt->kind = StmtKind::kFor;
    SPECWIRE_RETURN_IF_ERROR(ParseTargets(stmt));
    if (!tokens_.TakeName("in")) return tokens_.Error("expected 'in'");
    SPECWIRE_ASSIGN_OR_RETURN(stmt->value, expressions_.ParseOr());
    if (tokens_.TakeName("if")) {
      SPECWIRE_ASSIGN_OR_RETURN(stmt->condition,
                                expressions_.ParseExpression());
    }
    SPECWIRE_RETURN_IF_ERROR(CloseTag());
    ++loops_;
    auto body = ParseBody({"else", "endfor"});
    --loops_;
    SPECWIRE_ASSIGN_OR_RETURN(stmt->body, std::move(body));
    if (tokens_.TakeName("else")) {
      return ParseBlock("endfor", &stmt->else_body);
    }
    tokens_.Next();
    return CloseTag();
  }

  // a, b, c
  absl::Status ParseTargets(Stmt* stmt) {
    const bool parenthesis = tokens_.TakeOperator("(");
    do {
      SPECWIRE_ASSIGN_OR_RETURN(std::string name, tokens_.TakeAnyName());
      stmt->targets.push_back(std::move(name));
    } while (tokens_.TakeOperator(","));
    return parenthesis ? tokens_.ExpectOperator(")") : absl::OkStatus();
  }

  absl::Status ParseSet(Stmt* stmt) {
    stmt->kind = StmtKind::kSet;
    SPECWIRE_RETURN_IF_ERROR(ParseTargets(stmt));
    if (stmt->targets.size() == 1 && tokens_.TakeOperator(".")) {
      stmt->kind = StmtKind::kSetField;
      SPECWIRE_ASSIGN_OR_RETURN(stmt->name, tokens_.TakeAnyName());
    }
    if (tokens_.TakeOperator("=")) {
      SPECWIRE_ASSIGN_OR_RETURN(stmt->value, expressions_.ParseTuple());
      return CloseTag();
    }
    if (stmt->kind == StmtKind::kSetField || stmt->targets.size() != 1) {
      return tokens_.Error("expected '='");
    }
    stmt->kind = StmtKind::kSetBlock;
    return ParseBlock("endset", &stmt->body);
  }

  absl::Status ParseMacro(Stmt* stmt) {
    stmt->kind = StmtKind::kMacro;
    SPECWIRE_ASSIGN_OR_RETURN(stmt->name, tokens_.TakeAnyName());
    SPECWIRE_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.TakeOperator(")")) {
      if (!stmt->targets.empty()) {
        SPECWIRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      }
      SPECWIRE_ASSIGN_OR_RETURN(std::string name, tokens_.TakeAnyName());
      stmt->targets.push_back(std::move(name));
      ExprPtr fallback;
      if (tokens_.TakeOperator("=")) {
        SPECWIRE_ASSIGN_OR_RETURN(fallback, expressions_.ParseExpression());
      }
      stmt->defaults.push_back(std::move(fallback));
    }
    // A loop around the macro is not one that its body could leave.
    const int loops = std::exchange(loops_, 0);
    absl::Status status = ParseBlock("endmacro", &stmt->body);
    loops_ = loops;
    return status;
  }

  TokenStream tokens_;
  const int max_depth_;
  ExpressionParser expressions_;
  // How many bodies are being parsed inside each other.
  int depth_ = 0;
  // How many of them are loops.
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<Body> Parse(absl::string_view source,
                           const ChatTemplateLimits& limits) {
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens), limits.max_depth).Run();
}

}  // namespace specwire::jinja
