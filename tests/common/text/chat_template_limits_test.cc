// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/chat_template.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

absl::Status Try(absl::string_view source,
                 const ChatTemplateLimits& limits = {},
                 const Messages& messages = {{"user", "Hi"}}) {
  const auto chat = ChatTemplate::Create(source, limits);
  if (!chat.ok()) return chat.status();
  return (*chat)->Render(messages, ChatContext()).status();
}

void ExpectLimit(absl::string_view source,
                 const std::string& message,
                 const ChatTemplateLimits& limits = {}) {
  const absl::Status status = Try(source, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
      << source.substr(0, 100) << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

std::string Repeat(absl::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) absl::StrAppend(&result, text);
  return result;
}

TEST(ChatTemplateLimitsTest, LimitsTheSource) {
  ChatTemplateLimits limits;
  limits.max_source_bytes = 10;
  EXPECT_TRUE(Try("0123456789", limits).ok());
  const absl::Status status = Try("0123456789a", limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11 bytes"));
}

TEST(ChatTemplateLimitsTest, LimitsNesting) {
  constexpr int kMany = 20'000;
  const auto nest = [](absl::string_view open, absl::string_view close) {
    return absl::StrCat(
        "{{ a", Repeat(open, kMany), Repeat(close, kMany), " }}");
  };
  for (const std::string& source : {
           nest("+(a", ")"),
           nest("+[a", "]"),
           nest("+{'a':a", "}"),
           nest("[a", "]"),
           nest("(a", ")"),
           nest("|d(a", ")"),
           nest(" if a else a", ""),
           nest("+a", ""),
           nest(" - a", ""),
           nest("~a", ""),
           nest("*a", ""),
           nest(" or a", ""),
           nest(" and a", ""),
           nest(".a", ""),
           nest("[0]", ""),
           nest("()", ""),
           nest("|d", ""),
           "{{ " + Repeat("(", kMany) + "1" + Repeat(")", kMany) + " }}",
           "{{ " + Repeat("not ", kMany) + "a }}",
           "{{ " + Repeat("-", kMany) + "1 }}",
           "{{ 1 " + Repeat("+", kMany) + "1 }}",
           Repeat("{% if a %}", kMany),
           Repeat("{% for a in b %}", kMany / 2),
           Repeat("{% set a %}", kMany),
           Repeat("{% macro a() %}", kMany / 2),
           Repeat("{% generation %}", kMany / 2),
       }) {
    ExpectLimit(source, "nested deeper than 150");
  }
  // Chains that are not nesting.
  EXPECT_TRUE(
      Try("{% if a %}" + Repeat("{% elif a %}", 5000) + "{% endif %}").ok());
  EXPECT_TRUE(Try("{{ a is none" + Repeat(" == a", 5000) + " }}").ok());
}

TEST(ChatTemplateLimitsTest, LimitsRecursion) {
  ExpectLimit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
              "nested deeper than 150");
  ExpectLimit("{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
              "nested deeper than 150");
  ExpectLimit(
      "{% set n = namespace(a=[]) %}{% for i in range(100) %}"
      "{% set n.a = [n.a] %}{% endfor %}",
      "values nested deeper than 64");
  ExpectLimit(
      "{% set n = namespace(a={}) %}{% for i in range(100) %}"
      "{% set n.a = {'a': n.a} %}{% endfor %}",
      "values nested deeper than 64");
}

TEST(ChatTemplateLimitsTest, LimitsLoops) {
  ChatTemplateLimits limits;
  limits.max_iterations = 1000;
  EXPECT_TRUE(Try("{% for i in 'ab' * 250 %}{% endfor %}"
                  "{% for i in 'ab' * 250 %}{% endfor %}",
                  limits)
                  .ok());
  ExpectLimit(
      "{% for i in 'ab' * 250 %}{% endfor %}"
      "{% for i in 'ab' * 250 %}{% endfor %}"
      "{% for i in 'a' %}{% endfor %}",
      "more than 1000 loop iterations",
      limits);
  ExpectLimit("{% for i in 'a' * 1001 if false %}{% endfor %}",
              "more than 1000 loop iterations",
              limits);
  ExpectLimit(
      "{{ range(1001) | length }}", "more than 1000 loop iterations", limits);
  ExpectLimit(
      "{% set r = range(400) %}{% for a in r %}{% for b in r %}"
      "{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
      "loop iterations");
}

TEST(ChatTemplateLimitsTest, LimitsSteps) {
  ChatTemplateLimits limits;
  limits.max_steps = 1000;
  ExpectLimit(Repeat("{{ 1 }}", 501), "more than 1000 steps", limits);
  EXPECT_TRUE(Try(Repeat("{{ 1 }}", 499), limits).ok());
}

TEST(ChatTemplateLimitsTest, LimitsOutput) {
  ChatTemplateLimits limits;
  limits.max_output_bytes = 1000;
  EXPECT_TRUE(Try("{{ 'a' * 1000 }}", limits).ok());
  ExpectLimit("{{ 'a' * 1001 }}", "more than 1000 bytes", limits);
  ExpectLimit("{{ 'a' * 1000 }}b", "more than 1000 bytes of output", limits);
  ExpectLimit("{{ 'a' * 600 + 'a' * 600 }}", "more than 1000 bytes", limits);
  ExpectLimit(
      "{% set n = namespace(a='aa') %}{% for i in range(100) %}"
      "{% set n.a = n.a + n.a %}{% endfor %}",
      "a string of more than");
}

TEST(ChatTemplateLimitsTest, LimitsWork) {
  // Each of these repeats something that is dear.
  ChatTemplateLimits limits;
  limits.max_work_bytes = 16 << 20;
  const std::string big =
      "{% set b = 'ab' * 200000 %}{% set c = 'ab' * 20 %}"
      "{% for i in range(90000) %}";
  for (const char* work : {
           "{% set x = b | upper %}",
           "{% set x = b | length %}",
           "{% set x = b[1:] %}",
           "{% set x = b[5] %}",
           "{% set x = b.split('a') %}",
           "{% set x = b.split() %}",
           "{% set x = b.strip() %}",
           "{% set x = c.strip(b) %}",
           "{% set x = b.replace('a', 'b') %}",
           "{% set x = b | tojson %}",
           "{% set x = b | list %}",
           "{% set x = b == b ~ '' %}",
           "{% set x = 'bb' in b %}",
           "{% set x = b.find('bb') %}",
           "{% set x = b.count('bb') %}",
           "{% set x = b < b %}",
           "{% set x = '' * 9000000000 %}",
           "{% set x = [b, b] | join(b) %}",
           "{% set x = b.title() %}",
           "{% set x %}{{ b }}{% endset %}",
           "{% set x = c.startswith(b.split('x')) %}{% set x = b.strip() %}",
       }) {
    ExpectLimit(
        absl::StrCat(big, work, "{% endfor %}"), "bytes of work", limits);
  }
  ExpectLimit(
      "{% set n = namespace(a=[1, 2]) %}{% for i in range(100) %}"
      "{% set n.a = n.a + n.a %}{% endfor %}",
      "bytes of work");
}

TEST(ChatTemplateLimitsTest, LeavesRoomForLongConversations) {
  Messages messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({"user", std::string(1000, 'x')});
    messages.push_back({"assistant", std::string(1000, 'y')});
  }
  EXPECT_TRUE(Try("{% for m in messages %}{% if loop.index0 < messages|length "
                  "and m.role in ['user', 'assistant'] %}"
                  "{{ '<|' + m.role + '|>' + m.content | trim + '\\n' }}"
                  "{% endif %}{% endfor %}",
                  {},
                  messages)
                  .ok());
}

