// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/evaluator.h"

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"

namespace specwire::jinja {
namespace {

// Names the line in an error that does not do so yet.
absl::Status AtLine(const absl::Status& status, int line) {
  if (status.ok() || absl::StartsWith(status.message(), "line ")) return status;
  return absl::Status(status.code(),
                      absl::StrCat("line ", line, ": ", status.message()));
}

}  // namespace

// Counts a node as being evaluated as long as it lives.
class Evaluator::Nesting {
 public:
  explicit Nesting(Evaluator* evaluator) : evaluator_(evaluator) {
    ++evaluator_->depth_;
  }
  ~Nesting() { --evaluator_->depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  absl::Status Check() const {
    const int limit = evaluator_->budget_.limits().max_depth;
    if (evaluator_->depth_ > limit) {
      return LimitError("nested deeper than ", limit);
    }
    return evaluator_->budget_.Step();
  }

 private:
  Evaluator* const evaluator_;
};

void Evaluator::Define(const std::string& name, Value value) {
  if (scopes_.empty()) scopes_.emplace_back();
  scopes_.front().names[name] = std::move(value);
}

void Evaluator::SetNow(absl::Time now) {
  now_ = now;
  Define("strftime_now", Value(Function::kStrftimeNow));
}

absl::StatusOr<MarkedString> Evaluator::Run(const Body& body) {
  if (scopes_.empty()) scopes_.emplace_back();
  SPECWIRE_RETURN_IF_ERROR(RunBody(body).status());
  return std::move(output_);
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunBody(const Body& body) {
  for (const Stmt& stmt : body) {
    auto flow = RunStmt(stmt);
    if (!flow.ok()) return AtLine(flow.status(), stmt.line);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunStmt(const Stmt& stmt) {
  const Nesting nesting(this);
  SPECWIRE_RETURN_IF_ERROR(nesting.Check());
  switch (stmt.kind) {
    case StmtKind::kText:
      SPECWIRE_RETURN_IF_ERROR(Print(stmt.text));
      return Flow::kNext;
    case StmtKind::kOutput: {
      SPECWIRE_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value));
      SPECWIRE_ASSIGN_OR_RETURN(const MarkedString text, ToText(value));
      SPECWIRE_RETURN_IF_ERROR(Print(text));
      return Flow::kNext;
    }
    case StmtKind::kIf:
      return RunIf(stmt);
    case StmtKind::kFor:
      return RunFor(stmt);
    case StmtKind::kSet:
    case StmtKind::kSetField:
    case StmtKind::kSetBlock:
      SPECWIRE_RETURN_IF_ERROR(RunSet(stmt));
      return Flow::kNext;
    case StmtKind::kMacro:
      scopes_.back().names[stmt.name] = Value(&stmt);
      return Flow::kNext;
    case StmtKind::kGroup:
      return RunBody(stmt.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return absl::InternalError("unknown statement");
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition != nullptr) {
      SPECWIRE_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
      if (!IsTrue(condition)) continue;
    }
    return RunBody(branch.body);
  }
  return Flow::kNext;
}

absl::StatusOr<std::vector<Value>> Evaluator::LoopItems(const Stmt& stmt) {
  SPECWIRE_ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.value));
  SPECWIRE_ASSIGN_OR_RETURN(std::vector<Value> items,
                            Items(iterable, &budget_));
  if (stmt.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    SPECWIRE_RETURN_IF_ERROR(budget_.Iterate());
    scopes_.emplace_back();
    absl::Status status = Assign(stmt.targets, item);
    absl::StatusOr<Value> condition =
        status.ok() ? Eval(*stmt.condition) : absl::StatusOr<Value>(status);
    scopes_.pop_back();
    SPECWIRE_RETURN_IF_ERROR(condition.status());
    if (IsTrue(*condition)) kept.push_back(std::move(item));
  }
  return kept;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunFor(const Stmt& stmt) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, LoopItems(stmt));
  if (items.empty()) {
    scopes_.emplace_back();
    auto flow = RunBody(stmt.else_body);
    scopes_.pop_back();
    return flow;
  }
  ++loop_depth_;
  absl::StatusOr<Flow> flow = Flow::kNext;
  for (size_t i = 0; i < items.size(); ++i) {
    SPECWIRE_RETURN_IF_ERROR(budget_.Iterate());
    auto loop = std::make_shared<Loop>();
    loop->index0 = static_cast<int64_t>(i);
    loop->length = static_cast<int64_t>(items.size());
    loop->depth0 = loop_depth_ - 1;
    loop->previous = i > 0 ? items[i - 1] : Value(Undefined{"loop.previtem"});
    loop->next =
        i + 1 < items.size() ? items[i + 1] : Value(Undefined{"loop.nextitem"});
    // Names that a turn sets are gone with the next, as in Jinja.
    scopes_.emplace_back();
    scopes_.back().names["loop"] = Value(std::shared_ptr<const Loop>(loop));
    if (absl::Status status = Assign(stmt.targets, items[i]); status.ok()) {
      flow = RunBody(stmt.body);
    } else {
      flow = status;
    }
    scopes_.pop_back();
    if (!flow.ok() || *flow == Flow::kBreak) break;
  }
  --loop_depth_;
  if (!flow.ok()) return flow;
  return Flow::kNext;
}

