// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/value.h"

namespace specwire::jinja {

// One rendering of a template: a walk over its tree under a budget.
//
// Thread safety: one thread at a time.
// Lifetime: used once; the template outlives it.
class Evaluator {
 public:
  explicit Evaluator(const ChatTemplateLimits& limits) : budget_(limits) {}

  // Defines a variable that the template can see.
  void Define(const std::string& name, Value value);

  // Defines strftime_now(), which the template otherwise does not have.
  void SetNow(absl::Time now);

  // The text that the template prints. Errors name the line.
  absl::StatusOr<MarkedString> Run(const Body& body);

 private:
  // Names that are looked up together: those of the template, of one turn of a
  // loop, or of one call of a macro.
  struct Scope {
    absl::flat_hash_map<std::string, Value> names;
    // True for a macro's: it sees the template's names, not its caller's.
    bool hides_outer = false;
  };
  // How a statement ended.
  enum class Flow { kNext, kBreak, kContinue };
  class Nesting;

  // Statements.
  absl::StatusOr<Flow> RunBody(const Body& body);
  absl::StatusOr<Flow> RunStmt(const Stmt& stmt);
  absl::StatusOr<Flow> RunIf(const Stmt& stmt);
  absl::StatusOr<Flow> RunFor(const Stmt& stmt);
  // The items of a loop, with their condition applied.
  absl::StatusOr<std::vector<Value>> LoopItems(const Stmt& stmt);
  absl::Status RunSet(const Stmt& stmt);
  absl::Status SetField(const Stmt& stmt);
  absl::Status Print(const MarkedString& text);
  // What the body prints.
  absl::StatusOr<MarkedString> Capture(const Body& body);
  // Gives the targets the value, or its items if there are several targets.
  absl::Status Assign(const std::vector<std::string>& targets,
                      const Value& value);

  // Expressions.
  absl::StatusOr<Value> Eval(const Expr& expr);
  absl::StatusOr<Value> EvalInside(const Expr& expr);
  absl::StatusOr<Value> EvalLogic(const Expr& expr);
  absl::StatusOr<Value> EvalCompare(const Expr& expr);
  absl::StatusOr<Value> EvalList(const Expr& expr);
  absl::StatusOr<Value> EvalDict(const Expr& expr);
  absl::StatusOr<Value> EvalSlice(const Expr& expr);
  absl::StatusOr<Value> EvalFilter(const Expr& expr);
  absl::StatusOr<Value> EvalTest(const Expr& expr);
  absl::StatusOr<Value> EvalCall(const Expr& expr);
  absl::StatusOr<Value> CallFunction(Function function,
                                     const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Stmt& macro,
                                  const Arguments& arguments);
  absl::StatusOr<Value> MakeNamespace(const Arguments& arguments);
  absl::StatusOr<Value> FormatNow(const Arguments& arguments);
  absl::StatusOr<Value> MakeRange(const Arguments& arguments);
  // Evaluates all args but the first.
  absl::StatusOr<Arguments> EvalArguments(const Expr& expr);
  Value Lookup(const std::string& name) const;

  Budget budget_;
  std::optional<absl::Time> now_;
  // The template's scope first, the innermost last.
  std::vector<Scope> scopes_;
  // What has been printed; of a capture, since it began.
  MarkedString output_;
  // Nodes that are being evaluated inside each other.
  int depth_ = 0;
  int64_t loop_depth_ = 0;
};

}  // namespace specwire::jinja
