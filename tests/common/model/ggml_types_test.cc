// SPDX-License-Identifier: Apache-2.0
#include "common/model/ggml_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/sha256.h"
#include "common/kernels/half.h"
#include "common/model/file_tensor.h"
#include "common/model/gguf.h"
#include "nlohmann/json.hpp"

namespace specwire {
namespace {

using ::testing::HasSubstr;

constexpr char kModelPath[] =
    SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";

nlohmann::json LoadGolden() {
  std::ifstream file(SPECWIRE_TEST_DATA "/ggml_blocks.json");
  return nlohmann::json::parse(file);
}

GgmlType TypeNamed(const std::string& name) {
  for (uint32_t value = 0; value < 64; ++value) {
    if (GgmlTypeName(value) == name) return *KnownGgmlType(value);
  }
  ADD_FAILURE() << "no type " << name;
  return GgmlType::kF32;
}

std::string Unhex(const nlohmann::json& text) {
  return absl::HexStringToBytes(text.get<std::string>());
}

std::string Sha256Of(absl::Span<const float> values) {
  Sha256 sha;
  sha.Update(absl::string_view(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float)));
  return sha.FinishHex();
}

// A tensor of one row over `data`, which must outlive it.
FileTensor RowOver(GgmlType type, const std::string& data) {
  FileTensor tensor;
  tensor.name = "row";
  tensor.type = type;
  tensor.data = absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(data.data()), data.size());
  const GgmlTypeInfo& info = InfoOf(type);
  tensor.shape = {static_cast<int64_t>(data.size()) / info.block_bytes *
                  info.block_size};
  return tensor;
}

TEST(GgmlTypesTest, ExpandsBlocksBitEqualToTheGgufPackage) {
  const nlohmann::json golden = LoadGolden();
  ASSERT_EQ(golden["blocks"].size(), 10u);
  for (const nlohmann::json& entry : golden["blocks"]) {
    SCOPED_TRACE(entry["type"].get<std::string>());
    const std::string data = Unhex(entry["data"]);
    const FileTensor tensor = RowOver(TypeNamed(entry["type"]), data);
    std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
    const absl::Status status = ExpandToFloat(tensor, absl::MakeSpan(values));
    ASSERT_TRUE(status.ok()) << status;
    if (entry.contains("sha256")) {
      const auto size = static_cast<size_t>(InfoOf(tensor.type).block_size);
      ASSERT_EQ(values.size(), size * entry["sha256"].size());
      for (size_t i = 0; i < entry["sha256"].size(); ++i) {
        EXPECT_EQ(Sha256Of(absl::MakeConstSpan(values).subspan(i * size, size)),
                  entry["sha256"][i].get<std::string>())
            << "block " << i;
      }
      continue;
    }
    const std::string expected = Unhex(entry["values"]);
    ASSERT_EQ(values.size() * sizeof(float), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, expected.data() + 4 * i, sizeof(bits));
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits) << "value " << i;
    }
  }
}

TEST(GgmlTypesTest, CopiesFloatsAsTheyAre) {
  const std::vector<float> expected = {
      0.0f, -0.0f, 1.5f, std::numeric_limits<float>::denorm_min()};
  std::string data(16, '\0');
  std::memcpy(data.data(), expected.data(), 16);
  std::vector<float> values(4);
  ASSERT_TRUE(
      ExpandToFloat(RowOver(GgmlType::kF32, data), absl::MakeSpan(values))
          .ok());
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), 16), 0);
}

TEST(GgmlTypesTest, ConvertsEveryHalfExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (exponent == 31) {
      ASSERT_EQ(std::isinf(value), mantissa == 0) << bits;
      ASSERT_EQ(std::isnan(value), mantissa != 0) << bits;
      continue;
    }
    const double magnitude = exponent == 0
                                 ? std::ldexp(mantissa, -24)
                                 : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(std::fabs(static_cast<double>(value)), magnitude) << bits;
  }
}

TEST(GgmlTypesTest, ExpandsEveryHalfExactly) {
  std::string data;
  std::vector<float> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits >> 10 & 31) == 31) continue;
    data.push_back(static_cast<char>(bits & 255));
    data.push_back(static_cast<char>(bits >> 8));
    expected.push_back(HalfToFloat(static_cast<uint16_t>(bits)));
  }
  std::vector<float> values(expected.size());
  ASSERT_TRUE(
      ExpandToFloat(RowOver(GgmlType::kF16, data), absl::MakeSpan(values))
          .ok());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]),
              std::bit_cast<uint32_t>(expected[i]));
  }
}

