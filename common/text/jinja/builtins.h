// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace specwire::jinja {

// Arguments as a call gives them.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by parameter; nullptr where none was given.
using Bound = absl::Span<const Value* const>;

// A filter, a test (the result is a bool) or a method. `self` is what it is
// applied to.
struct Builtin {
  absl::string_view name;
  absl::StatusOr<Value> (*apply)(const Value& self,
                                 Bound arguments,
                                 Budget* budget);
  // Names of the parameters, separated by commas.
  absl::string_view parameters;
};

// These return nullptr if there is none of that name.
const Builtin* FindFilter(absl::string_view name);
const Builtin* FindTest(absl::string_view name);
// A method of str or dict, chosen by the type of `self`.
const Builtin* FindMethod(const Value& self, absl::string_view name);

// Binds the arguments to the parameters and applies.
absl::StatusOr<Value> Apply(const Builtin& builtin,
                            const Value& self,
                            const Arguments& arguments,
                            Budget* budget);

// Finds a builtin in a table.
const Builtin* FindIn(absl::Span<const Builtin> table, absl::string_view name);

// Readers of bound arguments. `what` names the argument in errors.

// The string, or an error.
absl::StatusOr<const MarkedString*> StringArgument(const Value* value,
                                                   absl::string_view what);
// The integer, or `fallback` if there is none.
absl::StatusOr<int64_t> IntArgument(const Value* value,
                                    absl::string_view what,
                                    int64_t fallback);

// A list of strings as a value.
absl::StatusOr<Value> ListOfStrings(std::vector<MarkedString> strings);

// JSON as Python's json.dumps(ensure_ascii=False) writes it; `indent` below 0
// means one line. All of it counts as data.
absl::StatusOr<MarkedString> ToJson(const Value& value,
                                    int64_t indent,
                                    Budget* budget);

}  // namespace specwire::jinja
