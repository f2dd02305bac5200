// SPDX-License-Identifier: Apache-2.0
#include "common/model/int8_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/round_up.h"
#include "common/base/sha256.h"
#include "common/kernels/half.h"
#include "common/kernels/packing.h"
#include "common/model/file_tensor.h"
#include "common/model/ggml_types.h"
#include "tests/common/model/shape_file.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

constexpr GgmlType kAllTypes[] = {GgmlType::kF32,
                                  GgmlType::kF16,
                                  GgmlType::kBF16,
                                  GgmlType::kQ8_0,
                                  GgmlType::kQ4_0,
                                  GgmlType::kQ4_1,
                                  GgmlType::kQ5_0,
                                  GgmlType::kQ5_1,
                                  GgmlType::kQ4_K,
                                  GgmlType::kQ5_K,
                                  GgmlType::kQ6_K};

// A tensor with the bytes that it points to.
struct OwnedTensor {
  OwnedTensor(GgmlType type, int64_t rows, int64_t columns, std::string bytes)
      : data(std::move(bytes)) {
    tensor.name = "weights";
    tensor.type = type;
    tensor.shape = {rows, columns};
    tensor.data = absl::MakeConstSpan(
        reinterpret_cast<const uint8_t*>(data.data()), data.size());
  }
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;

  std::string data;
  FileTensor tensor;
};

class Int8LinearTest : public ::testing::Test {
 protected:
  std::unique_ptr<OwnedTensor> Random(GgmlType type,
                                      int64_t rows,
                                      int64_t columns) {
    return std::make_unique<OwnedTensor>(
        type,
        rows,
        columns,
        RandomBlocks(type, rows * columns, 0.05f, random_));
  }

  static WeightMatrix MatrixOf(const OwnedTensor& tensor) {
    WeightMatrix matrix(tensor.tensor.shape[1]);
    for (int64_t row = 0; row < tensor.tensor.shape[0]; ++row) {
      matrix.Append(&tensor.tensor, row);
    }
    return matrix;
  }

  absl::StatusOr<std::unique_ptr<Int8Linear>> Create(
      const WeightMatrix& matrix) {
    Sha256 digest;
    auto linear = Int8Linear::Create(matrix, &arena_, &digest);
    digest_ = digest.FinishHex();
    return linear;
  }

  static std::vector<float> Expanded(const WeightMatrix& matrix, int64_t row) {
    std::vector<float> out(static_cast<size_t>(matrix.columns()));
    EXPECT_TRUE(matrix.ExpandRow(row, absl::MakeSpan(out)).ok());
    return out;
  }
  static std::vector<float> Expanded(const Int8Linear& linear,
                                     int64_t row,
                                     int64_t columns) {
    std::vector<float> out(static_cast<size_t>(columns));
    linear.ExpandOutput(row, absl::MakeSpan(out));
    return out;
  }

  // Each group of each row, packed, is what quantising the file's values gives.
  static void ExpectQuantized(const Int8Linear& linear,
                              const WeightMatrix& matrix) {
    const int64_t columns = matrix.columns();
    ASSERT_EQ(linear.packed().form, WeightForm::kInt8);
    for (int64_t row = 0; row < matrix.rows(); ++row) {
      const std::vector<float> values = Expanded(matrix, row);
      const std::vector<float> got = Expanded(linear, row, columns);
      for (int64_t g = 0; g < linear.packed().groups; ++g) {
        const auto at = static_cast<size_t>(g) * kGroupSize;
        const auto part = absl::MakeConstSpan(values).subspan(at, kGroupSize);
        const WeightGroup want = QuantizeWeights(part);
        WeightGroup group;
        UnpackGroup(linear.packed(), row, g, &group);
        ASSERT_EQ(group.scale, want.scale);
        for (size_t i = 0; i < kGroupSize; ++i) {
          ASSERT_EQ(group.values[i], want.values[i]);
          if (i < part.size()) {
            ASSERT_EQ(
                got[at + i],
                HalfToFloat(want.scale) * static_cast<float>(want.values[i]));
          }
        }
      }
    }
  }

  std::mt19937 random_{5};
  WeightArena arena_;
  std::string digest_;
};

