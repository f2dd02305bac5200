// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/json_input.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::coordinator {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::string Problem(const std::string& text) {
  const absl::Status status = ParseJsonObject(text).status();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  EXPECT_EQ(status, CheckJsonObject(text));
  return std::string(status.message());
}

std::string Nested(int depth) {
  std::string text = "{\"a\":";
  for (int i = 1; i < depth; ++i) text += "[";
  text += "1";
  for (int i = 1; i < depth; ++i) text += "]";
  return text + "}";
}

TEST(JsonInputTest, TakesAnObject) {
  EXPECT_EQ(Problem("{\"a\": [1, {\"a\": 2}], \"b\": null}"), "");
  EXPECT_EQ(Problem(""), "");
  EXPECT_EQ(Problem(Nested(32)), "");
}

TEST(JsonInputTest, RefusesEverythingElse) {
  for (const char* text : {"[]", "1", "\"a\"", "null", "[{}]"}) {
    EXPECT_EQ(Problem(text), "body: must be a JSON object") << text;
  }
  for (const char* text : {" ",
                           "{",
                           "{\"a\":}",
                           "{} {}",
                           "{'a':1}",
                           "{\"a\":NaN}",
                           "\xef\xbb{}"}) {
    EXPECT_THAT(Problem(text), StartsWith("body: malformed JSON at byte "))
        << text;
  }
}

// A text of `count` times `value` in an array.
std::string Many(const std::string& value, int count) {
  std::string text = absl::StrCat("{\"a\":[", value);
  for (int i = 1; i < count; ++i) absl::StrAppend(&text, ",", value);
  return absl::StrCat(text, "]}");
}

TEST(JsonInputTest, BoundsWhatTakesMemoryWithoutHavingBytes) {
  EXPECT_TRUE(CheckJsonObject(Many("1", 1 << 20)).ok());
  EXPECT_THAT(Problem(Many("1", kMaxJsonNumbers + 1)),
              StartsWith("body: more than 1114112 numbers"));
  for (const char* value : {"[]", "{}", "\"\""}) {
    // The object, its name and the array are three.
    EXPECT_TRUE(CheckJsonObject(Many(value, kMaxJsonNodes - 3)).ok());
    EXPECT_THAT(Problem(Many(value, kMaxJsonNodes - 2)),
                StartsWith("body: more than 131072 strings, names"))
        << value;
  }
  std::string names = "{";
  for (int i = 0; i < kMaxJsonNodes; ++i) {
    absl::StrAppend(&names, "\"", i, "\":1,");
  }
  absl::StrAppend(&names, "\"x\":1}");
  EXPECT_THAT(Problem(names), HasSubstr("strings, names"));
}

TEST(JsonInputTest, KnowsWhatParsingTakes) {
  constexpr size_t kCount = 100'000;
  // At least what the values themselves have.
  EXPECT_GE(JsonMemory(Many("1", kCount)), kCount * sizeof(Json));
  EXPECT_GE(JsonMemory(Many("{}", kCount)),
            kCount * (sizeof(Json) + sizeof(Json::object_t)));
  EXPECT_GE(JsonMemory(Many("\"\"", kCount)),
            kCount * (sizeof(Json) + sizeof(std::string)));
  EXPECT_GE(JsonMemory(Many("{\"a\":1}", kCount)),
            kCount * (2 * sizeof(Json) + sizeof(Json::object_t) +
                      2 * sizeof(std::string)));
  // A text is no list of values, whatever stands in it.
  const std::string text =
      absl::StrCat("{\"a\":\"", std::string(kCount, ','), "\\\",{[:\"}");
  EXPECT_LT(JsonMemory(text), 7 * kCount);
  for (const char* broken : {"", "\"", "{\"\\", "]]]", "\\"}) {
    EXPECT_LT(JsonMemory(broken), 1000) << broken;
  }
}

TEST(JsonInputTest, RefusesWhatLibrariesReadDifferently) {
  EXPECT_THAT(Problem(Nested(33)),
              StartsWith("body: more than 32 levels deep"));
  EXPECT_THAT(Problem(std::string(1'000'000, '[')), HasSubstr("object"));
  EXPECT_THAT(Problem("{\"a\":" + std::string(1'000'000, '[')),
              HasSubstr("levels deep"));
  EXPECT_THAT(Problem("{\"a\":1,\"b\":2,\"a\":3}"),
              HasSubstr("the name \"a\" stands twice"));
  EXPECT_THAT(Problem("{\"a\":{\"b\":1,\"\\u0062\":2}}"),
              HasSubstr("the name \"b\" stands twice"));
  EXPECT_THAT(Problem("{\"a\":\"\xff\"}"), HasSubstr("malformed"));
  EXPECT_THAT(Problem("{\"a\":\"\\ud800\"}"), HasSubstr("malformed"));
  EXPECT_NE(Problem("{\"a\":1e999}"), "");
}

class JsonFieldsTest : public testing::Test {
 protected:
  const nlohmann::json json_ = *ParseJsonObject(
      R"({"yes": true, "three": 3, "three_point_o": 3.0, "half": 0.5,
          "text": "x", "none": null, "big": 9223372036854775807,
          "bigger": 9223372036854775808, "wide": 2147483648, "huge": 1e300,
          "rounded": 1e17})");
  const JsonFields fields_{&json_};
};

TEST_F(JsonFieldsTest, ReadsWhatIsThere) {
  EXPECT_EQ(*fields_.Bool("yes"), true);
  EXPECT_EQ(*fields_.Integer("three"), 3);
  EXPECT_EQ(*fields_.Integer("three_point_o"), 3);
  EXPECT_EQ(*fields_.Integer("big"), 9223372036854775807);
  EXPECT_EQ(*fields_.Int32("three"), 3);
  EXPECT_EQ(*fields_.Float("half"), 0.5f);
  EXPECT_EQ(*fields_.Float("three"), 3.0f);
  EXPECT_EQ(*fields_.String("text"), "x");
}

TEST_F(JsonFieldsTest, NullIsAbsent) {
  for (const char* name : {"none", "nothing"}) {
    EXPECT_EQ(fields_.Find(name), nullptr);
    EXPECT_EQ(*fields_.Bool(name), std::nullopt);
    EXPECT_EQ(*fields_.Integer(name), std::nullopt);
    EXPECT_EQ(*fields_.Float(name), std::nullopt);
    EXPECT_EQ(*fields_.String(name), std::nullopt);
  }
}

TEST_F(JsonFieldsTest, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(fields_.Bool("text").status().message(),
            "text: must be true or false");
  EXPECT_EQ(fields_.Integer("half").status().message(),
            "half: must be a whole number");
  EXPECT_EQ(fields_.Integer("yes").status().message(),
            "yes: must be a whole number");
  EXPECT_EQ(fields_.Integer("bigger").status().message(),
            "bigger: 9223372036854775808 is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(fields_.Integer("huge").status().message(),
            "huge: 1e+300 is no whole number from -9223372036854775808 to "
            "9223372036854775807");
  EXPECT_EQ(fields_.Integer("rounded").status().message(),
            "rounded: must be written without point and exponent beyond 2^53");
  EXPECT_EQ(fields_.Int32("wide").status().message(),
            "wide: 2147483648 is out of range");
  EXPECT_EQ(fields_.Float("huge").status().message(),
            "huge: 1e+300 is out of range");
  EXPECT_EQ(fields_.Float("text").status().message(), "text: must be a number");
  EXPECT_EQ(fields_.String("three").status().message(),
            "three: must be a string");
}

}  // namespace
}  // namespace specwire::coordinator