absl::Status Evaluator::RunSet(const Stmt& stmt) {
  if (stmt.kind == StmtKind::kSetField) return SetField(stmt);
  if (stmt.kind == StmtKind::kSetBlock) {
    SPECWIRE_ASSIGN_OR_RETURN(MarkedString text, Capture(stmt.body));
    return Assign(stmt.targets, Value(std::move(text)));
  }
  SPECWIRE_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value));
  return Assign(stmt.targets, value);
}

absl::Status Evaluator::SetField(const Stmt& stmt) {
  SPECWIRE_ASSIGN_OR_RETURN(Value value, Eval(*stmt.value));
  const Value object = Lookup(stmt.targets[0]);
  Namespace* ns = object.AsNamespace();
  if (ns == nullptr) {
    return TemplateError("'",
                         stmt.targets[0].substr(0, 64),
                         "' is not a namespace, its attributes cannot be set");
  }
  if (!value.IsData()) {
    return TemplateError("a ", value.TypeName(), " cannot be stored");
  }
  ns->attributes[stmt.name] = std::move(value);
  return absl::OkStatus();
}

absl::Status Evaluator::Print(const MarkedString& text) {
  const size_t limit = budget_.limits().max_output_bytes;
  if (output_.size() + text.size() > limit) {
    return LimitError("more than ", limit, " bytes of output");
  }
  SPECWIRE_RETURN_IF_ERROR(budget_.Charge(text.size()));
  output_.Append(text);
  return absl::OkStatus();
}

absl::StatusOr<MarkedString> Evaluator::Capture(const Body& body) {
  MarkedString outer = std::exchange(output_, MarkedString());
  absl::Status status = RunBody(body).status();
  MarkedString text = std::exchange(output_, std::move(outer));
  SPECWIRE_RETURN_IF_ERROR(status);
  return text;
}

absl::Status Evaluator::Assign(const std::vector<std::string>& targets,
                               const Value& value) {
  auto& names = scopes_.back().names;
  if (targets.size() == 1) {
    names[targets[0]] = value;
    return absl::OkStatus();
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(value, &budget_));
  if (items.size() != targets.size()) {
    return TemplateError(
        items.size(), " values for ", targets.size(), " names");
  }
  for (size_t i = 0; i < items.size(); ++i) names[targets[i]] = items[i];
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::Eval(const Expr& expr) {
  const Nesting nesting(this);
  SPECWIRE_RETURN_IF_ERROR(nesting.Check());
  auto value = EvalInside(expr);
  if (!value.ok()) return AtLine(value.status(), expr.line);
  return value;
}

absl::StatusOr<Value> Evaluator::CallMacro(const Stmt& macro,
                                           const Arguments& arguments) {
  const std::vector<std::string>& parameters = macro.targets;
  if (arguments.positional.size() > parameters.size()) {
    return TemplateError("macro '",
                         macro.name.substr(0, 64),
                         "' takes at most ",
                         parameters.size(),
                         " arguments");
  }
  Scope scope;
  scope.hides_outer = true;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope.names[parameters[i]] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    if (std::find(parameters.begin(), parameters.end(), name) ==
            parameters.end() ||
        !scope.names.emplace(name, value).second) {
      return TemplateError("macro '",
                           macro.name.substr(0, 64),
                           "' takes no other argument ",
                           name.substr(0, 64));
    }
  }
  scopes_.push_back(std::move(scope));
  absl::Status status;
  for (size_t i = 0; i < parameters.size() && status.ok(); ++i) {
    if (scopes_.back().names.contains(parameters[i])) continue;
    Value value(Undefined{parameters[i]});
    if (macro.defaults[i] != nullptr) {
      auto fallback = Eval(*macro.defaults[i]);
      status = fallback.status();
      if (status.ok()) value = *std::move(fallback);
    }
    scopes_.back().names[parameters[i]] = std::move(value);
  }
  absl::StatusOr<MarkedString> text =
      status.ok() ? Capture(macro.body) : absl::StatusOr<MarkedString>(status);
  scopes_.pop_back();
  SPECWIRE_RETURN_IF_ERROR(text.status());
  return Value(*std::move(text));
}

}  // namespace specwire::jinja
