// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/operators.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/text_functions.h"

namespace specwire::jinja {
namespace {

std::optional<double> NumberOf(const Value& value) {
  if (const double* number = value.AsFloat()) return *number;
  if (const auto integer = IntegerOf(value)) {
    return static_cast<double>(*integer);
  }
  return std::nullopt;
}

// The shortest digits that read back as `number`, as Python's repr().
std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(number);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto result = std::to_chars(
      buffer,
      buffer + sizeof(buffer),
      number,
      plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  if (plain && !absl::StrContains(text, '.')) text += ".0";
  return text;
}

absl::string_view OpText(Op op) {
  static constexpr absl::string_view kTexts[] = {"+",
                                                 "-",
                                                 "*",
                                                 "/",
                                                 "//",
                                                 "%",
                                                 "~",
                                                 "==",
                                                 "!=",
                                                 "<",
                                                 "<=",
                                                 ">",
                                                 ">=",
                                                 "in",
                                                 "not in"};
  return kTexts[static_cast<size_t>(op)];
}

absl::Status OperandError(Op op, const Value& left, const Value& right) {
  if (left.IsUndefined()) return UndefinedError(*left.AsUndefined());
  if (right.IsUndefined()) return UndefinedError(*right.AsUndefined());
  return TemplateError("unsupported operands for ",
                       OpText(op),
                       ": '",
                       left.TypeName(),
                       "' and '",
                       right.TypeName(),
                       "'");
}

// Python's floor division and its remainder, which has the divisor's sign.
int64_t FloorDivide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return quotient * right != left && (left < 0) != (right < 0) ? quotient - 1
                                                               : quotient;
}

absl::StatusOr<Value> IntegerOp(Op op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    default:
      if (right == 0) return TemplateError("division by zero");
      if (op == Op::kDivide) {
        return Value(static_cast<double>(left) / static_cast<double>(right));
      }
      overflow = left == std::numeric_limits<int64_t>::min() && right == -1;
      if (overflow) break;
      result = FloorDivide(left, right);
      if (op == Op::kModulo) result = left - result * right;
  }
  if (overflow) return TemplateError("integer overflow in ", OpText(op));
  return Value(result);
}

absl::StatusOr<Value> FloatOp(Op op, double left, double right) {
  switch (op) {
    case Op::kAdd:
      return Value(left + right);
    case Op::kSubtract:
      return Value(left - right);
    case Op::kMultiply:
      return Value(left * right);
    default:
      break;
  }
  if (right == 0) return TemplateError("division by zero");
  if (op == Op::kDivide) return Value(left / right);
  const double floor = std::floor(left / right);
  return Value(op == Op::kFloorDivide ? floor : left - floor * right);
}

absl::StatusOr<Value> Join(const MarkedString& left,
                           const MarkedString& right,
                           Budget* budget) {
  const size_t size = left.size() + right.size();
  if (size > budget->limits().max_output_bytes) {
    return LimitError(
        "a string of more than ", budget->limits().max_output_bytes, " bytes");
  }
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(size));
  MarkedString result = left;
  result.Append(right);
  return Value(std::move(result));
}

absl::StatusOr<Value> Repeat(const MarkedString& text,
                             int64_t count,
                             Budget* budget) {
  MarkedString result;
  // An empty text, too, must not be repeated without end.
  const size_t cost = text.size() + Budget::kBytesPerItem;
  for (int64_t i = 0; i < count; ++i) {
    if (result.size() + text.size() > budget->limits().max_output_bytes) {
      return LimitError("a string of more than ",
                        budget->limits().max_output_bytes,
                        " bytes");
    }
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(cost));
    result.Append(text);
  }
  return Value(std::move(result));
}

absl::StatusOr<bool> Less(Op op,
                          const Value& left,
                          const Value& right,
                          Budget* budget) {
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    const absl::string_view a = left.AsString()->bytes();
    const absl::string_view b = right.AsString()->bytes();
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(std::min(a.size(), b.size())));
    return a < b;
  }
  if (IntegerOf(left).has_value() && IntegerOf(right).has_value()) {
    return *IntegerOf(left) < *IntegerOf(right);
  }
  const auto a = NumberOf(left);
  const auto b = NumberOf(right);
  if (!a.has_value() || !b.has_value()) return OperandError(op, left, right);
  return *a < *b;
}

