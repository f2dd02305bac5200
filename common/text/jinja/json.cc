// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/operators.h"

namespace specwire::jinja {
namespace {

void AppendString(absl::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned>(c));
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

class Writer {
 public:
  Writer(int64_t indent, Budget* budget) : indent_(indent), budget_(budget) {}

  // Recursion is bounded by Value::kMaxDepth.
  absl::Status Write(const Value& value, int64_t level) {
    SPECWIRE_RETURN_IF_ERROR(budget_->Charge(Budget::kBytesPerItem));
    if (const MarkedString* text = value.AsString()) {
      // An escape takes six bytes at most.
      SPECWIRE_RETURN_IF_ERROR(budget_->Charge(6 * text->size()));
      AppendString(text->bytes(), &out_);
      return absl::OkStatus();
    }
    if (const List* list = value.AsList()) {
      return WriteAll('[', ']', list->items.size(), level, [&](size_t i) {
        return Write(list->items[i], level + 1);
      });
    }
    if (const Dict* dict = value.AsDict()) {
      return WriteAll('{', '}', dict->items.size(), level, [&](size_t i) {
        const auto& [key, item] = dict->items[i];
        AppendString(key.bytes(), &out_);
        out_ += ": ";
        return Write(item, level + 1);
      });
    }
    if (value.IsNone()) {
      out_ += "null";
    } else if (const bool* boolean = value.AsBool()) {
      out_ += *boolean ? "true" : "false";
    } else if (value.AsInt() != nullptr || value.AsFloat() != nullptr) {
      SPECWIRE_ASSIGN_OR_RETURN(const MarkedString text, ToText(value));
      absl::StrAppend(&out_, text.bytes());
    } else {
      return TemplateError("a ", value.TypeName(), " has no JSON");
    }
    return absl::OkStatus();
  }

  const std::string& out() const { return out_; }

 private:
  template <typename WriteItem>
  absl::Status WriteAll(char open,
                        char close,
                        size_t size,
                        int64_t level,
                        const WriteItem& write_item) {
    out_.push_back(open);
    for (size_t i = 0; i < size; ++i) {
      if (i > 0) out_ += indent_ < 0 ? ", " : ",";
      SPECWIRE_RETURN_IF_ERROR(NewLine(level + 1));
      SPECWIRE_RETURN_IF_ERROR(write_item(i));
    }
    if (size > 0) SPECWIRE_RETURN_IF_ERROR(NewLine(level));
    out_.push_back(close);
    return absl::OkStatus();
  }

  absl::Status NewLine(int64_t level) {
    if (indent_ < 0) return absl::OkStatus();
    const auto size = static_cast<size_t>(indent_ * level);
    SPECWIRE_RETURN_IF_ERROR(budget_->Charge(size));
    out_.push_back('\n');
    out_.append(size, ' ');
    return absl::OkStatus();
  }

  const int64_t indent_;
  Budget* const budget_;
  std::string out_;
};

}  // namespace

absl::StatusOr<MarkedString> ToJson(const Value& value,
                                    int64_t indent,
                                    Budget* budget) {
  if (indent > 64) return TemplateError("indent: above 64");
  Writer writer(indent, budget);
  SPECWIRE_RETURN_IF_ERROR(writer.Write(value, 0));
  return MarkedString::Data(writer.out());
}

}  // namespace specwire::jinja