TEST_F(Int8LinearTest, PacksEveryTypeOfTheFile) {
  for (const GgmlType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    for (const int64_t rows : {1, 16, 37}) {
      const int64_t columns = RoundUp(int64_t{96}, InfoOf(type).block_size);
      const auto tensor = Random(type, rows, columns);
      const WeightMatrix matrix = MatrixOf(*tensor);
      const auto linear = Create(matrix);
      ASSERT_TRUE(linear.ok()) << linear.status();
      const PackedMatrix& packed = (*linear)->packed();
      EXPECT_EQ(packed.outputs, rows);
      EXPECT_EQ(packed.groups, columns / 32);
      EXPECT_EQ((*linear)->num_blocks(), (rows + 15) / 16);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.weights) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.scales) % 64, 0u);
      if (type != GgmlType::kQ4_0 && type != GgmlType::kQ4_1) {
        ExpectQuantized(**linear, matrix);
        continue;
      }
      // 4-bit blocks are kept, so their values are those of the file.
      EXPECT_EQ(packed.form, WeightForm::kInt4);
      for (int64_t row = 0; row < rows; ++row) {
        ASSERT_EQ(Expanded(**linear, row, columns), Expanded(matrix, row));
      }
    }
  }
}

TEST_F(Int8LinearTest, FillsTheLastGroupUpWithZeros) {
  for (const int64_t columns : {1, 8, 31, 33, 72}) {
    for (const GgmlType type :
         {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
      const auto tensor = Random(type, 5, columns);
      const WeightMatrix matrix = MatrixOf(*tensor);
      const auto linear = Create(matrix);
      ASSERT_TRUE(linear.ok()) << linear.status();
      EXPECT_EQ((*linear)->packed().groups, (columns + 31) / 32);
      ExpectQuantized(**linear, matrix);
    }
  }
}

// Merged matrices: a row keeps its own values, in the order of the matrix.
TEST_F(Int8LinearTest, RowsOfSeveralTensorsAndTypes) {
  std::vector<std::unique_ptr<OwnedTensor>> tensors;
  WeightMatrix matrix(256);
  for (const GgmlType type : kAllTypes) {
    tensors.push_back(Random(type, 7, 256));
    for (const int64_t row : {3, 0, 6}) {
      matrix.Append(&tensors.back()->tensor, row);
    }
  }
  auto linear = Create(matrix);
  ASSERT_TRUE(linear.ok()) << linear.status();
  ExpectQuantized(**linear, matrix);

  // Only one type of 4-bit block in all rows is kept.
  for (const size_t last : {4, 5}) {
    WeightMatrix blocks(256);
    blocks.Append(&tensors[4]->tensor, 1);
    blocks.Append(&tensors[last]->tensor, 2);
    linear = Create(blocks);
    ASSERT_TRUE(linear.ok()) << linear.status();
    if (last == 4) {
      EXPECT_EQ((*linear)->packed().form, WeightForm::kInt4);
      EXPECT_EQ(Expanded(**linear, 1, 256), Expanded(blocks, 1));
    } else {
      ExpectQuantized(**linear, blocks);
    }
  }
}

// The minimum -8 d of a Q4_0 block must be a half-precision number.
TEST_F(Int8LinearTest, LargeQ40ScalesBecomeInt8) {
  for (const float scale : {8188.0f, -8188.0f, 8192.0f, -60000.0f}) {
    auto tensor = Random(GgmlType::kQ4_0, 3, 64);
    tensor->data.replace(18 * 3, 2, LittleEndian(FloatToHalf(scale), 2));
    const WeightMatrix matrix = MatrixOf(*tensor);
    const auto linear = Create(matrix);
    ASSERT_TRUE(linear.ok()) << linear.status();
    if (std::fabs(scale) > 8188) {
      ExpectQuantized(**linear, matrix);
    } else {
      EXPECT_EQ((*linear)->packed().form, WeightForm::kInt4);
      EXPECT_EQ(Expanded(**linear, 1, 64), Expanded(matrix, 1));
    }
  }
}

TEST_F(Int8LinearTest, RefusesWhatIsNotFinite) {
  for (const GgmlType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    auto tensor =
        Random(type, 4, RoundUp(int64_t{32}, InfoOf(type).block_size));
    const std::string infinite =
        type == GgmlType::kF32    ? LittleEndian(0x7f800000u, 4)
        : type == GgmlType::kBF16 ? LittleEndian(0x7f80u, 2)
                                  : LittleEndian(0x7c00u, 2);
    // The first value or scale of row 2.
    const size_t place = type == GgmlType::kQ6_K ? 208 : 0;
    tensor->data.replace(
        tensor->data.size() / 2 + place, infinite.size(), infinite);
    const auto linear = Create(MatrixOf(*tensor));
    EXPECT_EQ(linear.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(linear.status().message()), HasSubstr("weights"));
    EXPECT_THAT(std::string(linear.status().message()),
                HasSubstr("is not finite"));
  }
}

TEST_F(Int8LinearTest, TheDigestIsThatOfTheWeights) {
  std::map<std::string, std::string> types_by_digest;
  for (const GgmlType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    const int64_t columns = RoundUp(int64_t{64}, InfoOf(type).block_size);
    auto tensor = Random(type, 20, columns);
    ASSERT_TRUE(Create(MatrixOf(*tensor)).ok());
    const std::string before = digest_;
    EXPECT_TRUE(types_by_digest.emplace(before, InfoOf(type).name).second);
    ASSERT_TRUE(Create(MatrixOf(*tensor)).ok());
    EXPECT_EQ(digest_, before);
    // The order of rows counts.
    WeightMatrix swapped(columns);
    for (const int64_t row : {1, 0}) swapped.Append(&tensor->tensor, row);
    WeightMatrix straight(columns);
    for (const int64_t row : {0, 1}) straight.Append(&tensor->tensor, row);
    ASSERT_TRUE(Create(swapped).ok());
    const std::string of_swapped = digest_;
    ASSERT_TRUE(Create(straight).ok());
    EXPECT_NE(digest_, of_swapped);
    // Another exponent somewhere, or other nibbles.
    const size_t at = type == GgmlType::kF32 ? 403 : 401;
    tensor->data[at] = static_cast<char>(tensor->data[at] ^ 0x08);
    ASSERT_TRUE(Create(MatrixOf(*tensor)).ok());
    EXPECT_NE(digest_, before);
  }
}

TEST(WeightArenaTest, PartsAreAlignedZerosThatOutliveIt) {
  std::vector<at::Tensor> parts;
  {
    WeightArena arena;
    // The last does not fit what a piece has left, nor a piece at all.
    for (const int64_t bytes : {int64_t{1},
                                int64_t{64},
                                int64_t{65},
                                int64_t{1} << 24,
                                int64_t{1} << 24,
                                int64_t{40} << 20}) {
      parts.push_back(arena.Allocate(bytes));
      EXPECT_EQ(parts.back().numel(), bytes);
    }
  }
  for (const at::Tensor& part : parts) {
    const auto* const data = part.data_ptr<uint8_t>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    EXPECT_TRUE(std::all_of(
        data, data + part.numel(), [](uint8_t byte) { return byte == 0; }));
  }
  // Writing to one leaves the others alone.
  for (size_t i = 0; i < parts.size(); ++i) {
    std::memset(parts[i].data_ptr<uint8_t>(),
                static_cast<int>(i) + 1,
                static_cast<size_t>(parts[i].numel()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* const data = parts[i].data_ptr<uint8_t>();
    EXPECT_EQ(data[0], i + 1);
    EXPECT_EQ(data[parts[i].numel() - 1], i + 1);
  }
}

// A line of /proc/self/status in KiB; 0 if there is none.
int64_t StatusKib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == key + ":" && status >> value) return value;
  }
  return 0;
}

