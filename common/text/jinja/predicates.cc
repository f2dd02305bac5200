// SPDX-License-Identifier: Apache-2.0
#include "common/base/status_macros.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/operators.h"

namespace specwire::jinja {
namespace {

template <bool (*kPredicate)(const Value&)>
absl::StatusOr<Value> TypeTest(const Value& self, Bound, Budget*) {
  return Value(kPredicate(self));
}

bool IsDefined(const Value& value) { return !value.IsUndefined(); }
bool IsUndefinedValue(const Value& value) { return value.IsUndefined(); }
bool IsNoneValue(const Value& value) { return value.IsNone(); }
bool IsString(const Value& value) { return value.AsString() != nullptr; }
bool IsMapping(const Value& value) { return value.AsDict() != nullptr; }
bool IsBoolean(const Value& value) { return value.AsBool() != nullptr; }
bool IsInteger(const Value& value) { return value.AsInt() != nullptr; }
bool IsFloat(const Value& value) { return value.AsFloat() != nullptr; }
bool IsNumber(const Value& value) {
  // In Python a bool is a number.
  return IsInteger(value) || IsFloat(value) || IsBoolean(value);
}
bool IsSequence(const Value& value) {
  return IsString(value) || IsMapping(value) || value.AsList() != nullptr;
}
bool IsIterable(const Value& value) {
  return IsSequence(value) || value.IsUndefined();
}
bool IsCallable(const Value& value) {
  return value.AsMacro() != nullptr || value.AsFunction() != nullptr;
}
bool IsTrueValue(const Value& value) {
  return IsBoolean(value) && *value.AsBool();
}
bool IsFalseValue(const Value& value) {
  return IsBoolean(value) && !*value.AsBool();
}

absl::StatusOr<Value> DivisibleBy(const Value& self, Bound args, Budget*) {
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t number,
                            IntArgument(&self, "divisibleby: value", 0));
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t divisor,
                            IntArgument(args[0], "divisibleby: num", 0));
  if (divisor == 0) return TemplateError("divisibleby: num is 0");
  return Value(divisor == -1 || number % divisor == 0);
}

template <int64_t kRemainder>
absl::StatusOr<Value> Parity(const Value& self, Bound, Budget*) {
  SPECWIRE_ASSIGN_OR_RETURN(const int64_t number,
                            IntArgument(&self, "odd, even: value", 0));
  return Value((number & 1) == kRemainder);
}

template <Op kOp>
absl::StatusOr<Value> Comparison(const Value& self,
                                 Bound args,
                                 Budget* budget) {
  if (args[0] == nullptr) return TemplateError("test: argument is missing");
  SPECWIRE_ASSIGN_OR_RETURN(const bool result,
                            Compare(kOp, self, *args[0], budget));
  return Value(result);
}

constexpr Builtin kTests[] = {
    {"defined", TypeTest<IsDefined>, ""},
    {"undefined", TypeTest<IsUndefinedValue>, ""},
    {"none", TypeTest<IsNoneValue>, ""},
    {"string", TypeTest<IsString>, ""},
    {"mapping", TypeTest<IsMapping>, ""},
    {"sequence", TypeTest<IsSequence>, ""},
    {"iterable", TypeTest<IsIterable>, ""},
    {"boolean", TypeTest<IsBoolean>, ""},
    {"integer", TypeTest<IsInteger>, ""},
    {"float", TypeTest<IsFloat>, ""},
    {"number", TypeTest<IsNumber>, ""},
    {"callable", TypeTest<IsCallable>, ""},
    {"true", TypeTest<IsTrueValue>, ""},
    {"false", TypeTest<IsFalseValue>, ""},
    {"odd", Parity<1>, ""},
    {"even", Parity<0>, ""},
    {"divisibleby", DivisibleBy, "num"},
    {"eq", Comparison<Op::kEqual>, "other"},
    {"equalto", Comparison<Op::kEqual>, "other"},
    {"ne", Comparison<Op::kNotEqual>, "other"},
    {"lt", Comparison<Op::kLess>, "other"},
    {"le", Comparison<Op::kLessEqual>, "other"},
    {"gt", Comparison<Op::kGreater>, "other"},
    {"ge", Comparison<Op::kGreaterEqual>, "other"},
    {"in", Comparison<Op::kIn>, "other"},
};

}  // namespace

const Builtin* FindTest(absl::string_view name) { return FindIn(kTests, name); }

}  // namespace specwire::jinja
