// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <memory>
#include <optional>

#include "common/base/status_macros.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/operators.h"

namespace specwire::jinja {
namespace {

std::optional<Function> FindFunction(absl::string_view name) {
  if (name == "raise_exception") return Function::kRaiseException;
  if (name == "namespace") return Function::kNamespace;
  if (name == "range") return Function::kRange;
  if (name == "dict") return Function::kDict;
  return std::nullopt;
}

}  // namespace

Value Evaluator::Lookup(const std::string& name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto it = scopes_[i].names.find(name);
    if (it != scopes_[i].names.end()) return it->second;
    if (scopes_[i].hides_outer) i = 1;  // On with the template's own.
  }
  if (const auto function = FindFunction(name)) return Value(*function);
  return Value(Undefined{name});
}

absl::StatusOr<Value> Evaluator::EvalInside(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return Lookup(expr.name);
    case ExprKind::kList:
      return EvalList(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kNot:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kConditional:
      return EvalLogic(expr);
    case ExprKind::kNegate: {
      SPECWIRE_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
      return Negate(value);
    }
    case ExprKind::kBinary: {
      SPECWIRE_ASSIGN_OR_RETURN(const Value left, Eval(*expr.args[0]));
      SPECWIRE_ASSIGN_OR_RETURN(const Value right, Eval(*expr.args[1]));
      return ApplyBinary(expr.ops[0], left, right, &budget_);
    }
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kAttribute: {
      SPECWIRE_ASSIGN_OR_RETURN(const Value object, Eval(*expr.args[0]));
      return GetAttribute(object, expr.name);
    }
    case ExprKind::kSubscript: {
      SPECWIRE_ASSIGN_OR_RETURN(const Value object, Eval(*expr.args[0]));
      SPECWIRE_ASSIGN_OR_RETURN(const Value key, Eval(*expr.args[1]));
      return GetItem(object, key, &budget_);
    }
    case ExprKind::kSlice:
      return EvalSlice(expr);
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return EvalFilter(expr);
    case ExprKind::kTest:
      return EvalTest(expr);
  }
  return absl::InternalError("unknown expression");
}

absl::StatusOr<Value> Evaluator::EvalLogic(const Expr& expr) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value first, Eval(*expr.args[0]));
  const bool truth = IsTrue(first);
  if (expr.kind == ExprKind::kNot) return Value(!truth);
  if (expr.kind == ExprKind::kAnd) return truth ? Eval(*expr.args[1]) : first;
  if (expr.kind == ExprKind::kOr) return truth ? first : Eval(*expr.args[1]);
  if (truth) return Eval(*expr.args[1]);
  if (expr.args[2] != nullptr) return Eval(*expr.args[2]);
  return Value(Undefined{"the missing else"});
}

absl::StatusOr<Value> Evaluator::EvalCompare(const Expr& expr) {
  SPECWIRE_ASSIGN_OR_RETURN(Value left, Eval(*expr.args[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(Value right, Eval(*expr.args[i + 1]));
    SPECWIRE_ASSIGN_OR_RETURN(const bool holds,
                              Compare(expr.ops[i], left, right, &budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Evaluator::EvalList(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& arg : expr.args) {
    SPECWIRE_ASSIGN_OR_RETURN(Value item, Eval(*arg));
    items.push_back(std::move(item));
  }
  SPECWIRE_RETURN_IF_ERROR(
      budget_.Charge(items.size() * Budget::kBytesPerItem));
  return Value::MakeList(std::move(items));
}

absl::StatusOr<Value> Evaluator::EvalDict(const Expr& expr) {
  std::vector<std::pair<MarkedString, Value>> items;
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    SPECWIRE_ASSIGN_OR_RETURN(const Value key, Eval(*expr.args[i]));
    SPECWIRE_ASSIGN_OR_RETURN(Value item, Eval(*expr.args[i + 1]));
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString* name,
                              StringArgument(&key, "a dict's key"));
    SPECWIRE_RETURN_IF_ERROR(
        budget_.Charge(name->size() + 4 * Budget::kBytesPerItem));
    items.emplace_back(*name, std::move(item));
  }
  return Value::MakeDict(std::move(items));
}

absl::StatusOr<Value> Evaluator::EvalSlice(const Expr& expr) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value object, Eval(*expr.args[0]));
  std::optional<Value> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    SPECWIRE_ASSIGN_OR_RETURN(parts[i], Eval(*expr.args[i + 1]));
  }
  return Slice(object, parts[0], parts[1], parts[2], &budget_);
}

