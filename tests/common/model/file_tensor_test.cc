// SPDX-License-Identifier: Apache-2.0
#include "common/model/file_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

FileTensor Named(absl::string_view name) {
  return {std::string(name), GgmlType::kF32, {2, 3}, {}};
}

TEST(FileTensorTest, CountsElementsAndRows) {
  const auto with_shape = [](std::vector<int64_t> shape) {
    return FileTensor{"a", GgmlType::kF32, std::move(shape), {}};
  };
  EXPECT_EQ(with_shape({}).num_elements(), 1);
  EXPECT_EQ(with_shape({}).num_rows(), 1);
  EXPECT_EQ(with_shape({5}).num_elements(), 5);
  EXPECT_EQ(with_shape({5}).num_rows(), 1);
  EXPECT_EQ(with_shape({4, 3, 2}).num_elements(), 24);
  EXPECT_EQ(with_shape({4, 3, 2}).num_rows(), 12);
}

TEST(TensorTableTest, FindsTensorsByNameAndKeepsTheirOrder) {
  TensorTable table("x.bin");
  EXPECT_TRUE(table.tensors().empty());
  // Enough to make it grow; names short enough to move with their tensor.
  for (int i = 99; i >= 0; --i) {
    ASSERT_TRUE(table.Add(Named(absl::StrCat(i))));
  }
  ASSERT_EQ(table.tensors().size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(table.tensors()[i].name, absl::StrCat(99 - i));
    EXPECT_EQ(table.Find(absl::StrCat(99 - i)), &table.tensors()[i]);
  }
  EXPECT_EQ(table.Find("100"), nullptr);
  EXPECT_EQ(table.path(), "x.bin");
}

TEST(TensorTableTest, TakesEachNameOnce) {
  TensorTable table("x.bin");
  ASSERT_TRUE(table.Add(Named("a")));
  FileTensor other = Named("a");
  other.shape = {7};
  EXPECT_FALSE(table.Add(other));
  ASSERT_EQ(table.tensors().size(), 1u);
  EXPECT_THAT(table.Find("a")->shape, ::testing::ElementsAre(2, 3));
}

TEST(TensorTableTest, ChecksShapes) {
  TensorTable table("x.bin");
  ASSERT_TRUE(table.Add(Named("a")));
  EXPECT_EQ(*table.FindTensor("a", {2, 3}), table.Find("a"));
  const absl::Status other = table.FindTensor("a", {3, 2}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(other.message()),
            "x.bin: tensor a: has shape [2, 3], but the model needs [3, 2]");
  const absl::Status absent = table.FindTensor("b", {2, 3}).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(absent.message()), "x.bin: tensor b: is absent");
}

TEST(TensorTableTest, EscapesFieldsInErrors) {
  EXPECT_EQ(
      std::string(TensorTable("x.bin").Error("a\nb", "is wrong").message()),
      "x.bin: a\\nb: is wrong");
}

}  // namespace
}  // namespace specwire