// Pieces of templates, put together at random, mostly to nonsense: whatever
// comes of it, it ends, and with a result or a status.
TEST(ChatTemplateLimitsTest, SurvivesRandomSources) {
  const std::vector<std::string> pieces = {"{{",
                                           "}}",
                                           "{%",
                                           "%}",
                                           "{#",
                                           "#}",
                                           "-",
                                           "+",
                                           " ",
                                           "\n",
                                           "if ",
                                           "elif ",
                                           "else",
                                           "endif",
                                           "for ",
                                           " in ",
                                           "endfor",
                                           "set ",
                                           "endset",
                                           "macro ",
                                           "endmacro",
                                           "raw",
                                           "endraw",
                                           "break",
                                           "continue",
                                           "generation",
                                           "a",
                                           "b",
                                           "loop",
                                           ".index",
                                           "messages",
                                           "[0]",
                                           ".content",
                                           "['role']",
                                           "[1:]",
                                           "[::-1]",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           "'x'",
                                           "\"y\\n\"",
                                           "'",
                                           "\"",
                                           "\\",
                                           "1",
                                           "2.5",
                                           "0",
                                           "9223372036854775807",
                                           "=",
                                           "==",
                                           "!=",
                                           "<",
                                           ">=",
                                           "*",
                                           "/",
                                           "//",
                                           "%",
                                           "~",
                                           "|",
                                           ",",
                                           ":",
                                           ".",
                                           "trim",
                                           "upper",
                                           "length",
                                           "tojson",
                                           "join(',')",
                                           "default('x')",
                                           "list",
                                           "reverse",
                                           "replace('a', 'b')",
                                           ".split('x')",
                                           ".strip()",
                                           "range(3)",
                                           "namespace(a=1)",
                                           "raise_exception('m')",
                                           " is ",
                                           "not ",
                                           "defined",
                                           "none",
                                           "string",
                                           " and ",
                                           " or ",
                                           "true",
                                           "\xFF",
                                           "\u00E9",
                                           std::string(1, '\0'),
                                           "{% if a %}",
                                           "{% endif %}",
                                           "{% for a in messages %}",
                                           "{% endfor %}",
                                           "{{ a }}",
                                           "{% set a = messages %}",
                                           "{% macro f(a, b=1) %}",
                                           "{% endmacro %}",
                                           "{{ f(a) }}",
                                           "map(attribute='role')",
                                           "selectattr('role')",
                                           "items",
                                           "int",
                                           "first",
                                           "last"};
  ChatTemplateLimits limits;
  limits.max_iterations = 200;
  limits.max_steps = 2000;
  limits.max_work_bytes = 1 << 20;
  const Messages messages = {{"system", " \xFFhi\n"}, {"user", "<|im_end|>"}};
  std::mt19937 random(2024);
  int rendered = 0;
  for (int i = 0; i < 40'000; ++i) {
    std::string source;
    // Half of them are one tag with balanced edges, so that more gets parsed.
    const bool tag = i % 2 == 0;
    if (tag) source = "{{ ";
    for (size_t n = 1 + random() % (tag ? 6 : 20); n > 0; --n) {
      source += pieces[random() % pieces.size()];
    }
    if (tag) source += " }}";
    const absl::Status status = Try(source, limits, messages);
    rendered += status.ok() ? 1 : 0;
    ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status) ||
                absl::IsResourceExhausted(status))
        << source << ": " << status;
  }
  EXPECT_GT(rendered, 1000);
}

TEST(ChatTemplateLimitsTest, SurvivesRandomBytes) {
  std::mt19937 random(9);
  const std::string alphabet = "{}%#-+'\"\\ \nabif()[]|.:,0=<\xFF";
  for (int i = 0; i < 40'000; ++i) {
    std::string source;
    for (size_t n = random() % 30; n > 0; --n) {
      source += i % 2 == 0 ? static_cast<char>(random() % 256)
                           : alphabet[random() % alphabet.size()];
    }
    const absl::Status status = Try(source);
    ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status) ||
                absl::IsResourceExhausted(status))
        << status;
  }
}

}  // namespace
}  // namespace specwire