absl::StatusOr<bool> Contains(const Value& container,
                              const Value& item,
                              Budget* budget) {
  if (const MarkedString* text = container.AsString()) {
    if (item.AsString() == nullptr) {
      return OperandError(Op::kIn, item, container);
    }
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(text->size() + item.AsString()->size()));
    return FindBytes(text->bytes(), item.AsString()->bytes(), 0) !=
           absl::string_view::npos;
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Items(container, budget));
  for (const Value& candidate : items) {
    SPECWIRE_ASSIGN_OR_RETURN(const bool equal,
                              IsEqual(candidate, item, budget));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<bool> ListsEqual(const List& left,
                                const List& right,
                                Budget* budget) {
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(const bool equal,
                              IsEqual(left.items[i], right.items[i], budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> DictsEqual(const Dict& left,
                                const Dict& right,
                                Budget* budget) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge(right.items.size() * Budget::kBytesPerItem));
    const Value* other = right.Find(key.bytes());
    if (other == nullptr) return false;
    SPECWIRE_ASSIGN_OR_RETURN(const bool equal, IsEqual(value, *other, budget));
    if (!equal) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> IntegerOf(const Value& value) {
  if (const int64_t* integer = value.AsInt()) return *integer;
  if (const bool* boolean = value.AsBool()) return *boolean ? 1 : 0;
  return std::nullopt;
}

absl::Status UndefinedError(const Undefined& undefined) {
  return TemplateError("'", undefined.name.substr(0, 64), "' is undefined");
}

bool IsTrue(const Value& value) {
  if (value.IsUndefined() || value.IsNone()) return false;
  if (const auto number = NumberOf(value)) return *number != 0;
  if (const MarkedString* text = value.AsString()) return !text->empty();
  if (const List* list = value.AsList()) return !list->items.empty();
  if (const Dict* dict = value.AsDict()) return !dict->items.empty();
  return true;
}

absl::StatusOr<MarkedString> ToText(const Value& value) {
  if (const MarkedString* text = value.AsString()) return *text;
  if (value.IsUndefined()) return MarkedString();
  if (value.IsNone()) return MarkedString::Data("None");
  if (const bool* boolean = value.AsBool()) {
    return MarkedString::Data(*boolean ? "True" : "False");
  }
  if (const int64_t* integer = value.AsInt()) {
    return MarkedString::Data(absl::StrCat(*integer));
  }
  if (const double* number = value.AsFloat()) {
    return MarkedString::Data(FloatText(*number));
  }
  return TemplateError(
      "a ", value.TypeName(), " has no text; use tojson or join to print it");
}

absl::StatusOr<bool> IsEqual(const Value& left,
                             const Value& right,
                             Budget* budget) {
  SPECWIRE_RETURN_IF_ERROR(budget->Charge(Budget::kBytesPerItem));
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    const absl::string_view a = left.AsString()->bytes();
    const absl::string_view b = right.AsString()->bytes();
    if (a.size() != b.size()) return false;
    SPECWIRE_RETURN_IF_ERROR(budget->Charge(a.size()));
    return a == b;
  }
  if (left.AsList() != nullptr && right.AsList() != nullptr) {
    return ListsEqual(*left.AsList(), *right.AsList(), budget);
  }
  if (left.AsDict() != nullptr && right.AsDict() != nullptr) {
    return DictsEqual(*left.AsDict(), *right.AsDict(), budget);
  }
  const auto a = IntegerOf(left);
  const auto b = IntegerOf(right);
  if (a.has_value() && b.has_value()) return *a == *b;
  const auto x = NumberOf(left);
  const auto y = NumberOf(right);
  if (x.has_value() && y.has_value()) return *x == *y;
  if (left.IsNone()) return right.IsNone();
  if (left.IsUndefined()) return right.IsUndefined();
  if (left.AsNamespace() != nullptr) {
    return left.AsNamespace() == right.AsNamespace();
  }
  return false;
}

absl::StatusOr<bool> Compare(Op op,
                             const Value& left,
                             const Value& right,
                             Budget* budget) {
  bool result = false;
  switch (op) {
    case Op::kEqual:
    case Op::kNotEqual: {
      SPECWIRE_ASSIGN_OR_RETURN(result, IsEqual(left, right, budget));
      return result == (op == Op::kEqual);
    }
    case Op::kIn:
    case Op::kNotIn: {
      SPECWIRE_ASSIGN_OR_RETURN(result, Contains(right, left, budget));
      return result == (op == Op::kIn);
    }
    case Op::kLess:
      return Less(op, left, right, budget);
    case Op::kGreater:
      return Less(op, right, left, budget);
    case Op::kLessEqual: {
      SPECWIRE_ASSIGN_OR_RETURN(result, Less(op, right, left, budget));
      return !result;
    }
    default: {
      SPECWIRE_ASSIGN_OR_RETURN(result, Less(op, left, right, budget));
      return !result;
    }
  }
}

absl::StatusOr<Value> ApplyBinary(Op op,
                                  const Value& left,
                                  const Value& right,
                                  Budget* budget) {
  if (op == Op::kConcatenate) {
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString a, ToText(left));
    SPECWIRE_ASSIGN_OR_RETURN(const MarkedString b, ToText(right));
    return Join(a, b, budget);
  }
  const auto a = IntegerOf(left);
  const auto b = IntegerOf(right);
  if (a.has_value() && b.has_value()) return IntegerOp(op, *a, *b);
  const auto x = NumberOf(left);
  const auto y = NumberOf(right);
  if (x.has_value() && y.has_value()) return FloatOp(op, *x, *y);
  const MarkedString* s = left.AsString();
  const MarkedString* t = right.AsString();
  if (op == Op::kAdd && s != nullptr && t != nullptr) {
    return Join(*s, *t, budget);
  }
  if (op == Op::kAdd && left.AsList() && right.AsList()) {
    std::vector<Value> items = left.AsList()->items;
    const std::vector<Value>& more = right.AsList()->items;
    SPECWIRE_RETURN_IF_ERROR(
        budget->Charge((items.size() + more.size()) * Budget::kBytesPerItem));
    items.insert(items.end(), more.begin(), more.end());
    return Value::MakeList(std::move(items));
  }
  if (op == Op::kMultiply && s != nullptr && b.has_value()) {
    return Repeat(*s, *b, budget);
  }
  if (op == Op::kMultiply && t != nullptr && a.has_value()) {
    return Repeat(*t, *a, budget);
  }
  return OperandError(op, left, right);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (const auto integer = IntegerOf(value)) {
    return IntegerOp(Op::kSubtract, 0, *integer);
  }
  if (const double* number = value.AsFloat()) return Value(-*number);
  return OperandError(Op::kSubtract, value, value);
}

}  // namespace specwire::jinja
