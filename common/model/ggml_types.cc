// SPDX-License-Identifier: Apache-2.0
#include "common/model/ggml_types.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/kernels/half.h"

namespace specwire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "model files are read in place, so the host must be "
              "little-endian too");

// Names by number; nullptr where ggml has taken a type away again.
constexpr const char* kNames[] = {
    "F32",   "F16",   "Q4_0",    "Q4_1",   "Q4_2",    "Q4_3",  "Q5_0",
    "Q5_1",  "Q8_0",  "Q8_1",    "Q2_K",   "Q3_K",    "Q4_K",  "Q5_K",
    "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
    "IQ3_S", "IQ2_S", "IQ4_XS",  "I8",     "I16",     "I32",   "I64",
    "F64",   "IQ1_M", "BF16",    nullptr,  nullptr,   nullptr, "TQ1_0",
    "TQ2_0", nullptr, nullptr,   nullptr,  "MXFP4",   "NVFP4", "Q1_0"};
constexpr size_t kNumNames = sizeof(kNames) / sizeof(kNames[0]);

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// In these BlockExpanders products and sums are rounded one by one (the file is
// compiled without contraction), as the reference does.

bool ExpandF32(const uint8_t* block, float* out) {
  std::memcpy(out, block, sizeof(*out));
  return std::isfinite(*out);
}

bool ExpandF16(const uint8_t* block, float* out) {
  *out = HalfToFloat(LoadU16(block));
  return std::isfinite(*out);
}

bool ExpandBF16(const uint8_t* block, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(LoadU16(block)) << 16);
  return std::isfinite(*out);
}

bool ExpandQ4_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((nibbles[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((nibbles[i] >> 4) - 8);
  }
  return std::isfinite(d);
}

bool ExpandQ4_1(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(nibbles[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(nibbles[i] >> 4) + m;
  }
  return std::isfinite(d) && std::isfinite(m);
}

bool ExpandQ8_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
  return std::isfinite(d);
}

}  // namespace

BlockExpander BlockExpanderOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return ExpandF32;
    case GgmlType::kF16:
      return ExpandF16;
    case GgmlType::kQ4_0:
      return ExpandQ4_0;
    case GgmlType::kQ4_1:
      return ExpandQ4_1;
    case GgmlType::kQ8_0:
      return ExpandQ8_0;
    case GgmlType::kBF16:
      return ExpandBF16;
  }
  return nullptr;
}

const GgmlTypeInfo& InfoOf(GgmlType type) {
  static constexpr GgmlTypeInfo kF32 = {"F32", 1, 4};
  static constexpr GgmlTypeInfo kF16 = {"F16", 1, 2};
  static constexpr GgmlTypeInfo kBF16 = {"BF16", 1, 2};
  static constexpr GgmlTypeInfo kQ4_0 = {"Q4_0", 32, 18};
  static constexpr GgmlTypeInfo kQ4_1 = {"Q4_1", 32, 20};
  static constexpr GgmlTypeInfo kQ8_0 = {"Q8_0", 32, 34};
  switch (type) {
    case GgmlType::kF16:
      return kF16;
    case GgmlType::kBF16:
      return kBF16;
    case GgmlType::kQ4_0:
      return kQ4_0;
    case GgmlType::kQ4_1:
      return kQ4_1;
    case GgmlType::kQ8_0:
      return kQ8_0;
    case GgmlType::kF32:
      break;
  }
  return kF32;
}

std::optional<GgmlType> KnownGgmlType(uint32_t value) {
  const GgmlType type = static_cast<GgmlType>(value);
  if (BlockExpanderOf(type) == nullptr) return std::nullopt;
  return type;
}

std::string GgmlTypeName(uint32_t value) {
  if (value < kNumNames && kNames[value] != nullptr) return kNames[value];
  return absl::StrCat("unknown (", value, ")");
}

}  // namespace specwire
