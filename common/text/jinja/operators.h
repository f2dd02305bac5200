// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace specwire::jinja {

// Python's operators, on values. All charge the budget for what they read and
// make; errors are those of Python, worded alike.

bool IsTrue(const Value& value);

// The value of an int, or of a bool, which in Python is one.
std::optional<int64_t> IntegerOf(const Value& value);

// The error of using something that is not there.
absl::Status UndefinedError(const Undefined& undefined);

// What {{ value }} prints. Lists and dicts have no text of their own here.
absl::StatusOr<MarkedString> ToText(const Value& value);

// ==. Values of types that do not compare are unequal.
absl::StatusOr<bool> IsEqual(const Value& left,
                             const Value& right,
                             Budget* budget);

// ==, !=, <, <=, >, >=, in, not in.
absl::StatusOr<bool> Compare(Op op,
                             const Value& left,
                             const Value& right,
                             Budget* budget);

// +, -, *, /, //, %, ~.
absl::StatusOr<Value> ApplyBinary(Op op,
                                  const Value& left,
                                  const Value& right,
                                  Budget* budget);
absl::StatusOr<Value> Negate(const Value& value);

// object[key], where object.name is tried as well. Undefined if there is none.
absl::StatusOr<Value> GetItem(const Value& object,
                              const Value& key,
                              Budget* budget);

// object.name, for attributes that are not methods. Undefined if there is none.
absl::StatusOr<Value> GetAttribute(const Value& object,
                                   const std::string& name);

// object[start:stop:step]; nullopt or None stands for a part left out.
absl::StatusOr<Value> Slice(const Value& object,
                            const std::optional<Value>& start,
                            const std::optional<Value>& stop,
                            const std::optional<Value>& step,
                            Budget* budget);

// What a loop over the value goes through: items, keys, characters.
absl::StatusOr<std::vector<Value>> Items(const Value& value, Budget* budget);

}  // namespace specwire::jinja