TEST(GgmlTypesTest, NamesTheFirstValueThatIsNotFinite) {
  for (const GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    const auto size = static_cast<size_t>(InfoOf(type).block_bytes);
    std::string data(100 * size, '\0');
    for (const size_t place : {99u, 98u, 17u}) {
      // The upper half of -infinity.
      const uint16_t bits = type == GgmlType::kF16 ? 0xfc00 : 0xff80;
      std::memcpy(data.data() + (place + 1) * size - 2, &bits, sizeof(bits));
      std::vector<float> values(100);
      EXPECT_EQ(
          std::string(ExpandToFloat(RowOver(type, data), absl::MakeSpan(values))
                          .message()),
          "tensor row: value " + std::to_string(place) + " is not finite");
    }
  }
}

TEST(GgmlTypesTest, RefusesScalesAndValuesThatAreNotFinite) {
  struct Case {
    GgmlType type;
    size_t place;  // of a half (or the upper half of a float) in block 1
  };
  for (const Case& c : {Case{GgmlType::kF32, 2},
                        Case{GgmlType::kF16, 0},
                        Case{GgmlType::kBF16, 0},
                        Case{GgmlType::kQ4_0, 0},
                        Case{GgmlType::kQ4_1, 0},
                        Case{GgmlType::kQ4_1, 2},
                        Case{GgmlType::kQ5_0, 0},
                        Case{GgmlType::kQ5_1, 0},
                        Case{GgmlType::kQ5_1, 2},
                        Case{GgmlType::kQ8_0, 0},
                        Case{GgmlType::kQ4_K, 0},
                        Case{GgmlType::kQ4_K, 2},
                        Case{GgmlType::kQ5_K, 0},
                        Case{GgmlType::kQ5_K, 2},
                        Case{GgmlType::kQ6_K, 208}}) {
    const GgmlTypeInfo& info = InfoOf(c.type);
    SCOPED_TRACE(info.name);
    const size_t block = static_cast<size_t>(info.block_bytes);
    std::string data(3 * block, '\0');
    std::vector<float> values(3 * static_cast<size_t>(info.block_size));
    ASSERT_TRUE(
        ExpandToFloat(RowOver(c.type, data), absl::MakeSpan(values)).ok());
    // Infinity, then NaN: 0x7f80 and 0x7fff, or 0x7c00 and 0x7fff for halves.
    const bool wide = c.type == GgmlType::kF32 || c.type == GgmlType::kBF16;
    for (const int pattern : {wide ? 0x7f80 : 0x7c00, 0x7fff, 0xffff}) {
      const uint16_t bits = static_cast<uint16_t>(pattern);
      std::memcpy(data.data() + block + c.place, &bits, sizeof(bits));
      const absl::Status status =
          ExpandToFloat(RowOver(c.type, data), absl::MakeSpan(values));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(info.block_size == 1
                                ? "tensor row: value 1 is not finite"
                                : "tensor row: the scale of block 1 is not "
                                  "finite"));
    }
  }
}

TEST(GgmlTypesTest, RefusesAnOutputOfAnotherSize) {
  const std::string data(34, '\0');
  std::vector<float> values(31);
  EXPECT_EQ(
      ExpandToFloat(RowOver(GgmlType::kQ8_0, data), absl::MakeSpan(values))
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(GgmlTypesTest, NamesTypesThatItDoesNotKnow) {
  EXPECT_EQ(GgmlTypeName(10), "Q2_K");
  EXPECT_EQ(GgmlTypeName(31), "unknown (31)");
  EXPECT_EQ(GgmlTypeName(4000000000u), "unknown (4000000000)");
  EXPECT_FALSE(KnownGgmlType(10).has_value());
  EXPECT_FALSE(KnownGgmlType(4000000000u).has_value());
}

TEST(GgmlTypesTest, ExpandsTheDefaultModelBitEqualToTheGgufPackage) {
  if (!std::filesystem::exists(kModelPath)) GTEST_SKIP() << "no " << kModelPath;
  auto file = GgufFile::Open(kModelPath);
  ASSERT_TRUE(file.ok()) << file.status();
  const nlohmann::json golden = LoadGolden();
  ASSERT_EQ(golden["tensors"].size(), 4u);
  for (const nlohmann::json& entry : golden["tensors"]) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    auto tensor = (*file)->tensor_table().FindTensor(
        entry["name"].get<std::string>(),
        entry["shape"].get<std::vector<int64_t>>());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ((*tensor)->type, TypeNamed(entry["type"]));
    std::vector<float> values(static_cast<size_t>((*tensor)->num_elements()));
    ASSERT_TRUE(ExpandToFloat(**tensor, absl::MakeSpan(values)).ok());
    EXPECT_EQ(Sha256Of(values), entry["sha256"].get<std::string>());
  }
}

}  // namespace
}  // namespace specwire
