// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/string_literal.h"
#include "common/text/utf8.h"

namespace specwire::jinja {
namespace {

// The bytes of white space that `text` begins with.
size_t LeadingSpace(absl::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = ReadUtf8(text.substr(length));
    if (!IsPythonSpace(step.code_point)) break;
    length += step.length;
  }
  return length;
}

// `text` without the white space that it ends with.
absl::string_view WithoutTrailingSpace(absl::string_view text) {
  size_t end = 0;
  for (size_t position = 0; position < text.size();) {
    const Utf8Step step = ReadUtf8(text.substr(position));
    position += step.length;
    if (!IsPythonSpace(step.code_point)) end = position;
  }
  return text.substr(0, end);
}

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Longest first.
constexpr absl::string_view kOperators[] = {
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "(",
    ")",  "[",  "]",  "{",  "}",  "<",  ">", "=", ".", ":", "|", ",",
};

class Lexer {
 public:
  explicit Lexer(absl::string_view source)
      : source_(absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}})),
        rest_(source_) {
    absl::ConsumeSuffix(&rest_, "\n");
  }

  absl::StatusOr<std::vector<Token>> Run() {
    while (!rest_.empty()) SPECWIRE_RETURN_IF_ERROR(ReadTextAndTag());
    Push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  absl::Status Error(absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": ", message));
  }

  void Push(TokenKind kind, absl::string_view text = "") {
    tokens_.push_back({kind, line_, std::string(text)});
  }

  // Moves on by `size` bytes.
  void Skip(size_t size) {
    const absl::string_view skipped = rest_.substr(0, size);
    line_ += static_cast<int>(std::count(skipped.begin(), skipped.end(), '\n'));
    if (!skipped.empty()) line_starting_ = skipped.back() == '\n';
    rest_.remove_prefix(size);
  }

  // REQUIRES: `text` is at the front of rest_.
  void PushText(absl::string_view text, size_t consumed) {
    if (!text.empty()) Push(TokenKind::kText, text);
    Skip(consumed);
  }

  // The text before a tag of which `sign` is the third character. `lstrip` if
  // the tag takes away the indentation in front of it.
  absl::string_view TextBefore(absl::string_view text,
                               char sign,
                               bool lstrip) const {
    if (sign == '-') return WithoutTrailingSpace(text);
    if (sign == '+' || !lstrip) return text;
    const size_t newline = text.rfind('\n');
    const size_t start = newline == absl::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_starting_) return text;
    const absl::string_view line = text.substr(start);
    return LeadingSpace(line) == line.size() ? text.substr(0, start) : text;
  }

  static size_t FindTag(absl::string_view text) {
    for (size_t at = 0; at + 1 < text.size(); ++at) {
      if (text[at] != '{') continue;
      const char next = text[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return absl::string_view::npos;
  }

  absl::Status ReadTextAndTag() {
    const size_t open = FindTag(rest_);
    if (open == absl::string_view::npos) {
      PushText(rest_, rest_.size());
      return absl::OkStatus();
    }
    const char kind = rest_[open + 1];
    const char third = open + 2 < rest_.size() ? rest_[open + 2] : '\0';
    const char sign = third == '-' || third == '+' ? third : '\0';
    PushText(TextBefore(rest_.substr(0, open), sign, kind != '{'), open);
    const size_t edge = sign == '\0' ? 2 : 3;
    if (kind == '#') return SkipComment(edge);
    if (kind == '%' && IsTagNamed(rest_.substr(edge), "raw")) {
      return ReadRaw(edge);
    }
    Push(kind == '{' ? TokenKind::kOpenOutput : TokenKind::kOpenTag);
    Skip(edge);
    return ReadInside(kind == '{');
  }

  // Moves past what follows the mark "%}", "#}" or "}}" of length 2, of which
  // `sign` is the character in front.
  void FinishTag(char sign, bool trim_newline) {
    Skip(2);
    if (sign == '-') {
      Skip(LeadingSpace(rest_));
    } else if (sign != '+' && trim_newline && absl::StartsWith(rest_, "\n")) {
      Skip(1);
    }
  }

  absl::Status SkipComment(size_t edge) {
    const size_t end = rest_.find("#}", edge);
    if (end == absl::string_view::npos) return Error("unterminated comment");
    const char sign = end > edge ? rest_[end - 1] : '\0';
    Skip(end);
    FinishTag(sign, /*trim_newline=*/true);
    return absl::OkStatus();
  }

  // True if `text` goes on as a tag of that name and nothing else.
  static bool IsTagNamed(absl::string_view text, absl::string_view name) {
    text.remove_prefix(LeadingSpace(text));
    if (!absl::ConsumePrefix(&text, name)) return false;
    text.remove_prefix(LeadingSpace(text));
    absl::ConsumePrefix(&text, "-") || absl::ConsumePrefix(&text, "+");
    return absl::StartsWith(text, "%}");
  }

  // Copies what is between {% raw %} and {% endraw %}.
  absl::Status ReadRaw(size_t edge) {
    const size_t mark = rest_.find("%}", edge);
    const char sign = rest_[mark - 1];
    Skip(mark);
    FinishTag(sign, /*trim_newline=*/false);
    for (size_t at = rest_.find("{%"); at != absl::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      const char third = at + 2 < rest_.size() ? rest_[at + 2] : '\0';
      const bool has_sign = third == '-' || third == '+';
      const size_t name_at = at + (has_sign ? 3 : 2);
      if (!IsTagNamed(rest_.substr(name_at), "endraw")) continue;
      PushText(TextBefore(rest_.substr(0, at), third, /*lstrip=*/true), at);
      const size_t end = rest_.find("%}", name_at - at);
      const char end_sign = rest_[end - 1];
      Skip(end);
      FinishTag(end_sign, /*trim_newline=*/true);
      return absl::OkStatus();
    }
    return Error("{% raw %} without {% endraw %}");
  }

  // Reads tokens up to the end of the tag.
  absl::Status ReadInside(bool output) {
    const absl::string_view mark = output ? "}}" : "%}";
    int brackets = 0;
    while (true) {
      Skip(LeadingSpace(rest_));
      if (rest_.empty()) return Error("unterminated tag");
      // Inside of brackets "}}" closes two dicts.
      if (brackets == 0) {
        const char sign =
            rest_[0] == '-' || (rest_[0] == '+' && !output) ? rest_[0] : '\0';
        const size_t at = sign == '\0' ? 0 : 1;
        if (absl::StartsWith(rest_.substr(at), mark)) {
          Push(output ? TokenKind::kCloseOutput : TokenKind::kCloseTag);
          Skip(at);
          FinishTag(sign, /*trim_newline=*/!output);
          return absl::OkStatus();
        }
      }
      SPECWIRE_RETURN_IF_ERROR(ReadToken(&brackets));
    }
  }

  absl::Status ReadToken(int* brackets) {
    const char first = rest_[0];
    if (absl::ascii_isdigit(first)) return ReadNumber();
    if (IsNameByte(first)) {
      size_t length = 1;
      while (length < rest_.size() && IsNameByte(rest_[length])) ++length;
      Push(TokenKind::kName, rest_.substr(0, length));
      Skip(length);
      return absl::OkStatus();
    }
    if (first == '\'' || first == '"') return ReadString();
    for (const absl::string_view op : kOperators) {
      if (!absl::StartsWith(rest_, op)) continue;
      if (op == "(" || op == "[" || op == "{") ++*brackets;
      if (op == ")" || op == "]" || op == "}") --*brackets;
      if (*brackets < 0) return Error(absl::StrCat("unexpected '", op, "'"));
      Push(TokenKind::kOperator, op);
      Skip(op.size());
      return absl::OkStatus();
    }
    return Error("unexpected character");
  }

  absl::Status ReadNumber() {
    size_t length = 0;
    const auto digits = [&] {
      while (length < rest_.size() &&
             (absl::ascii_isdigit(rest_[length]) || rest_[length] == '_')) {
        ++length;
      }
    };
    const auto digit_at = [&](size_t at) {
      return at < rest_.size() && absl::ascii_isdigit(rest_[at]);
    };
    digits();
    bool is_float = false;
    if (length < rest_.size() && rest_[length] == '.' && digit_at(length + 1)) {
      is_float = true;
      ++length;
      digits();
    }
    if (length < rest_.size() && absl::ascii_tolower(rest_[length]) == 'e') {
      const bool sign = length + 1 < rest_.size() &&
                        (rest_[length + 1] == '+' || rest_[length + 1] == '-');
      if (digit_at(length + (sign ? 2 : 1))) {
        is_float = true;
        length += sign ? 2 : 1;
        digits();
      }
    }
    const std::string text =
        absl::StrReplaceAll(rest_.substr(0, length), {{"_", ""}});
    Push(is_float ? TokenKind::kFloat : TokenKind::kInt, text);
    Token& token = tokens_.back();
    if (is_float ? !absl::SimpleAtod(text, &token.number)
                 : !absl::SimpleAtoi(text, &token.integer)) {
      return Error(absl::StrCat("bad number ", text.substr(0, 40)));
    }
    Skip(length);
    return absl::OkStatus();
  }

  absl::Status ReadString() {
    const char quote = rest_[0];
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) {
      end += rest_[end] == '\\' ? 2 : 1;
    }
    if (end >= rest_.size()) return Error("unterminated string");
    Push(TokenKind::kString);
    if (!UnescapeString(rest_.substr(1, end - 1), &tokens_.back().text)) {
      return Error("bad escape in a string");
    }
    Skip(end + 1);
    return absl::OkStatus();
  }

  const std::string source_;
  // What has not been read yet; a view into source_.
  absl::string_view rest_;
  std::vector<Token> tokens_;
  int line_ = 1;
  // True if what was read last ended a line.
  bool line_starting_ = true;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  return Lexer(source).Run();
}

}  // namespace specwire::jinja
