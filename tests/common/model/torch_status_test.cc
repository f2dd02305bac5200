// SPDX-License-Identifier: Apache-2.0
#include "common/model/torch_status.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "absl/status/statusor.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

template <typename Throw>
absl::Status Caught(Throw thrower) {
  return CatchingTorch("a pass", [&]() -> absl::Status {
    thrower();
    return absl::OkStatus();
  });
}

TEST(TorchStatusTest, PassesResultsThrough) {
  const auto value =
      CatchingTorch("a pass", []() -> absl::StatusOr<int> { return 7; });
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
}

TEST(TorchStatusTest, TorchErrorsAreInternalAndOneLine) {
  const absl::Status status =
      Caught([] { TORCH_CHECK(false, "shapes differ"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()), "a pass: shapes differ");
}

TEST(TorchStatusTest, LackOfMemoryIsResourceExhausted) {
  EXPECT_EQ(Caught([] { throw std::bad_alloc(); }).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Caught([] {
              TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory");
            }).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TorchStatusTest, OtherExceptionsAreInternal) {
  const absl::Status status = Caught([] { throw std::logic_error("odd"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("odd"));
  EXPECT_EQ(Caught([] { throw 5; }).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace specwire