// Sets the peak of resident memory back to what is resident.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.close();
  return !file.fail();
}

// 120 MiB as float32, of which no more than a row may ever be expanded.
TEST_F(Int8LinearTest, NeverHoldsTheMatrixInFloat) {
  constexpr int64_t kRows = 15 << 10;
  constexpr int64_t kColumns = 2048;
  constexpr int64_t kFloatKib = kRows * kColumns * 4 / 1024;
  const auto tensor = std::make_unique<OwnedTensor>(
      GgmlType::kQ8_0,
      kRows,
      kColumns,
      std::string(kRows * kColumns / 32 * 34, '\1'));
  const WeightMatrix matrix = MatrixOf(*tensor);
  if (!ResetPeak() || StatusKib("VmHWM") == 0) {
    GTEST_SKIP() << "NOT TESTED: the system does not tell peak memory";
  }
  const int64_t before = StatusKib("VmRSS");
  const auto linear = Create(matrix);
  ASSERT_TRUE(linear.ok()) << linear.status();
  const int64_t grown = StatusKib("VmHWM") - before;
  RecordProperty("grown_kib", std::to_string(grown));
  // The packed matrix, 34 of 128 parts, in pieces of 32 MiB.
  const int64_t packed = kFloatKib * 34 / 128;
  EXPECT_GT(grown, packed / 2);
  EXPECT_LT(grown, packed + (33 << 10));
  EXPECT_LT(grown, kFloatKib * 3 / 4);
}

}  // namespace
}  // namespace specwire
