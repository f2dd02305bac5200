// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/value.h"

namespace specwire::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using NamedExprs = std::vector<std::pair<std::string, ExprPtr>>;

enum class Op {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kConcatenate,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

enum class ExprKind {
  kConstant,     // constant
  kName,         // name
  kList,         // args: the items
  kDict,         // args: key, value, key, value, ...
  kNot,          // args: operand
  kNegate,       // args: operand
  kBinary,       // args: left, right; ops: one
  kCompare,      // args: n + 1 operands; ops: n operators between them
  kAnd,          // args: left, right
  kOr,           // args: left, right
  kConditional,  // args: condition, then, else (may be null)
  kAttribute,    // args: object; name
  kSubscript,    // args: object, key
  kSlice,        // args: object, start, stop, step (these may be null)
  kCall,         // args: callee, positional arguments; named
  kFilter,       // args: input, positional arguments; name; named
  kTest,         // args: input, positional arguments; name
};

struct Expr {
  ExprKind kind;
  int line = 0;
  // Height of the tree; bounded, because trees are walked by recursion.
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<Op> ops;
  std::vector<ExprPtr> args;
  NamedExprs named;
};

struct Stmt;
using Body = std::vector<Stmt>;

enum class StmtKind {
  kText,      // text
  kOutput,    // value
  kIf,        // branches: a condition (null for else) and a body each
  kFor,       // targets, value (what to go through), condition (may be null),
              // body, else_body
  kSet,       // targets, value
  kSetField,  // targets: the namespace's name; name: the field; value
  kSetBlock,  // targets: one; body
  kMacro,     // name, targets (parameters), defaults (null if none), body
  kGroup,     // body, run as if its tags were not there
  kBreak,
  kContinue,
};

struct Branch;

struct Stmt {
  StmtKind kind;
  int line = 0;
  MarkedString text;
  std::string name;
  std::vector<std::string> targets;
  ExprPtr value;
  ExprPtr condition;
  std::vector<ExprPtr> defaults;
  std::vector<Branch> branches;
  Body body;
  Body else_body;
};

struct Branch {
  ExprPtr condition;
  Body body;
};

}  // namespace specwire::jinja
