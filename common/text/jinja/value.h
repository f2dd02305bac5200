// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/marked_string.h"

namespace specwire::jinja {

struct Dict;
struct List;
struct Loop;
struct Namespace;
struct Stmt;

// The result of looking up something that is not there. It prints as nothing
// and is false, but has no attributes and cannot be called.
struct Undefined {
  // What was looked up, for messages.
  std::string name;
};

struct None {};

enum class Function {
  kRaiseException,
  kNamespace,
  kRange,
  kDict,
  kStrftimeNow,
};

// A value of a template's expression. Copies share what is behind them; only a
// Namespace can be changed, and none can be put inside a list, a dict or a
// namespace, so values form no cycles.
//
// Thread safety: const methods from any thread.
class Value {
 public:
  // Lists and dicts inside each other, beyond which they are refused: values
  // are compared and destroyed by recursion.
  static constexpr int kMaxDepth = 64;

  Value() = default;
  explicit Value(Undefined undefined) : value_(std::move(undefined)) {}
  explicit Value(None none) : value_(none) {}
  explicit Value(bool boolean) : value_(boolean) {}
  explicit Value(int64_t integer) : value_(integer) {}
  explicit Value(double number) : value_(number) {}
  explicit Value(MarkedString string)
      : value_(std::make_shared<const MarkedString>(std::move(string))) {}
  explicit Value(Function function) : value_(function) {}
  explicit Value(const Stmt* macro) : value_(macro) {}
  explicit Value(std::shared_ptr<Namespace> ns) : value_(std::move(ns)) {}
  explicit Value(std::shared_ptr<const Loop> loop) : value_(std::move(loop)) {}

  // INVALID_ARGUMENT if an item cannot be put inside, or lies too deep.
  static absl::StatusOr<Value> MakeList(std::vector<Value> items);
  static absl::StatusOr<Value> MakeDict(
      std::vector<std::pair<MarkedString, Value>> items);

  bool IsUndefined() const { return As<Undefined>() != nullptr; }
  bool IsNone() const { return As<None>() != nullptr; }
  // These return nullptr if the value is of another type.
  const Undefined* AsUndefined() const { return As<Undefined>(); }
  const bool* AsBool() const { return As<bool>(); }
  const int64_t* AsInt() const { return As<int64_t>(); }
  const double* AsFloat() const { return As<double>(); }
  const Function* AsFunction() const { return As<Function>(); }
  const Stmt* AsMacro() const;
  const MarkedString* AsString() const { return Behind<const MarkedString>(); }
  const List* AsList() const { return Behind<const List>(); }
  const Dict* AsDict() const { return Behind<const Dict>(); }
  Namespace* AsNamespace() const { return Behind<Namespace>(); }
  const Loop* AsLoop() const { return Behind<const Loop>(); }

  // True if it may be put inside a list, a dict or a namespace.
  bool IsData() const;

  // How deep lists and dicts lie inside of it; 0 for other values.
  int depth() const;

  // The name of its type as Python has it, for messages.
  absl::string_view TypeName() const;

 private:
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  T* Behind() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&value_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined,
               None,
               bool,
               int64_t,
               double,
               std::shared_ptr<const MarkedString>,
               std::shared_ptr<const List>,
               std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>,
               std::shared_ptr<const Loop>,
               const Stmt*,
               Function>
      value_;
};

struct List {
  std::vector<Value> items;
  int depth = 1;
};

// In the order of insertion. Dicts are small, and are searched from the front.
struct Dict {
  std::vector<std::pair<MarkedString, Value>> items;
  int depth = 1;

  // nullptr if there is none.
  const Value* Find(absl::string_view key) const;
};

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

// The variable `loop` of one turn.
struct Loop {
  int64_t index0 = 0;
  int64_t length = 0;
  // How many loops are around it.
  int64_t depth0 = 0;
  Value previous;
  Value next;
};

}  // namespace specwire::jinja
