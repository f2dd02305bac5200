// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http/proto_json.h"

#include <string>

#include "gtest/gtest.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {
namespace {

std::string Problem(const std::string& json, absl::string_view field = "body") {
  v1::GenerateRequest request;
  const absl::Status status = ParseProtoJson(json, field, &request);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST(ProtoJsonTest, SaysWhichFieldIsWrongAndWhy) {
  EXPECT_EQ(Problem(R"({"text": "a", "sampling": {"seed": 7}})"), "");
  EXPECT_EQ(Problem(R"({"sampling": {"seed": 9223372036854775808}})"),
            "sampling.seed: 9223372036854775808 is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(Problem(R"({"sampling": {"seed": 18446744073709551616}})"),
            "sampling.seed: 1.8446744073709552e+19 is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(Problem(R"({"sampling": {"temperature": "x"}})"),
            "sampling.temperature: \"x\" is no 32-bit number");
  EXPECT_EQ(Problem(R"({"sampling": {"nonsense": 1}})"),
            "sampling.nonsense: there is no such field");
  EXPECT_EQ(Problem(R"({"nonsense": 1})"), "nonsense: there is no such field");
  EXPECT_EQ(Problem(R"({"tokenIds": {"ids": [1, "a"]}})"),
            "token_ids.ids[1]: \"a\" is no 32-bit integer");
  EXPECT_EQ(Problem(R"({"tokenIds": [1]})"), "tokenIds: must not be an array");
  EXPECT_EQ(Problem(R"({"sampling": 1})"), "sampling: 1 is no SamplingParams");
  EXPECT_EQ(Problem(R"({"speculation": {"rule": "X"}})"),
            "speculation.rule: \"X\" is no AcceptanceRule");
  EXPECT_EQ(Problem(R"({"text": "a", "tokenIds": {"ids": [1]}})"),
            "body: oneof field 'prompt' is already set. Cannot set 'tokenIds'");
  EXPECT_EQ(Problem("[1]"), "body: must be an object");
}

TEST(ProtoJsonTest, NamesAPartOfABodyToo) {
  EXPECT_EQ(Problem(R"({"sampling": {"seed": "x"}})", "part"),
            "part.sampling.seed: \"x\" is no whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(Problem("[1]", "part"), "part: must be an object");
}

TEST(ProtoJsonTest, CutsWhatItRepeats) {
  const std::string problem =
      Problem(R"({"sampling": {"seed": ")" + std::string(1000, 'x') + R"("}})");
  EXPECT_LT(problem.size(), 200u) << problem;
}

}  // namespace
}  // namespace specwire::coordinator