absl::StatusOr<Arguments> Evaluator::EvalArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.named) {
    SPECWIRE_ASSIGN_OR_RETURN(Value value, Eval(*arg));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

absl::StatusOr<Value> Evaluator::EvalFilter(const Expr& expr) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value input, Eval(*expr.args[0]));
  SPECWIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  const Builtin* filter = FindFilter(expr.name);
  if (filter == nullptr) {
    return TemplateError(
        "filter '", expr.name.substr(0, 64), "' is not supported");
  }
  return Apply(*filter, input, arguments, &budget_);
}

absl::StatusOr<Value> Evaluator::EvalTest(const Expr& expr) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value input, Eval(*expr.args[0]));
  SPECWIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  const Builtin* test = FindTest(expr.name);
  if (test == nullptr) {
    return TemplateError(
        "test '", expr.name.substr(0, 64), "' is not supported");
  }
  return Apply(*test, input, arguments, &budget_);
}

absl::StatusOr<Value> Evaluator::EvalCall(const Expr& expr) {
  const Expr& callee = *expr.args[0];
  Value function;
  if (callee.kind == ExprKind::kAttribute) {
    SPECWIRE_ASSIGN_OR_RETURN(const Value self, Eval(*callee.args[0]));
    if (const Builtin* method = FindMethod(self, callee.name)) {
      SPECWIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
      return Apply(*method, self, arguments, &budget_);
    }
    if (self.IsUndefined()) return GetAttribute(self, callee.name);
    return TemplateError("a ",
                         self.TypeName(),
                         " has no supported method '",
                         callee.name.substr(0, 64),
                         "'");
  }
  SPECWIRE_ASSIGN_OR_RETURN(function, Eval(callee));
  SPECWIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  if (const Stmt* macro = function.AsMacro()) {
    return CallMacro(*macro, arguments);
  }
  if (const Function* known = function.AsFunction()) {
    return CallFunction(*known, arguments);
  }
  if (const Undefined* missing = function.AsUndefined()) {
    return TemplateError("'", missing->name.substr(0, 64), "' is undefined");
  }
  return TemplateError("a ", function.TypeName(), " cannot be called");
}

absl::StatusOr<Value> Evaluator::CallFunction(Function function,
                                              const Arguments& arguments) {
  switch (function) {
    case Function::kRaiseException: {
      if (arguments.positional.size() != 1 || !arguments.named.empty()) {
        return TemplateError("raise_exception() takes one argument");
      }
      SPECWIRE_ASSIGN_OR_RETURN(const MarkedString message,
                                ToText(arguments.positional[0]));
      return TemplateError(message.bytes().substr(0, 500));
    }
    case Function::kNamespace:
      return MakeNamespace(arguments);
    case Function::kRange:
      return MakeRange(arguments);
    case Function::kStrftimeNow:
      return FormatNow(arguments);
    case Function::kDict: {
      if (!arguments.positional.empty()) {
        return TemplateError("dict() takes named arguments only");
      }
      std::vector<std::pair<MarkedString, Value>> items;
      for (const auto& [name, value] : arguments.named) {
        SPECWIRE_RETURN_IF_ERROR(budget_.Charge(Budget::kBytesPerItem));
        items.emplace_back(MarkedString::Literal(name), value);
      }
      return Value::MakeDict(std::move(items));
    }
  }
  return absl::InternalError("unknown function");
}

absl::StatusOr<Value> Evaluator::MakeNamespace(const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    return TemplateError("namespace() takes named arguments only");
  }
  auto ns = std::make_shared<Namespace>();
  for (const auto& [name, value] : arguments.named) {
    if (!value.IsData()) {
      return TemplateError("a ", value.TypeName(), " cannot be stored");
    }
    ns->attributes[name] = value;
  }
  return Value(std::move(ns));
}

absl::StatusOr<Value> Evaluator::FormatNow(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return TemplateError("strftime_now() takes one argument");
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const MarkedString* format,
      StringArgument(&arguments.positional[0], "strftime_now: format"));
  if (format->size() > 100) return TemplateError("strftime_now: long format");
  return Value(MarkedString::Data(absl::FormatTime(
      std::string(format->bytes()), *now_, absl::UTCTimeZone())));
}

absl::StatusOr<Value> Evaluator::MakeRange(const Arguments& arguments) {
  const std::vector<Value>& args = arguments.positional;
  if (args.empty() || args.size() > 3 || !arguments.named.empty()) {
    return TemplateError("range() takes one to three arguments");
  }
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < args.size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(parts[i], IntArgument(&args[i], "range", 0));
  }
  if (args.size() == 1) std::swap(parts[0], parts[1]);
  const auto [start, stop, step] = parts;
  if (step == 0) return TemplateError("range() step is zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    SPECWIRE_RETURN_IF_ERROR(budget_.Charge(Budget::kBytesPerItem));
    SPECWIRE_RETURN_IF_ERROR(budget_.Iterate());
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::MakeList(std::move(items));
}

}  // namespace specwire::jinja
